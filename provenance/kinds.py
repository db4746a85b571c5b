"""The kinds of things that `assay validate` judges: how each is recognised, and who judges it.

A later kind is one row here. The first row whose detector fits decides, so that the more telling marks come first.
A judge is named as text and imported only when it is needed; it takes a path and the options and returns a judgement.
"""

import importlib
import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from assay.impl.stores.files import folder_names, open_regular, unreadable
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, Finding, usage_error
from assay.spec.judgement import Judgement, JudgeOptions

UNKNOWN: Final = declare(
    "input.kind", Authority.INPUT, "The kind of a path can be told from its name, its first bytes or its entries.",
    source="assay: input", cause="a file under an unusual name", fix="say it with --kind",
)  # fmt: skip

_EVIDENCE_NAME: Final = re.compile(r"^([0-9a-f]{64}\.json|run\.jsonl?)$")
HEAD_BYTES: Final = 1 << 16
_STAGE: Final = "input"


@dataclass(frozen=True, slots=True)
class Sniff:
    """What a look at a path shows: cheap, bounded, without parsing.

    Attributes:
        path: the path.
        names: entries of a folder, sorted; empty for a file.
        head: the first 64 KiB of a file; empty for a folder.
        is_folder: whether it is a folder.
    """

    path: Path
    names: tuple[str, ...]
    head: bytes
    is_folder: bool

    def has(self, name: str) -> bool:
        """Says whether the folder has an entry of this name."""
        return name in self.names

    def has_suffix(self, suffix: str) -> bool:
        """Says whether the folder has an entry whose name ends so."""
        return any(name.endswith(suffix) for name in self.names)

    def mentions(self, *keys: str) -> bool:
        """Says whether the head of a JSON file holds all of these as quoted text."""
        return self.head.lstrip()[:1] == b"{" and all(f'"{key}"'.encode() in self.head for key in keys)


