"""Is this the profile's tokenizer? Bytes decide, except for `tokenizer.json`, which is judged by meaning.

A re-saved `tokenizer.json` has other bytes and may have every fact: then nothing wrong was found and the published
file was not seen, which is inconclusive. A changed fact is a rejection and is named, and so is what stayed equal.
"""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from assay.impl.text.facts import (
    FILES,
    NORMALIZER,
    PATTERN,
    TokenizerFacts,
    config_added,
    declared_ids,
    finding,
    from_tokenizer_json,
    load_file,
    load_files,
    merge_lines,
    merges_of,
    parsed,
    vocabulary_of,
)
from assay.spec.canonical import canonical_digest
from assay.spec.clauses import Authority, declare
from assay.spec.contract.vocabulary import AddedToken
from assay.spec.errors import AdmissionError, Finding
from assay.spec.judgement import Judgement, JudgeOptions
from assay.spec.text import TextContract, text_contract

_SOURCE: Final = "field notes AFN-007 and AFN-008; the published files of the pinned revision"
DIGEST = declare(
    "tokenizer.file.digest",
    Authority.PIN,
    "Every tokenizer file but tokenizer.json has the published bytes.",
    source=_SOURCE,
    cause="another revision, or a file that was edited or written again",
    fix="take the file from the pinned revision",
)
TEMPLATE = declare(
    "tokenizer.template.digest",
    Authority.PIN,
    "The chat template has the published bytes: every byte of it can become a byte of a prompt.",
    source=_SOURCE,
    cause="a template that a conversion or a runtime repaired",
    fix="take chat_template.jinja from the pinned revision",
)
RESAVED = declare(
    "tokenizer.file.resaved",
    Authority.PIN,
    "tokenizer.json has the published digest; with another one its meaning is compared instead.",
    source=_SOURCE,
    cause="a library loaded and saved the file; nothing that was compared differs",
    fix="take tokenizer.json from the pinned revision to make the judgement conclusive",
)
MISSING = declare(
    "tokenizer.file.missing",
    Authority.INPUT,
    "The files that decide ids and prompts are there.",
    source=_SOURCE,
    cause="only a part of the tokenizer was copied",
)
CONTENT = declare(
    "tokenizer.added.content", Authority.UPSTREAM, "Each added token has its published spelling.", source=_SOURCE,
    cause="a renamed or foreign control token",
)  # fmt: skip
ADDED_ID = declare(
    "tokenizer.added.id", Authority.UPSTREAM, "Each added token has its published id.", source=_SOURCE,
    cause="tokens were added in another order",
)  # fmt: skip
FLAG = declare(
    "tokenizer.added.flag", Authority.UPSTREAM,
    "Each added token has its published special flag, and none matches loosely.", source=_SOURCE,
    cause="a conversion promoted every added token to special, or set a strip flag",
)  # fmt: skip
COUNT = declare(
    "tokenizer.added.count", Authority.UPSTREAM, "There are exactly the published added tokens.", source=_SOURCE,
    cause="a token added for fine-tuning",
)  # fmt: skip
VOCABULARY = declare(
    "tokenizer.vocabulary", Authority.UPSTREAM, "Tokens and ids of the base vocabulary are the published ones.",
    source=_SOURCE, cause="a pruned or reordered vocabulary",
)  # fmt: skip
MERGES = declare(
    "tokenizer.merges", Authority.UPSTREAM, "The merges are the published ones in the published order.",
    source=_SOURCE, cause="merges sorted or filtered by a tool: the rank is the position",
)  # fmt: skip
DECLARED = declare(
    "tokenizer.declared", Authority.UPSTREAM, "The configuration declares the published special ids.",
    source=_SOURCE, cause="a base model's end of text put in place of the chat's",
)  # fmt: skip


def judge_tokenizer(path: Path, options: JudgeOptions) -> Judgement:
    """Judges a directory of tokenizer files, or one `tokenizer.json`, against the profile.

    Args:
        path: the directory or file.
        options: the private seam chooses the miniature's contract.
    """
    contract = text_contract("miniature" if options.is_private else "qwen4exp")
    judgement = Judgement("tokenizer", is_private=options.is_private)
    try:
        files = load_files(path) if path.is_dir() else {"tokenizer.json": load_file(path)}
    except AdmissionError as error:
        judgement.judged("files", [error.finding])
        return judgement
    return judge_files(files, contract, judgement, asked=FILES if path.is_dir() else tuple(files))


