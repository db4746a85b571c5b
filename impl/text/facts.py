"""What a tokenizer's files say, read strictly: every setting that could change an id is a fact or a finding.

`tokenizer.json` is the authority. Where a checkpoint has none, `vocab.json`, `merges.txt` and
`tokenizer_config.json` say the same, except for the normalisation, which none of them declares.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from assay.impl.text.ids import shown_id
from assay.spec.clauses import Authority, declare
from assay.spec.contract.vocabulary import AddedToken
from assay.spec.errors import AdmissionError, Finding
from assay.spec.text import DeclaredIds

FORM = declare(
    "tokenizer.form",
    Authority.FORM,
    "A tokenizer file is well-formed and holds only settings whose meaning is known.",
    source="the public tokenizer file format, version 1.0",
    cause="a truncated file, another tokenizer class, or a setting that a conversion added",
)
NORMALIZER = declare(
    "tokenizer.normalizer",
    Authority.UPSTREAM,
    "Text is normalised to NFC before the pattern, and by nothing else.",
    source="field note AFN-007; the published tokenizer.json",
    cause="a tokenizer rebuilt by a convenience constructor, or converted without its normaliser",
    fix="take the normalizer from the published tokenizer.json",
)
PATTERN = declare(
    "tokenizer.pattern",
    Authority.UPSTREAM,
    "The pre-tokenizer expression is the published one, which counts combining marks as parts of a word.",
    source="field note AFN-007; the published tokenizer.json; mlx-vlm and surogate reports A2 and A3",
    cause="the expression of the older class, which lacks the mark category",
    fix="take the pattern from the published tokenizer.json",
)
PIPELINE = declare(
    "tokenizer.pipeline",
    Authority.UPSTREAM,
    "The stages are NFC, pattern, byte alphabet, merges; the pattern isolates its matches and nothing adds a space.",
    source="the published tokenizer.json",
    cause="an added prefix space, another split behaviour, or a post-processor that inserts tokens",
)
MODEL = declare(
    "tokenizer.model",
    Authority.UPSTREAM,
    "The model is byte-level BPE by rank without dropout, unknown token, prefixes, byte fallback or ignored merges.",
    source="the published tokenizer.json",
    cause="a converter's default for an option of the model",
)
BYTES = declare(
    "tokenizer.bytes",
    Authority.RULE,
    "The vocabulary has all 256 byte symbols and the result of every merge, so that encoding can't fail or drop text.",
    source="byte-level BPE",
    cause="a pruned vocabulary",
)
MAX_FILE_BYTES: Final = 64 << 20
MAX_ID: Final = (1 << 31) - 1
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_KEYS: Final = frozenset({
    "version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model",
})  # fmt: skip
_MODEL_KEYS: Final = frozenset({
    "type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback",
    "ignore_merges", "vocab", "merges",
})  # fmt: skip
_ADDED_KEYS: Final = frozenset({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"})
_NORMALIZER_KEYS: Final = {"NFC": frozenset({"type"}), "Sequence": frozenset({"type", "normalizers"})}
_SEQUENCE_KEYS: Final = frozenset({"type", "pretokenizers"})
_SPLIT_KEYS: Final = frozenset({"type", "pattern", "behavior", "invert"})
_BYTE_LEVEL_KEYS: Final = frozenset({"type", "add_prefix_space", "trim_offsets", "use_regex"})
ADDED_FLAGS: Final = ("single_word", "lstrip", "rstrip", "normalized")
FILES: Final = ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json", "chat_template.jinja")


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """The facts that decide every id.

    Attributes:
        source: the file that the facts were read from; `vocab.json` stands for the three files.
        normalizer: `NFC`, or what else was declared.
        pattern: the pre-tokenizer expression.
        vocabulary: token to id, without added tokens.
        merges: pairs by rank.
        added: added tokens by id.
        flags: for each added token the matching flags that are set (none may be).
    """

    source: Literal["tokenizer.json", "vocab.json"]
    normalizer: str
    pattern: str
    vocabulary: Mapping[str, int]
    merges: tuple[tuple[str, str], ...]
    added: tuple[AddedToken, ...]
    flags: Mapping[int, tuple[str, ...]]


def load_files(directory: Path) -> dict[str, bytes]:
    """Returns the tokenizer files of a directory by name; files that are absent are left out.

    Raises:
        AdmissionError: tokenizer.form, when a file is larger than any tokenizer file.
    """
    found: dict[str, bytes] = {}
    for name in FILES:
        path = directory / name
        if not path.is_file():
            continue
        found[name] = load_file(path)
    return found


def load_file(path: Path) -> bytes:
    """Returns the bytes of one tokenizer file.

    Raises:
        AdmissionError: tokenizer.form, when it is larger than any tokenizer file or can't be read.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise AdmissionError(
            finding(FORM, path.name, "a file that can be read", error.strerror or "an error")
        ) from None
    if len(data) > MAX_FILE_BYTES:
        raise AdmissionError(finding(FORM, path.name, f"at most {MAX_FILE_BYTES} bytes", "more"))
    return data


