"""The battery `text`: one mistake at a time in the miniature's tokenizer files and in a prompt's segments.

Every mutated `tokenizer.json` is written again, so that its digest never decides: the fact itself must be caught.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from assay.impl.text import identity, segments
from assay.impl.text.facts import FORM, MODEL, NORMALIZER, PATTERN, PIPELINE
from assay.impl.text.identity import judge_files
from assay.impl.text.miniature import tokenizer_files
from assay.impl.text.segments import Segment, check_segments
from assay.mutations.battery import Battery, BatteryContext, InvalidMutationError, Mutation
from assay.spec.errors import ContractError, Finding
from assay.spec.text import OLDER_PATTERN, text_contract

Change = Callable[[Any], None]
_STREAM: Final = b"<|im_start|>user\nhi<|im_end|>"
_SEGMENTS: Final = (Segment(1, 0, 12), Segment(0, 12, 7), Segment(1, 19, 10))


def _set(*path: Any, to: Any) -> Change:
    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = to

    return change


def _swap(*path: Any, first: Any, second: Any) -> Change:
    def change(document: Any) -> None:
        for key in path:
            document = document[key]
        document[first], document[second] = document[second], document[first]

    return change


def _drop(*path: Any) -> Change:
    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        del document[path[-1]]

    return change


_SPLIT: Final = ("pre_tokenizer", "pretokenizers", 0)
_BYTES: Final = ("pre_tokenizer", "pretokenizers", 1)
_NEW: Final = {
    "id": 353, "content": "<|mine|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
    "special": True,
}  # fmt: skip

# id, field, change in words, change, clause, place
_TOKENIZER: Final[tuple[tuple[str, str, Change, str, str], ...]] = (
    ("pattern-without-marks", "pattern", _set(*_SPLIT, "pattern", "Regex", to=OLDER_PATTERN), PATTERN, "pattern"),
    ("pattern-as-string", "pattern", _set(*_SPLIT, "pattern", to={"String": " "}), PATTERN, "pattern"),
    ("normalizer-none", "normalizer", _set("normalizer", to=None), NORMALIZER, "normalizer"),
    ("normalizer-nfkc", "normalizer", _set("normalizer", "type", to="NFKC"), NORMALIZER, "normalizer"),
    ("split-removed", "stages", _set(*_SPLIT, "behavior", to="Removed"), PIPELINE, "behavior"),
    ("split-inverted", "stages", _set(*_SPLIT, "invert", to=True), PIPELINE, "invert"),
    ("stage-dropped", "stages", _drop(*_SPLIT), PIPELINE, "pre_tokenizer"),
    ("prefix-space", "stages", _set(*_BYTES, "add_prefix_space", to=True), PIPELINE, "add_prefix_space"),
    ("second-pattern", "stages", _set(*_BYTES, "use_regex", to=True), PIPELINE, "use_regex"),
    ("post-processor", "stages", _set("post_processor", to={"type": "TemplateProcessing"}), PIPELINE, "post_processor"),
    ("decoder", "stages", _set("decoder", to={"type": "Metaspace"}), PIPELINE, "decoder"),
    ("truncation", "stages", _set("truncation", to={"max_length": 8}), PIPELINE, "truncation"),
    ("model-type", "model", _set("model", "type", to="WordPiece"), MODEL, "model.type"),
    ("dropout", "model", _set("model", "dropout", to=0.1), MODEL, "dropout"),
    ("unknown-token", "model", _set("model", "unk_token", to="<|endoftext|>"), MODEL, "unk_token"),
    ("byte-fallback", "model", _set("model", "byte_fallback", to=True), MODEL, "byte_fallback"),
    ("ignore-merges", "model", _set("model", "ignore_merges", to=True), MODEL, "ignore_merges"),
    ("word-suffix", "model", _set("model", "end_of_word_suffix", to="</w>"), MODEL, "end_of_word_suffix"),
    ("merges-order", "merges", _swap("model", "merges", first=4, second=7), identity.MERGES, "merges[4]"),
    ("merge-dropped", "merges", _drop("model", "merges", 63), identity.MERGES, "merges[63]"),
    ("merge-form", "merges", _set("model", "merges", 3, to="one"), FORM, "merges[3]"),
    ("vocabulary-swap", "vocabulary", _swap("model", "vocab", first="a", second="b"), identity.VOCABULARY, "'a'"),
    ("vocabulary-gap", "vocabulary", _set("model", "vocab", "a", to=900), FORM, "vocab"),
    ("added-content", "added tokens", _set("added_tokens", 1, "content", to="<|im_begin|>"), identity.CONTENT, "321"),
    ("added-special", "added tokens", _set("added_tokens", 24, "special", to=True), identity.FLAG, "344 special"),
    ("added-plain", "added tokens", _set("added_tokens", 2, "special", to=False), identity.FLAG, "322 special"),
    ("added-strips", "added tokens", _set("added_tokens", 2, "lstrip", to=True), identity.FLAG, "322 matching"),
    ("added-normalized", "added tokens", _set("added_tokens", 2, "normalized", to=True), identity.FLAG, "322 matching"),
    ("added-dropped", "added tokens", _drop("added_tokens", 32), identity.COUNT, "added tokens"),
    ("added-one-more", "added tokens", lambda one: one["added_tokens"].append(_NEW), identity.COUNT, "added tokens"),
    ("added-id", "added tokens", _set("added_tokens", 32, "id", to=360), identity.ADDED_ID, "352"),
    ("added-double", "added tokens", _set("added_tokens", 5, "content", to="<|im_end|>"), identity.CONTENT, "325"),
)  # fmt: skip
_CONFIG: Final[tuple[tuple[str, str, Change, str, str], ...]] = (
    ("config-pattern", "pattern", _set("pretokenize_regex", to=OLDER_PATTERN), PATTERN, "config.json: pattern"),
    ("config-eos", "special ids", _set("eos_token", to="<|endoftext|>"), identity.DECLARED, "special ids"),
    ("config-pad", "special ids", _set("pad_token", to="<|im_end|>"), identity.DECLARED, "special ids"),
    ("config-bos", "special ids", _set("bos_token", to="<|im_start|>"), identity.DECLARED, "special ids"),
    (
        "config-content", "added tokens", _set("added_tokens_decoder", "322", "content", to="<|end|>"),
        identity.CONTENT, "322",
    ),
    (
        "config-special", "added tokens", _set("added_tokens_decoder", "345", "special", to=True),
        identity.FLAG, "345 special",
    ),
    ("config-dropped", "added tokens", _drop("added_tokens_decoder", "352"), identity.COUNT, "added tokens"),
    ("config-length", "other keys", _set("model_max_length", to=8192), identity.DIGEST, "tokenizer_config.json"),
)  # fmt: skip
_BYTE_EDITS: Final[tuple[tuple[str, str, bytes, bytes, str], ...]] = (
    ("template-effort", "chat_template.jinja", b"default('xhigh')", b"default('medium')", identity.TEMPLATE),
    ("template-trim", "chat_template.jinja", b").strip() -%}", b") -%}", identity.TEMPLATE),
    ("template-opener", "chat_template.jinja", b"'<|im_start|>user'", b"'<|im_start|>tool'", identity.TEMPLATE),
    ("template-space", "chat_template.jinja", b"-%}\n", b"-%}\n\n", identity.TEMPLATE),
    ("merges-line", "merges.txt", b"h e\n", b"e h\n", identity.MERGES),
    ("merges-version-line", "merges.txt", b"\xc4\xa0 \xc4\xa0\n", b"#version: 1\n\xc4\xa0 \xc4\xa0\n", identity.DIGEST),
    ("vocab-id", "vocab.json", b'"a": 64', b'"a": 65', FORM),
)  # fmt: skip
_SEGMENT_EDITS: Final[tuple[tuple[str, tuple[Segment, ...], str, str], ...]] = (
    (
        "offset",
        (Segment(1, 0, 12), Segment(0, 13, 7), Segment(1, 19, 10)),
        segments.SEGMENTS,
        "segments[1].offset",
    ),
    (
        "empty",
        (Segment(1, 0, 12), Segment(0, 12, 0), Segment(1, 12, 17)),
        segments.SEGMENTS,
        "segments[1].length",
    ),
    ("too-long", (Segment(1, 0, 12), Segment(0, 12, 70)), segments.SEGMENTS, "segments[1].length"),
    ("cut-short", (Segment(1, 0, 12), Segment(0, 12, 7)), segments.SEGMENTS, "segments"),
    ("none", (), segments.SEGMENTS, "segments"),
    ("kind", (Segment(1, 0, 12), Segment(2, 12, 7), Segment(1, 19, 10)), segments.KIND, "segments[1].kind"),
)


def _mutations(_: BatteryContext) -> list[Mutation]:
    out = [
        Mutation(
            f"{name}.{id_}", name, f"{name}: {field}", id_.replace("-", " "), (code,), where, payload=index
        )
        for name, rows in (("tokenizer.json", _TOKENIZER), ("tokenizer_config.json", _CONFIG))
        for index, (id_, field, _, code, where) in enumerate(rows)
    ]
    out += [
        Mutation(id_, name, name, id_.replace("-", " "), (code,), name, payload=index)
        for index, (id_, name, _, _, code) in enumerate(_BYTE_EDITS)
    ]
    out += [
        Mutation(
            f"segments.{id_}", "segments", "segments", id_.replace("-", " "), (code,), where, payload=index
        )
        for index, (id_, _, code, where) in enumerate(_SEGMENT_EDITS)
    ]
    return out


def _judge(mutation: Mutation, _: BatteryContext) -> list[Finding]:
    if mutation.area == "segments":
        return _segment_findings(_SEGMENT_EDITS[mutation.payload][1])
    files = tokenizer_files()
    tables = {"tokenizer.json": _TOKENIZER, "tokenizer_config.json": _CONFIG}
    if mutation.area in tables:
        document = json.loads(files[mutation.area])
        tables[mutation.area][mutation.payload][2](document)
        changed = json.dumps(document, ensure_ascii=False).encode()
        if document == json.loads(files[mutation.area]):
            raise InvalidMutationError(mutation.id)
        files[mutation.area] = changed
    else:
        _, name, old, new, _ = _BYTE_EDITS[mutation.payload]
        if old not in files[name]:
            raise InvalidMutationError(mutation.id)
        files[name] = files[name].replace(old, new, 1)
    return judge_files(files, text_contract("miniature")).faults


def _control(_: BatteryContext) -> list[Finding]:
    """Judges the files as they are, and with `tokenizer.json` saved again, which changes no fact."""
    files = tokenizer_files()
    resaved = {**files, "tokenizer.json": json.dumps(json.loads(files["tokenizer.json"])).encode()}
    contract = text_contract("miniature")
    return [
        *judge_files(files, contract).findings,
        *judge_files(resaved, contract).faults,
        *_segment_findings(_SEGMENTS),
    ]


def _forced(context: BatteryContext) -> Mutation:
    return _mutations(context)[0]


def _segment_findings(found: tuple[Segment, ...]) -> list[Finding]:
    try:
        check_segments(_STREAM, found)
    except ContractError as error:
        return [error.finding]
    return []


BATTERY: Final = Battery(
    name="text",
    title="Every fact of the tokenizer, the template and a prompt's segments is guarded by a clause of its own.",
    mutations=_mutations,
    judge=_judge,
    control=_control,
    forced=_forced,
)
