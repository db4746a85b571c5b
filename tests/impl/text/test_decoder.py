"""Any split of a token stream decodes to the text of the whole."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.impl.text.engine import Tokenizer
from assay.impl.text.facts import read_facts
from assay.impl.text.miniature import tokenizer_files

ENGINE = Tokenizer(read_facts(tokenizer_files()))
IDS = st.lists(st.integers(-1, 400), max_size=30)


def library() -> Any:
    from tokenizers import Tokenizer as Library

    return Library.from_str(tokenizer_files()["tokenizer.json"].decode())


LIBRARY = library()


@given(st.lists(st.integers(0, 352), max_size=30), st.booleans())
@settings(max_examples=300)
def test_one_shot_decoding_is_the_librarys(ids: list[int], skip: bool) -> None:
    assert ENGINE.decode(ids, skip_special=skip) == LIBRARY.decode(ids, skip_special_tokens=skip)


@given(IDS, st.booleans())
@settings(max_examples=300)
def test_one_id_at_a_time_gives_the_text_of_the_whole(ids: list[int], skip: bool) -> None:
    decoder = ENGINE.decoder(skip_special=skip)
    streamed = "".join([decoder.push(one) for one in ids]) + decoder.finish()
    known = b"".join(
        ENGINE.token_bytes(one) or b""
        for one in ids
        if not (skip and one in set(range(320, 334)) | set(range(346, 353)))
    )
    assert streamed == known.decode("utf-8", "replace")


def bytes_of(*values: int) -> list[int]:
    return [next(one for one in range(256) if ENGINE.token_bytes(one) == bytes([value])) for value in values]


def test_an_incomplete_character_is_held_until_its_last_byte() -> None:
    decoder = ENGINE.decoder()
    assert [decoder.push(one) for one in bytes_of(0xF0, 0x9F, 0x99, 0x82)] == ["", "", "", "🙂"]


@pytest.mark.parametrize("without_text", [-1, 353, 383, 384, 2**31 - 1])
def test_an_id_without_text_does_not_flush(without_text: int) -> None:
    decoder = ENGINE.decoder()
    first, second = bytes_of(0xC3, 0xA9)
    assert [decoder.push(one) for one in (first, without_text, second)] == ["", "", "é"]


def test_a_skipped_special_does_not_flush_and_a_shown_one_does() -> None:
    first, second = bytes_of(0xC3, 0xA9)
    assert ENGINE.decode([first, 322, second], skip_special=True) == "é"
    assert ENGINE.decode([first, 322, second]) == "\ufffd<|im_end|>\ufffd"


def test_truly_invalid_bytes_are_replaced_at_once() -> None:
    decoder = ENGINE.decoder()
    assert decoder.push(bytes_of(0xFF)[0]) == "\ufffd"


def test_the_end_replaces_what_is_still_held() -> None:
    decoder = ENGINE.decoder()
    decoder.push(bytes_of(0xE4)[0])
    assert decoder.finish() == "\ufffd"
    assert decoder.finish() == ""