def read_facts(files: Mapping[str, bytes]) -> TokenizerFacts:
    """Returns the facts of the authority among the files.

    Raises:
        AdmissionError: the first finding that keeps an engine from being built.
    """
    findings: list[Finding] = []
    facts = (
        from_tokenizer_json(files["tokenizer.json"], findings)
        if "tokenizer.json" in files
        else from_vocabulary_files(files, findings)
    )
    if facts is None or findings:
        raise AdmissionError(findings[0])
    return facts


def from_tokenizer_json(data: bytes, findings: list[Finding]) -> TokenizerFacts | None:
    """Returns the facts of a `tokenizer.json`; what can't be read or is not allowed is added to `findings`."""
    name = "tokenizer.json"
    document = parsed(data, name, findings)
    if document is None:
        return None
    expect(findings, FORM, f"{name}:version", "1.0", document.get("version"))
    _known(findings, document, _KEYS, name)
    for key in ("truncation", "padding"):
        expect(findings, PIPELINE, f"{name}:{key}", None, document.get(key))
    normalizer = _normalizer(document.get("normalizer"), findings)
    split, byte_level = _pre_tokenizer(document.get("pre_tokenizer"), findings)
    pattern = _regex(split, findings)
    for key in ("post_processor", "decoder"):
        stage = document.get(key)
        if not (key == "post_processor" and stage is None):
            expect(findings, PIPELINE, f"{name}:{key}.type", "ByteLevel", _get(stage, "type"))
            _known(findings, stage, _BYTE_LEVEL_KEYS, f"{name}:{key}")
    if byte_level is not None:
        expect(
            findings,
            PIPELINE,
            f"{name}:pre_tokenizer.add_prefix_space",
            False,
            byte_level.get("add_prefix_space"),
        )
        expect(findings, PIPELINE, f"{name}:pre_tokenizer.use_regex", False, byte_level.get("use_regex"))
    model = document.get("model")
    if not isinstance(model, dict):
        findings.append(finding(FORM, f"{name}:model", "an object", type(model).__name__))
        return None
    for key, allowed in (
        ("type", ("BPE",)), ("dropout", (None,)), ("unk_token", (None,)), ("continuing_subword_prefix", (None, "")),
        ("end_of_word_suffix", (None, "")), ("fuse_unk", (False, None)), ("byte_fallback", (False, None)),
        ("ignore_merges", (False, None)),
    ):  # fmt: skip
        got = model.get(key)
        if not any(got is one or (isinstance(one, str) and got == one) for one in allowed):
            findings.append(finding(MODEL, f"{name}:model.{key}", allowed[0], got))
    _known(findings, model, _MODEL_KEYS, f"{name}:model")
    vocabulary = vocabulary_of(model.get("vocab"), f"{name}:model.vocab", findings)
    merges = merges_of(model.get("merges"), f"{name}:model.merges", findings)
    added, flags = _added(document.get("added_tokens"), name, findings)
    if vocabulary is None or merges is None or added is None or pattern is None:
        return None
    return TokenizerFacts("tokenizer.json", normalizer, pattern, vocabulary, merges, added, flags)


