"""Shared inputs: the miniature's tokenizer, and the published one where its description is present."""

from pathlib import Path

import pytest

from assay.impl.text.chat import ChatRenderer
from assay.impl.text.engine import Tokenizer
from assay.impl.text.miniature import write_tokenizer
from assay.provenance.paths import checkpoint_directory
from assay.spec.text import TextContract, text_contract


@pytest.fixture(scope="session")
def miniature_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("miniature")
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="session")
def miniature(miniature_dir: Path) -> Tokenizer:
    return Tokenizer.of_directory(miniature_dir)


@pytest.fixture(scope="session")
def contract() -> TextContract:
    return text_contract("miniature")


@pytest.fixture(scope="session")
def renderer(miniature_dir: Path, contract: TextContract) -> ChatRenderer:
    return ChatRenderer.of_directory(miniature_dir, contract)


@pytest.fixture(scope="session")
def published_dir() -> Path:
    found = checkpoint_directory()
    if found is None:
        pytest.skip("the description of the published checkpoint is absent")
    return found


@pytest.fixture(scope="session")
def published(published_dir: Path) -> Tokenizer:
    return Tokenizer.of_directory(published_dir)


@pytest.fixture(scope="session")
def published_renderer(published_dir: Path) -> ChatRenderer:
    return ChatRenderer.of_directory(published_dir, text_contract("qwen4exp"))
