"""One digest chain behind the caller's back is the digest of what was fed, in order."""

import hashlib
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.impl.stores.background_hash import BackgroundHash


@given(st.lists(st.integers(0, 400_000), max_size=12))
@settings(max_examples=30)
def test_pieces_of_any_size_give_the_digest_of_their_sequence(sizes: list[int]) -> None:
    pieces = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    with BackgroundHash() as found:
        for piece in pieces:
            found.update(piece)
        assert found.digest() == hashlib.sha256(b"".join(pieces)).digest()


def test_a_buffer_that_is_used_again_was_copied() -> None:
    buffer = bytearray(b"a" * (1 << 19))
    with BackgroundHash() as found:
        found.update(buffer)
        buffer[:] = b"b" * len(buffer)
        assert found.digest() == hashlib.sha256(b"a" * len(buffer)).digest()


def test_no_thread_outlives_a_failure() -> None:
    before = threading.active_count()

    def fail() -> None:
        with BackgroundHash() as found:
            found.update(bytes(1 << 20))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert threading.active_count() == before
