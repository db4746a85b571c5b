"""The conversion report: every source tensor with its one destination, and the bytes of each class.

A dry run makes it from headers alone, so that a plan for 360 GB can be read, kept and compared before a byte is
written. It repeats the digests of what it was made from and carries its own, and an altered or outdated report is told
apart from a good one.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from assay.impl.stores.artifact.source import Destination
from assay.impl.stores.extents import SYSTEM, Extent, Filesystem
from assay.impl.stores.publication import publish
from assay.impl.stores.strict_json import read_json_object
from assay.spec.canonical import canonical_json
from assay.spec.clauses import Authority, declare
from assay.spec.errors import EvidenceError, Finding

SCHEMA: Final = "assay.conversion/1"
DIGEST_FIELD: Final = "reportSha256"
POLICIES: Final = {
    "excluded-vision": "qwen4exp-base-v1-text-only",
    "excluded-mtp": "qwen4exp-base-v1-no-mtp-execution",
}
"""Why an excluded tensor is left out, by name: its bytes are still counted."""
GROUPS: Final = {
    "dense": "dense",
    "dense-control": "ple",
    "ple-rows": "ple",
    "ple-metadata": "ple",
    "routed-experts": "routed",
    "excluded-vision": "vision",
    "excluded-mtp": "mtp",
}
"""Destination -> the class in which the source counts its bytes."""

ALTERED: Final = declare(
    "build.report.altered",
    Authority.RULE,
    "A conversion report has the digest that it states.",
    source="the conversion report's own digest",
    cause="a report edited by hand",
    fix="make it again with --dry-run",
)
DRIFT: Final = declare(
    "build.report.drift",
    Authority.RULE,
    "A kept conversion report is the one that the checkpoint gives today.",
    source="the conversion report",
    cause="another checkpoint, another contract, or another version of the builder",
    fix="read what differs; if it is meant, make the report again with --dry-run --force -o",
)


def conversion_report(
    destinations: Sequence[Destination],
    *,
    kind: str,
    profile_id: str,
    inventory_sha256: str,
    contract_sha256: str | None,
    components: int,
    is_private: bool,
) -> dict[str, Any]:
    """Returns the report as a JSON value, with its digest.

    Args:
        destinations: of every source tensor.
        kind: `qwen4exp-conversion-dry-run` or `qwen4exp-conversion`.
        profile_id: profile of the artifact.
        inventory_sha256: digest of the inventory.
        contract_sha256: digest of the packaged contract, or None when the profile is derived.
        components: expert components that the routed tensors become.
        is_private: whether the private seam was used, which stamps the report.
    """
    tensors: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    groups: Counter[str] = Counter()
    for one in destinations:
        size = one.row.end - one.row.begin
        tensors[one.owner] += 1
        sizes[one.owner] += size
        groups[GROUPS[one.owner]] += size
    body: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": kind,
        "profileId": profile_id,
        "seam": "private" if is_private else None,
        "inventorySha256": inventory_sha256,
        "contractSha256": contract_sha256,
        "sourceTensors": len(destinations),
        "sourceBytes": sum(sizes.values()),
        "expertComponents": components,
        "classes": {
            owner: {"tensors": tensors[owner], "bytes": sizes[owner], "policy": POLICIES.get(owner)}
            for owner in GROUPS
        },
        "bytes": {group: groups[group] for group in ("dense", "ple", "routed", "vision", "mtp")},
        "destinations": [_line(one) for one in destinations],
    }
    return {**body, DIGEST_FIELD: report_digest(body)}


def report_digest(report: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of the canonical JSON of a report without its own digest, and a newline."""
    body = {key: value for key, value in report.items() if key != DIGEST_FIELD}
    return hashlib.sha256(canonical_json(body) + b"\n").hexdigest()


def report_bytes(report: Mapping[str, Any]) -> bytes:
    """Returns the file that a report is kept as."""
    return json.dumps(report, ensure_ascii=False, indent=1).encode("utf-8") + b"\n"


def save_report(
    target: Path, report: Mapping[str, Any], system: Filesystem = SYSTEM, *, replace: bool = True
) -> None:
    """Publishes a report, or leaves an old one as it is.

    Args:
        target: where it shall be.
        report: the report.
        system: the seam for injected faults.
        replace: whether a file that is at `target` at the commit is replaced.

    Raises:
        PublicationError: publish.<step>.
    """
    data = report_bytes(report)

    def verify(extent: Extent) -> None:
        if extent.read(0, extent.size) != data:
            raise EvidenceError(
                Finding.of("publish.verify", "build", target.name, expected="the report", got="other bytes")
            )

    publish(target, len(data), lambda draft: draft.write(0, data), verify, system, replace=replace)


def compare_report(path: Path, report: Mapping[str, Any]) -> list[Finding]:
    """Returns how a kept report differs from today's: altered, or drifted, field by field.

    Raises:
        AdmissionError: input.file.* or input.json.*.
    """
    kept = read_json_object(path, stage="build", where=path.name)
    stated = kept.get(DIGEST_FIELD)
    try:
        digest = report_digest(kept)
    except ValueError as error:
        return [Finding.of(ALTERED, "build", path.name, expected="values that JSON keeps exactly", got=error)]
    if stated != digest:
        return [Finding.of(ALTERED, "build", f"{path.name}: {DIGEST_FIELD}", expected=digest, got=stated)]
    fields = [key for key in report if key not in {DIGEST_FIELD, "destinations"}]
    found = [
        Finding.of(DRIFT, "build", f"{path.name}: {key}", expected=report[key], got=kept.get(key, "nothing"))
        for key in fields
        if kept.get(key) != report[key]
    ]
    ours = {line["source"]: line for line in report["destinations"]}
    kept_lines = kept.get("destinations")
    theirs = {
        line["source"]: line
        for line in (kept_lines if isinstance(kept_lines, list) else [])
        if isinstance(line, dict) and isinstance(line.get("source"), str)
    }
    different = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
    found += [
        Finding.of(DRIFT, "build", f"{path.name}: {name}", expected=ours.get(name, "no such tensor"),
                   got=theirs.get(name, "nothing"))
        for name in different[:32]
    ]  # fmt: skip
    if not found and kept.keys() != report.keys():
        found.append(Finding.of(DRIFT, "build", path.name, expected=sorted(report), got=sorted(kept)))
    return found


def _line(one: Destination) -> dict[str, Any]:
    return {
        "source": one.row.name,
        "shard": one.row.shard,
        "dtype": one.row.dtype,
        "shape": list(one.row.shape),
        "bytes": one.row.end - one.row.begin,
        "destination": one.owner,
        "targets": list(one.targets),
        "policy": POLICIES.get(one.owner),
    }
