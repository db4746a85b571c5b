"""The miniature's tokenizer is one set of bytes, made by code, with the real one's shape."""

import hashlib
from pathlib import Path

from assay.impl.text.engine import Tokenizer
from assay.impl.text.miniature import MERGES, tokenizer_files, write_tokenizer
from assay.spec.text import text_contract


def test_its_bytes_are_the_pinned_ones(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    contract = text_contract("miniature")
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in tmp_path.iterdir()}
    assert found == {pin.name: pin.sha256 for pin in contract.files}


def test_its_sizes_are_those_of_the_miniatures_profile(miniature: Tokenizer) -> None:
    assert (len(miniature.facts.vocabulary), len(MERGES), len(miniature.facts.added)) == (320, 64, 33)
    assert [token.id for token in miniature.facts.added] == list(range(320, 353))


def test_its_spellings_and_flags_are_the_published_ones() -> None:
    def shape(name: str) -> list[tuple[str, bool]]:
        return [(token.content, token.special) for token in text_contract(name).added]

    assert shape("miniature") == shape("qwen4exp")


def test_two_writings_are_equal() -> None:
    assert tokenizer_files() == tokenizer_files()