def judge_files(
    files: Mapping[str, bytes],
    contract: TextContract,
    judgement: Judgement | None = None,
    *,
    asked: tuple[str, ...] = FILES,
) -> Judgement:
    """Judges tokenizer files by name; every file is judged whatever another one came to.

    Returns:
        The judgement; `facts` holds the digests, the fields that are equal and those that differ.
    """
    out = judgement if judgement is not None else Judgement("tokenizer")
    equal: list[str] = []
    judges: dict[str, Callable[[bytes], list[Finding]]] = {
        "tokenizer.json": lambda data: _tokenizer_json(data, contract, files, equal),
        "tokenizer_config.json": lambda data: _config(data, contract, equal),
        "vocab.json": lambda data: _vocab_json(data, contract, equal),
        "merges.txt": lambda data: _merges_txt(data, contract, equal),
        "chat_template.jinja": lambda _: [],
    }
    digests: dict[str, str] = {}
    for name in FILES:
        if name not in files:
            if name in asked:
                _absent(name, files, out)
            else:
                out.not_checked.append(f"{name}: one file was asked for")
            continue
        digests[name] = hashlib.sha256(files[name]).hexdigest()
        pin = contract.pin(name)
        expected = pin.sha256 if pin is not None else "no such file"
        meaning = judges[name](files[name])
        if digests[name] == expected:
            equal.append(f"{name}: digest")
            out.judged(name, meaning)
        elif name == "tokenizer.json":
            resaved = [finding(RESAVED, name, expected, digests[name])]
            out.judged(name, meaning, [] if meaning else resaved)
        else:
            code = TEMPLATE if name == "chat_template.jinja" else DIGEST
            out.judged(name, [*meaning, finding(code, name, expected, digests[name])])
    out.facts |= {
        "profile": contract.profile,
        "authority": "tokenizer.json"
        if "tokenizer.json" in files
        else "vocab.json, merges.txt, tokenizer_config.json",
        "convenienceConstructorAuthoritative": False,
        "digests": digests,
        "equal": equal,
        "differs": sorted({f"{one.where}: {one.code}" for one in out.faults}),
    }
    return out


def judge_meaning(
    data: bytes, contract: TextContract, files: Mapping[str, bytes]
) -> tuple[list[Finding], list[str]]:
    """Judges a `tokenizer.json` by what it means, whatever its bytes.

    Args:
        data: the file.
        contract: the profile's.
        files: other tokenizer files by name; the published ones among them help to say where something differs.

    Returns:
        What differs, and what is equal.
    """
    equal: list[str] = []
    return _tokenizer_json(data, contract, files, equal), equal


def compare_facts(facts: TokenizerFacts, contract: TextContract, equal: list[str]) -> list[Finding]:
    """Returns where the facts of a tokenizer differ from the contract; what is equal is added to `equal`."""
    name = facts.source
    findings: list[Finding] = []
    _same(findings, equal, NORMALIZER, f"{name}: normalizer", contract.normalizer, facts.normalizer)
    _same(findings, equal, PATTERN, f"{name}: pattern", contract.pattern, facts.pattern)
    _added(findings, equal, name, contract, facts.added, facts.flags)
    vocabulary, merges = dict(facts.vocabulary), [list(pair) for pair in facts.merges]
    _same(
        findings,
        equal,
        VOCABULARY,
        f"{name}: vocabulary",
        contract.vocabulary_sha256,
        canonical_digest(vocabulary),
    )
    _same(findings, equal, MERGES, f"{name}: merges", contract.merges_sha256, canonical_digest(merges))
    return findings


def _absent(name: str, files: Mapping[str, bytes], out: Judgement) -> None:
    if name in {"vocab.json", "merges.txt"} and "tokenizer.json" in files:
        out.not_checked.append(f"{name}: absent; tokenizer.json holds the same facts")
        return
    hint = "without it the normalisation is declared by no file" if name == "tokenizer.json" else ""
    out.judged(name, gaps=[finding(MISSING, name, "the file", "absent", hint)])


def _tokenizer_json(
    data: bytes, contract: TextContract, files: Mapping[str, bytes], equal: list[str]
) -> list[Finding]:
    findings: list[Finding] = []
    facts = from_tokenizer_json(data, findings)
    if facts is None:
        return findings
    if not findings:
        equal.append("tokenizer.json: stages and model options")
    found = compare_facts(facts, contract, equal)
    return findings + [_located(one, facts, contract, files) for one in found]


