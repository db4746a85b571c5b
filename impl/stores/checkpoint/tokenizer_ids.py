"""Judges the ids that the tokenizer's and generation's own files declare; what the tokenizer does is judged elsewhere."""

from pathlib import Path
from typing import Any, Final

from assay.impl.stores.strict_json import read_json_object, same_json
from assay.spec.clauses import Authority, declare
from assay.spec.contract import Contract
from assay.spec.errors import AdmissionError, Finding

ADDED: Final = declare(
    "tokenizer.added_tokens", Authority.UPSTREAM, "The added tokens have the pinned ids, spellings and special flags.",
    source="tokenizer_config.json of the pinned revision", cause="another release's tokenizer, or an added token",
)  # fmt: skip
DECLARED: Final = declare(
    "tokenizer.declared_ids", Authority.UPSTREAM, "The end, padding and stop ids, the split pattern and the longest length are the pinned ones.",
    source="tokenizer_config.json and generation_config.json of the pinned revision",
    cause="a release that made another token its end of text",
)  # fmt: skip

TOKENIZER_CONFIG: Final = "tokenizer_config.json"
GENERATION_CONFIG: Final = "generation_config.json"
STAGE: Final = "tokenizer"
_LIMIT_BYTES: Final = 64 << 20


def judge_declared_ids(
    folder: Path, names: tuple[str, ...], contract: Contract
) -> tuple[list[Finding], list[str]]:
    """Returns the faults of the files that are there, and the names of those that are not."""
    faults: list[Finding] = []
    judges = {TOKENIZER_CONFIG: _judge_tokenizer_config, GENERATION_CONFIG: _judge_generation_config}
    for name, judge in judges.items():
        if name in names:
            try:
                document = read_json_object(folder / name, stage=STAGE, where=name, limit_bytes=_LIMIT_BYTES)
            except AdmissionError as error:
                faults.append(error.finding)
                continue
            faults += judge(document, contract)
    return faults, [name for name in judges if name not in names]


def _judge_tokenizer_config(document: dict[str, Any], contract: Contract) -> list[Finding]:
    vocabulary = contract.vocabulary
    spelled = {token.id: token.content for token in vocabulary.added_tokens}
    declared = document.get("added_tokens_decoder")
    found = declared if isinstance(declared, dict) else {}
    faults: list[Finding] = []
    for token in vocabulary.added_tokens:
        entry = found.get(str(token.id))
        seen = [entry.get("content"), entry.get("special")] if isinstance(entry, dict) else ["nothing"]
        if not same_json(seen, [token.content, token.special]):
            where = f"{TOKENIZER_CONFIG}: added_tokens_decoder.{token.id}"
            faults.append(Finding.of(ADDED, STAGE, where, expected=[token.content, token.special], got=seen))
    faults += [
        Finding.of(
            ADDED,
            STAGE,
            f"{TOKENIZER_CONFIG}: added_tokens_decoder.{key}",
            expected="no such token",
            got=value,
        )
        for key, value in found.items()
        if key not in set(map(str, spelled))
    ]
    facts: dict[str, Any] = {"model_max_length": vocabulary.model_max_length}
    if contract.admission is not None:
        facts["pretokenize_regex"] = contract.admission.tokenizer.pretokenize_regex
        facts["add_prefix_space"] = contract.admission.tokenizer.add_prefix_space
    faults += [
        Finding.of(DECLARED, STAGE, f"{TOKENIZER_CONFIG}: {field}", expected=expected, got=document[field])
        for field, expected in facts.items()
        if field in document and not same_json(document[field], expected)
    ]
    ids = vocabulary.tokenizer_ids
    for field, id_ in (("eos_token", ids.eos), ("pad_token", ids.pad), ("bos_token", ids.bos)):
        expected = spelled[id_] if id_ is not None else None
        got = document.get(field)
        text = got.get("content") if isinstance(got, dict) else got
        if text != expected:
            faults.append(
                Finding.of(DECLARED, STAGE, f"{TOKENIZER_CONFIG}: {field}", expected=expected, got=text)
            )
    return faults


def _judge_generation_config(document: dict[str, Any], contract: Contract) -> list[Finding]:
    vocabulary = contract.vocabulary
    stop = document.get("eos_token_id")
    found = sorted(stop) if isinstance(stop, list) and all(type(id_) is int for id_ in stop) else [stop]
    rows = [
        ("eos_token_id", sorted(vocabulary.stop_ids), found),
        ("bos_token_id", vocabulary.model_config_ids.bos, document.get("bos_token_id")),
        ("pad_token_id", vocabulary.model_config_ids.pad, document.get("pad_token_id")),
    ]
    return [
        Finding.of(DECLARED, STAGE, f"{GENERATION_CONFIG}: {field}", expected=expected, got=got)
        for field, expected, got in rows
        if not same_json(expected, got)
    ]