def from_vocabulary_files(files: Mapping[str, bytes], findings: list[Finding]) -> TokenizerFacts | None:
    """Returns the facts of `vocab.json`, `merges.txt` and `tokenizer_config.json`."""
    missing = [one for one in ("vocab.json", "merges.txt", "tokenizer_config.json") if one not in files]
    if missing:
        findings.append(finding(FORM, ", ".join(missing), "tokenizer.json, or these files", "absent"))
        return None
    document = parsed(files["vocab.json"], "vocab.json", findings)
    config = parsed(files["tokenizer_config.json"], "tokenizer_config.json", findings)
    merges = merges_of(merge_lines(files["merges.txt"], findings), "merges.txt", findings)
    if document is None or config is None or merges is None:
        return None
    vocabulary = vocabulary_of(document, "vocab.json", findings)
    pattern = config.get("pretokenize_regex")
    expect(
        findings, PIPELINE, "tokenizer_config.json:add_prefix_space", False, config.get("add_prefix_space")
    )
    added, flags = config_added(config, findings)
    if not isinstance(pattern, str):
        findings.append(finding(PATTERN, "tokenizer_config.json:pretokenize_regex", "an expression", pattern))
        return None
    if vocabulary is None or added is None:
        return None
    # No file of the three declares a normaliser; the contract's is taken, and the source says so.
    return TokenizerFacts("vocab.json", "NFC", pattern, vocabulary, merges, added, flags)


def config_added(
    config: Mapping[str, Any], findings: list[Finding]
) -> tuple[tuple[AddedToken, ...] | None, dict[int, tuple[str, ...]]]:
    """Returns the added tokens that a `tokenizer_config.json` declares, by id, and their flags."""
    table = config.get("added_tokens_decoder")
    if not isinstance(table, dict):
        findings.append(
            finding(FORM, "tokenizer_config.json:added_tokens_decoder", "an object", type(table).__name__)
        )
        return None, {}
    rows = []
    for key, row in table.items():
        if not key.isascii() or not key.isdigit() or not isinstance(row, dict):
            findings.append(
                finding(FORM, "tokenizer_config.json:added_tokens_decoder", "ids with objects", key)
            )
            return None, {}
        rows.append({"id": int(key), **row})
    return _added(sorted(rows, key=lambda row: row["id"]), "tokenizer_config.json", findings)


def declared_ids(config: Mapping[str, Any], added: tuple[AddedToken, ...]) -> DeclaredIds | None:
    """Returns the special ids that a `tokenizer_config.json` declares by spelling, None when one is unknown."""
    by_content = {token.content: token.id for token in added}

    def look(key: str) -> int | None:
        value = config.get(key)
        word = value.get("content") if isinstance(value, dict) else value
        return by_content.get(word) if isinstance(word, str) else None

    eos, pad = look("eos_token"), look("pad_token")
    if eos is None or pad is None:
        return None
    return DeclaredIds(bos=look("bos_token"), eos=eos, pad=pad)


def merge_lines(data: bytes, findings: list[Finding]) -> list[str] | None:
    """Returns the merge lines of a `merges.txt` without its optional version line."""
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        findings.append(finding(FORM, "merges.txt", "UTF-8", str(error)))
        return None
    if lines and lines[0].startswith("#version"):
        lines = lines[1:]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def merges_of(value: Any, where: str, findings: list[Finding]) -> tuple[tuple[str, str], ...] | None:
    """Returns merges written as pairs or as `left right`."""
    if value is None:
        return None
    if not isinstance(value, list):
        findings.append(finding(FORM, where, "a list of merges", type(value).__name__))
        return None
    out: list[tuple[str, str]] = []
    for rank, item in enumerate(value):
        pair = item.split(" ") if isinstance(item, str) else item
        if not (
            isinstance(pair, list) and len(pair) == 2 and all(isinstance(one, str) and one for one in pair)
        ):
            findings.append(finding(FORM, f"{where}[{rank}]", "two symbols", item))
            return None
        out.append((pair[0], pair[1]))
    return tuple(out)


def vocabulary_of(value: Any, where: str, findings: list[Finding]) -> dict[str, int] | None:
    """Returns the mapping from token to id; ids must be distinct and fill `[0, n)`."""
    if not isinstance(value, dict):
        findings.append(finding(FORM, where, "an object of tokens with ids", type(value).__name__))
        return None
    seen: set[int] = set()
    for token, id_ in value.items():
        if type(id_) is not int:
            findings.append(finding(FORM, f"{where}[{token!r}]", "a whole number", id_))
            return None
        if not 0 <= id_ < len(value) or id_ in seen:
            got = f"{shown_id(id_)} twice" if id_ in seen else shown_id(id_)
            findings.append(
                finding(FORM, f"{where}[{token!r}]", f"the ids 0 to {len(value) - 1}, each once", got)
            )
            return None
        seen.add(id_)
    return value


def parsed(data: bytes, where: str, findings: list[Finding]) -> dict[str, Any] | None:
    """Returns a JSON object without duplicate keys; anything else becomes a finding."""
    try:
        text = data.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_unique)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()  # an escape may spell half of a character
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        findings.append(finding(FORM, where, "JSON in UTF-8, each key once", str(error)))
        return None
    if not isinstance(value, dict):
        findings.append(finding(FORM, where, "an object", type(value).__name__))
        return None
    return value


