"""The text pipeline against the public library itself, live: its file-backed backend, and its convenience constructor."""

import tempfile
import warnings
from pathlib import Path
from typing import Any, Final

from assay.impl.text.chat import ChatRenderer
from assay.impl.text.engine import Tokenizer
from assay.impl.text.miniature import write_tokenizer
from assay.provenance.gates import text_inputs
from assay.provenance.gates.base import GateContext, GateResult
from assay.provenance.gates.text import CASE, MAX_FINDINGS, ORACLE
from assay.spec.errors import AssayError, Finding
from assay.spec.text import text_contract
from assay.spec.verdicts import Outcome

STRINGS: Final = 2_000
CONVERSATIONS: Final = 500
CONTROLS: Final = ("क्", "हिन्दी", "e\u0331x", "กำ")
"""Texts whose pieces depend on whether combining marks belong to words."""


def live_upstream(context: GateContext) -> GateResult:
    """Renders and tokenizes through transformers on the miniature's files, and shows where AutoTokenizer parts."""
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder))
        return compare_upstream(Path(folder), context.seed, strings=STRINGS, conversations=CONVERSATIONS)


def compare_upstream(directory: Path, seed: int, *, strings: int, conversations: int) -> GateResult:
    """Compares ids, prompts and decoded text with the file-backed backend of transformers.

    The convenience constructor must differ on the controls: once it doesn't, the recorded divergence is out of date.
    """
    backend, automatic = _upstream(directory)
    contract = text_contract("miniature")
    tokenizer, renderer = Tokenizer.of_directory(directory), ChatRenderer.of_directory(directory, contract)
    findings: list[Finding] = []

    def same(where: str, expected: Any, got: Any) -> None:
        if expected != got:
            findings.append(Finding.of(ORACLE, "text", where, expected=expected, got=got))

    for number, text in enumerate(text_inputs.strings(seed, strings, frozenset(), contract)):
        ids = backend.encode(text, add_special_tokens=False)
        same(f"string {number}: ids", ids, tokenizer.encode_trusted(text))
        same(f"string {number}: text", backend.decode(ids), tokenizer.decode(ids))
    rendered = 0
    for number, (turns, options) in enumerate(text_inputs.conversations(seed, conversations, contract)):
        try:
            stream = renderer.render(turns, options).stream.decode()
        except AssayError:
            continue  # the contract refuses more than the template; what both render must be equal
        rendered += 1
        same(f"conversation {number}", backend.apply_chat_template(turns, tokenize=False, **options), stream)
    parted = [text for text in CONTROLS if automatic.encode(text) != tokenizer.encode_data(text)]
    if not parted:
        findings.append(
            Finding.of(CASE, "text", "AutoTokenizer", expected="other ids than the file's", got="equal ids")
        )
    counts = {
        "strings": strings,
        "rendered": rendered,
        "automatic_differs": len(parted),
        "controls": len(CONTROLS),
    }
    if findings:
        return GateResult(Outcome.FAIL, counts, tuple(findings[:MAX_FINDINGS]), findings[0].line)
    return GateResult(Outcome.PASS, counts)


def _upstream(directory: Path) -> tuple[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library warns about its own files
        from transformers import AutoTokenizer
        from transformers.tokenization_utils_tokenizers import TokenizersBackend

        return TokenizersBackend.from_pretrained(directory), AutoTokenizer.from_pretrained(directory)