def _located(
    one: Finding, facts: TokenizerFacts, contract: TextContract, files: Mapping[str, bytes]
) -> Finding:
    """Says where vocabulary or merges differ, if the directory has the published files to compare with."""
    name = {VOCABULARY: "vocab.json", MERGES: "merges.txt"}.get(one.code)
    pin = contract.pin(name) if name is not None else None
    if (
        name is None
        or pin is None
        or name not in files
        or hashlib.sha256(files[name]).hexdigest() != pin.sha256
    ):
        return one
    if name == "merges.txt":
        wanted = merges_of(merge_lines(files[name], []), name, []) or ()
        rank = _first_difference(wanted, facts.merges)
        kind = "the same pairs in another order" if sorted(wanted) == sorted(facts.merges) else "other pairs"
        return finding(
            MERGES, f"{one.where}[{rank}]", wanted[rank : rank + 1], facts.merges[rank : rank + 1], kind
        )
    published = vocabulary_of(parsed(files[name], name, []), name, []) or {}
    token = next(
        (key for key in {**published, **facts.vocabulary} if published.get(key) != facts.vocabulary.get(key)),
        "",
    )
    return finding(VOCABULARY, f"{one.where}[{token!r}]", published.get(token), facts.vocabulary.get(token))


def _config(data: bytes, contract: TextContract, equal: list[str]) -> list[Finding]:
    name = "tokenizer_config.json"
    findings: list[Finding] = []
    config = parsed(data, name, findings)
    if config is None:
        return findings
    _same(findings, equal, PATTERN, f"{name}: pattern", contract.pattern, config.get("pretokenize_regex"))
    added, flags = config_added(config, findings)
    if added is None:
        return findings
    _added(findings, equal, name, contract, added, flags)
    declared = declared_ids(config, added)
    _same(
        findings, equal, DECLARED, f"{name}: special ids", contract.declared.model_dump(),
        None if declared is None else declared.model_dump(),
    )  # fmt: skip
    return findings


def _vocab_json(data: bytes, contract: TextContract, equal: list[str]) -> list[Finding]:
    findings: list[Finding] = []
    vocabulary = vocabulary_of(parsed(data, "vocab.json", findings), "vocab.json", findings)
    if vocabulary is not None:
        got = canonical_digest(vocabulary)
        _same(findings, equal, VOCABULARY, "vocab.json: vocabulary", contract.vocabulary_sha256, got)
    return findings


def _merges_txt(data: bytes, contract: TextContract, equal: list[str]) -> list[Finding]:
    findings: list[Finding] = []
    merges = merges_of(merge_lines(data, findings), "merges.txt", findings)
    if merges is not None:
        got = canonical_digest([list(pair) for pair in merges])
        _same(findings, equal, MERGES, "merges.txt: merges", contract.merges_sha256, got)
    return findings


def _added(
    findings: list[Finding],
    equal: list[str],
    name: str,
    contract: TextContract,
    added: tuple[AddedToken, ...],
    flags: Mapping[int, tuple[str, ...]],
) -> None:
    before = len(findings)
    if len(added) != len(contract.added):
        findings.append(finding(COUNT, f"{name}: added tokens", len(contract.added), len(added)))
    by_id = {token.id: token for token in added}
    by_content = {token.content: token for token in added}
    for token in contract.added:
        where = f"{name}: added token {token.id}"
        got = by_id.get(token.id)
        elsewhere = by_content.get(token.content)
        if got is None or got.content != token.content:
            if elsewhere is not None:
                findings.append(finding(ADDED_ID, f"{where} {token.content}", token.id, elsewhere.id))
            else:
                findings.append(finding(CONTENT, where, token.content, got.content if got else "nothing"))
            continue
        if got.special is not token.special:
            findings.append(finding(FLAG, f"{where} special", token.special, got.special))
        if flags.get(token.id):
            findings.append(finding(FLAG, f"{where} matching", "no flag set", ", ".join(flags[token.id])))
    if len(findings) == before:
        equal.append(f"{name}: added tokens")


def _same(findings: list[Finding], equal: list[str], code: str, where: str, expected: Any, got: Any) -> None:
    if got == expected:
        equal.append(where)
    else:
        findings.append(finding(code, where, expected, got))


def _first_difference(wanted: tuple[Any, ...], got: tuple[Any, ...]) -> int:
    pairs = zip(wanted, got, strict=False)
    return next((rank for rank, (one, two) in enumerate(pairs) if one != two), min(len(wanted), len(got)))