def finding(code: str, where: str, expected: Any, got: Any, hint: str = "") -> Finding:
    """Makes a finding of the tokenizer stage."""
    return Finding.of(code, "tokenizer", where, expected=expected, got=got, hint=hint)


def expect(findings: list[Finding], code: str, where: str, expected: Any, got: Any) -> None:
    """Adds a finding unless `got` is `expected`, type included."""
    if type(got) is not type(expected) or got != expected:
        findings.append(finding(code, where, expected, got))


def _known(findings: list[Finding], value: Any, keys: frozenset[str], where: str) -> None:
    """Adds a finding for each setting whose meaning nobody declared; what is no object is told elsewhere."""
    if not isinstance(value, dict):
        return
    findings.extend(
        finding(FORM, f"{where}.{key}", f"one of {', '.join(sorted(keys))}", key)
        for key in sorted(set(value) - keys)
    )


def _normalizer(stage: Any, findings: list[Finding]) -> str:
    """Returns the kind of normalisation; a sequence of one is that one."""
    where = "tokenizer.json:normalizer"
    kind = _get(stage, "type")
    if kind in ("NFC", "Sequence"):  # the settings of another kind are told with the kind
        _known(findings, stage, _NORMALIZER_KEYS[kind], where)
    steps = _get(stage, "normalizers")
    if kind == "Sequence" and isinstance(steps, list):
        if len(steps) == 1:
            _known(findings, steps[0], _NORMALIZER_KEYS["NFC"], f"{where}[0]")
            return str(_get(steps[0], "type"))
        return f"Sequence of {', '.join(str(_get(step, 'type')) for step in steps) or 'nothing'}"
    return "none" if stage is None else str(kind)


def _pre_tokenizer(
    stage: Any, findings: list[Finding]
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    steps = _get(stage, "pretokenizers")
    kinds = [_get(step, "type") for step in steps] if isinstance(steps, list) else None
    if _get(stage, "type") != "Sequence" or kinds != ["Split", "ByteLevel"]:
        findings.append(
            finding(
                PIPELINE, "tokenizer.json:pre_tokenizer", "Sequence of Split and ByteLevel", kinds or stage
            )
        )
        return None, None
    where = "tokenizer.json:pre_tokenizer"
    _known(findings, stage, _SEQUENCE_KEYS, where)
    for number, (step, keys) in enumerate(zip(steps, (_SPLIT_KEYS, _BYTE_LEVEL_KEYS), strict=True)):
        _known(findings, step, keys, f"{where}[{number}]")
    return steps[0], steps[1]


def _regex(split: dict[str, Any] | None, findings: list[Finding]) -> str | None:
    if split is None:
        return None
    where = "tokenizer.json:pre_tokenizer.split"
    expect(findings, PIPELINE, f"{where}.behavior", "Isolated", split.get("behavior"))
    expect(findings, PIPELINE, f"{where}.invert", False, split.get("invert"))
    pattern = _get(split.get("pattern"), "Regex")
    if not isinstance(pattern, str) or len(split["pattern"]) != 1:
        findings.append(finding(PATTERN, f"{where}.pattern", "a regular expression", split.get("pattern")))
        return None
    return pattern


def _added(
    rows: Any, name: str, findings: list[Finding]
) -> tuple[tuple[AddedToken, ...] | None, dict[int, tuple[str, ...]]]:
    where = f"{name}:added_tokens"
    if not isinstance(rows, list):
        findings.append(finding(FORM, where, "a list", type(rows).__name__))
        return None, {}
    added, flags = [], {}
    for index, row in enumerate(rows):
        id_, content, special = (_get(row, key) for key in ("id", "content", "special"))
        if (
            type(id_) is not int
            or not 0 <= id_ <= MAX_ID
            or not isinstance(content, str)
            or not content
            or type(special) is not bool
        ):
            findings.append(finding(FORM, f"{where}[{index}]", "id, content and special", row))
            return None, {}
        _known(findings, row, _ADDED_KEYS, f"{where}[{index}]")
        added.append(AddedToken(id=id_, content=content, special=special))
        flags[id_] = tuple(flag for flag in ADDED_FLAGS if row.get(flag) is not False)
    return tuple(added), flags


def _get(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {double!r} stands twice")
    return out