class Judge(Protocol):
    """The function that judges a path of one kind."""

    def __call__(self, path: Path, options: JudgeOptions) -> Judgement:
        """Returns the judgement; input that can't be read may also be raised as an `AssayError`."""
        ...


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind.

    Attributes:
        name: the fixed word for `--kind`.
        title: what it is, for help and reports.
        judge: `module:function`.
        fits: whether a sniff shows this kind.
    """

    name: str
    title: str
    judge: str
    fits: Callable[[Sniff], bool]


KINDS: Final[tuple[Kind, ...]] = (
    Kind(
        "gguf",
        "GGUF file",
        "assay.impl.stores.artifact.judge:judge_gguf_path",
        lambda sniff: sniff.head[:4] == b"GGUF" or sniff.path.suffix == ".gguf",
    ),
    Kind(
        "expert-store",
        "ExpertMajor v2 store",
        "assay.impl.stores.store_files:judge_expert_file",
        lambda sniff: sniff.head[:8] == b"DS4EXPV2",
    ),
    Kind(
        "ple-store",
        "PLE row store",
        "assay.impl.stores.store_files:judge_ple_file",
        lambda sniff: sniff.head[:8] == b"DS4PLEV1",
    ),
    Kind(
        "trace",
        "trace of a streaming run",
        "assay.impl.runtime.trace_judge:judge_trace",
        lambda sniff: (
            sniff.head[:1] == b"{"
            and b'"schema":"assay.trace/' in sniff.head.split(b"\n", 1)[0].replace(b" ", b"")
        ),
    ),
    Kind(
        "evidence",
        "evidence folder, evidence record, run folder or run log",
        "assay.provenance.evidence.judge:judge_evidence",
        lambda sniff: (
            looks_like_evidence(sniff.names) if sniff.is_folder else looks_like_evidence((sniff.path.name,))
        ),
    ),
    Kind(
        "checkpoint",
        "checkpoint directory",
        "assay.impl.stores.checkpoint.judge:judge_checkpoint",
        lambda sniff: (
            sniff.is_folder
            and (
                sniff.has("config.json")
                or sniff.has_suffix(".safetensors")
                or sniff.has_suffix(".gguf")
                or sniff.has_suffix(".safetensors.index.json")
            )
        ),
    ),
    Kind(
        "tokenizer",
        "tokenizer directory or tokenizer.json",
        "assay.impl.text.identity:judge_tokenizer",
        lambda sniff: (
            sniff.path.name == "tokenizer.json"
            or sniff.has("tokenizer.json")
            or sniff.has("tokenizer_config.json")
            or (sniff.has("vocab.json") and sniff.has("merges.txt"))
            or sniff.mentions("added_tokens", "pre_tokenizer")
        ),
    ),
    Kind(
        "config",
        "config.json",
        "assay.impl.stores.checkpoint.single:judge_config_file",
        lambda sniff: sniff.path.name == "config.json" or sniff.mentions("model_type", "architectures"),
    ),
    Kind(
        "fixture",
        "shipped capture with provenance, or a set of them",
        "assay.impl.captures.fixtures:judge_fixture",
        lambda sniff: sniff.has("fixture.json") or sniff.has("index.tsv"),
    ),
    Kind(
        "capture",
        "arrays that one run of a model left behind",
        "assay.impl.captures.fixtures:judge_capture",
        lambda sniff: sniff.has("capture.json"),
    ),
    Kind(
        "index",
        "model.safetensors.index.json",
        "assay.impl.stores.checkpoint.single:judge_index_file",
        lambda sniff: sniff.path.name.endswith(".index.json") or sniff.mentions("weight_map"),
    ),
    Kind(
        "safetensors",
        "safetensors file or header set",
        "assay.impl.stores.checkpoint.single:judge_safetensors_file",
        lambda sniff: (
            sniff.path.suffix == ".safetensors"
            or (sniff.path.suffix == ".jsonl" and sniff.mentions("shard", "header"))
            or (sniff.head[8:9] == b"{" and sniff.head[5:8] == b"\0\0\0")
        ),
    ),
    Kind(
        "record",
        "decision record, or a folder of them",
        "assay.provenance.records:judge_records",
        lambda sniff: (
            any(name.startswith("ADR-") and name.endswith(".md") for name in sniff.names)
            or sniff.head.startswith(b"# ADR-")
            or (sniff.path.name.startswith("ADR-") and sniff.path.suffix == ".md")
        ),
    ),
)
"""All kinds, the more telling marks first."""


def looks_like_evidence(names: Iterable[str]) -> bool:
    """Says whether one of these names is that of an evidence record or of a run log."""
    return any(_EVIDENCE_NAME.match(name) for name in names)


def kind_names() -> list[str]:
    """Returns the words for `--kind`."""
    return list(dict.fromkeys(kind.name for kind in KINDS))


def sniff(path: Path) -> Sniff:
    """Looks at a path.

    Raises:
        AdmissionError: `input.file.*`.
    """
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError):
        is_folder = False  # opening it says why
    if is_folder:
        return Sniff(path, tuple(folder_names(path, stage=_STAGE)), b"", is_folder=True)
    with open_regular(path, stage=_STAGE) as file:
        try:
            head = file.read(HEAD_BYTES) or b""
        except OSError as error:
            raise unreadable(error, str(path), _STAGE) from error
        return Sniff(path, (), head, is_folder=False)


def judge_path(path: Path, options: JudgeOptions, kind: str | None = None) -> Judgement:
    """Judges one path as `kind`, or as what it looks like; never raises for bad input.

    Raises:
        UsageError: `usage.argument` for a kind that does not exist.
    """
    if kind is not None and kind not in kind_names():
        raise usage_error("--kind", expected=f"one of {', '.join(kind_names())}", got=kind)
    judged_as = kind or "unknown"
    try:
        seen = sniff(path)
        found = next((row for row in KINDS if (row.name == kind if kind else row.fits(seen))), None)
        if found is None:
            return _unknown(seen)
        judged_as = found.name
        judgement = load_judge(found)(path, options)
    except AdmissionError as error:
        return Judgement(judged_as, faults=[error.finding], is_private=options.is_private)
    judgement.is_private = judgement.is_private or options.is_private
    return judgement


def load_judge(kind: Kind) -> Judge:
    """Imports the judge of a kind."""
    module, name = kind.judge.split(":")
    judge: Any = getattr(importlib.import_module(module), name)
    return judge  # type: ignore[no-any-return]


def _unknown(seen: Sniff) -> Judgement:
    if seen.path.suffix == ".json" or seen.head.lstrip()[:1] in {b"{", b"["}:
        from assay.impl.stores.strict_json import read_json

        try:
            read_json(seen.path, stage=_STAGE, where=str(seen.path))
        except AdmissionError as error:  # what is no JSON is told as that, whatever it was meant to be
            return Judgement("unknown", faults=[error.finding])
    got = (
        f"a folder of {len(seen.names)} entries"
        if seen.is_folder
        else f"a file that starts with {seen.head[:8]!r}"
    )
    finding = Finding.of(
        UNKNOWN, _STAGE, str(seen.path), expected=f"one of {', '.join(kind_names())}", got=got,
        hint="say what it is with --kind",
    )  # fmt: skip
    if not seen.is_folder and not seen.head:
        from assay.impl.stores.files import EMPTY

        finding = Finding.of(EMPTY, _STAGE, str(seen.path), expected="at least one byte", got="0 bytes")
        return Judgement("unknown", faults=[finding])
    return Judgement("unknown", gaps=[finding])
