"""Stages that compare metadata: identity, physical profile, metadata, tokenizer and policy.

Types are closed: the same number in another type is another entry, and floats are compared by their bits.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from assay.impl.stores.artifact.descriptor import PHYSICAL_KEY, ArtifactDescriptor
from assay.impl.stores.gguf.reader import Gguf
from assay.impl.stores.gguf.values import Value
from assay.spec.clauses import Authority, declare
from assay.spec.errors import Finding

_SOURCE = "field note AFN-004; the artifact's metadata"


def _clause(name: str, meaning: str, cause: str, authority: Authority = Authority.PIN, fix: str = "") -> str:
    return declare(f"artifact.{name}", authority, meaning, source=_SOURCE, cause=cause, fix=fix)


UNIQUE: Final = _clause(
    "metadata.unique", "Every metadata key stands once.", "an editor that appended a key", Authority.RULE
)
PRESENT: Final = _clause(
    "metadata.present", "Every entry of the closed set is there.", "a writer that leaves out defaults"
)
TYPE: Final = _clause(
    "metadata.type", "An entry has exactly its type; a value that prints the same doesn't excuse another type.",
    "a metadata tool that rewrote integers in a type of its own",
)  # fmt: skip
VALUE: Final = _clause(
    "metadata.value", "An entry has exactly its value; floats are compared by their bits.",
    "another revision, another size of the model, or an edited file",
)  # fmt: skip
COUNT: Final = _clause(
    "metadata.count", "The number of entries is that of the closed set.", "entries added or lost"
)
CLOSED: Final = _clause(
    "metadata.closed", "No entry stands outside the closed set.",
    "a converter that adds keys of its own, such as tokenizer tables",
)  # fmt: skip
ABSENT: Final = _clause(
    "metadata.absent", "Keys that the profile lacks stay absent: a default that is written out reads as a choice.",
    "a converter that fills nulls",
)  # fmt: skip
PHYSICAL: Final = declare(
    "artifact.physical-profile",
    Authority.PROCESS,
    "The physical profile is one that this build knows. No production profile exists, so that the public route knows none.",
    source="field notes AFN-004 and AFN-013",
    cause="a structural fixture, or a private artifact, on the public route",
    fix="--private admits fixtures and private artifacts, and stamps the result `seam: private`",
)

_SHOWN_EXTRA: Final = 32


def judge_identity(gguf: Gguf, descriptor: ArtifactDescriptor) -> list[Finding]:
    """Returns repeated keys, then every entry of the identity that differs."""
    repeated = [
        Finding.of(UNIQUE, "identity", key, expected="one entry", got=f"{count} entries")
        for key, count in Counter(entry.key for entry in gguf.entries).items()
        if count > 1
    ]
    return repeated + list(compare_entries(gguf, descriptor, "identity"))


def judge_physical_profile(gguf: Gguf, known: tuple[str, ...]) -> list[Finding]:
    """Returns a finding unless the physical profile is one of the known ones."""
    value = gguf.value(PHYSICAL_KEY)
    got = value.shown() if value is not None else "nothing"
    text = _text(value)
    if text is not None and text in known:
        return []
    expected = " or ".join(known) if known else "a production profile; none is compiled in"
    hint = "" if known else "structural fixtures and private artifacts need --private"
    return [Finding.of(PHYSICAL, "physical_profile", PHYSICAL_KEY, expected=expected, got=got, hint=hint)]


def judge_metadata(gguf: Gguf, descriptor: ArtifactDescriptor) -> list[Finding]:
    """Returns what is wrong with the closed set: its number, absent keys, values, and keys outside it."""
    stage = "metadata"
    findings = []
    if len(gguf.entries) != len(descriptor.entries):
        findings.append(
            Finding.of(
                COUNT,
                stage,
                "metadata entry count",
                expected=len(descriptor.entries),
                got=len(gguf.entries),
            )
        )
    present = {entry.key: entry.value for entry in gguf.entries}
    findings += [
        Finding.of(ABSENT, stage, key, expected="no such entry", got=present[key].shown())
        for key in descriptor.absent
        if key in present
    ]
    findings += compare_entries(gguf, descriptor, stage)
    extra = [key for key in present if key not in descriptor.entries and key not in descriptor.absent]
    findings += [
        Finding.of(CLOSED, stage, key, expected="no such entry", got=present[key].shown())
        for key in extra[:_SHOWN_EXTRA]
    ]
    if len(extra) > _SHOWN_EXTRA:
        more = f"{len(extra) - _SHOWN_EXTRA} more"
        findings.append(Finding.of(CLOSED, stage, "metadata", expected="no other entry", got=more))
    return findings


def compare_entries(gguf: Gguf, descriptor: ArtifactDescriptor, stage: str) -> Iterator[Finding]:
    """Yields each entry of a stage that is missing, of another type, or of another value."""
    present: dict[str, Value] = {}
    for entry in gguf.entries:
        present.setdefault(entry.key, entry.value)
    yield from compare_values(present, descriptor.entries_of(stage), stage)


def compare_values(
    present: Mapping[str, Value], expected: Mapping[str, Value], stage: str
) -> Iterator[Finding]:
    """Yields each expected entry that is missing, of another type, or of another value."""
    for key, wanted in expected.items():
        got = present.get(key)
        if got is None:
            yield Finding.of(PRESENT, stage, key, expected=wanted.shown(), got="nothing")
        elif (got.type, got.element, got.count) != (wanted.type, wanted.element, wanted.count):
            yield Finding.of(TYPE, stage, key, expected=wanted.shown(), got=got.shown())
        elif got.data != wanted.data:
            yield _value_finding(stage, key, wanted, got)


def _value_finding(stage: str, key: str, wanted: Value, got: Value) -> Finding:
    """Returns the finding of a value; of an array, the first element that differs."""
    if wanted.element is None:
        return Finding.of(VALUE, stage, key, expected=wanted.shown(), got=got.shown())
    try:
        one, other = wanted.python(), got.python()
    except ValueError:
        return Finding.of(VALUE, stage, key, expected=wanted.shown(), got=got.shown())
    if not isinstance(one, list) or not isinstance(other, list):
        return Finding.of(VALUE, stage, key, expected=wanted.shown(), got=got.shown())
    pairs = enumerate(zip(one, other, strict=True))
    index, (left, right) = next((place, pair) for place, pair in pairs if pair[0] != pair[1])
    return Finding.of(VALUE, stage, f"{key}[{index}]", expected=left, got=right)


def _text(value: Value | None) -> str | None:
    if value is None or value.type.name != "STRING":
        return None
    try:
        text = value.python()
    except ValueError:
        return None
    return text if isinstance(text, str) else None
