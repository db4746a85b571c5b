"""Captures every case again, in memory, and compares it byte for byte with what is shipped.

Upstream runs in a process of its own with plain kernels asked for before torch starts, so that the bits depend as
little as can be on the machine. What differs is written beside the shipped file as `<file>.rej`, never over it.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from assay.impl.captures.fixtures import PROVENANCE, set_faults
from assay.impl.captures.reading import DESCRIPTION
from assay.provenance.captures.geometries import CASES
from assay.provenance.captures.index import ARRAYS, write_index
from assay.spec.clauses import Authority, declare
from assay.spec.errors import EvidenceError, Finding
from assay.spec.stages import rung_name
from assay.spec.upstream_pins import PINS

BYTES: Final = declare(
    "capture.check.bytes", Authority.UPSTREAM,
    "Upstream, run again on the same inputs, gives the shipped arrays bit for bit.",
    source="AFN-014; transformers 5.24.0 models/qwen4_exp", cause="a changed array, or another CPU's arithmetic",
    fix="compare the .rej file with `assay diff`; distances of a few ulps point at the machine",
)  # fmt: skip
RECORD: Final = declare(
    "capture.check.record", Authority.RULE,
    "The shipped descriptions, provenance and index are what a new capture writes.",
    source="AFN-014", cause="a document edited by hand, or captured with other packages",
)  # fmt: skip
ABSENT: Final = declare(
    "capture.check.absent", Authority.RULE, "Every case is shipped, and nothing but the cases.",
    source="AFN-014", cause="a case that was added without a capture, or a folder left behind",
)  # fmt: skip
RUN: Final = declare(
    "capture.upstream.run", Authority.PROCESS, "Upstream runs every case to its end.",
    source="assay capture", cause="the extra `capture` is not installed, or upstream refuses a geometry",
)  # fmt: skip

QUIET_ENVIRONMENT: Final = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_OFFLINE": "1",
    "USE_HUB_KERNELS": "NO",
}
LIMIT_S: Final = 600.0


def capture_into(root: Path, only: Sequence[str] = ()) -> list[str]:
    """Runs upstream on the cases, or on those in `only`, and writes their fixtures and the index below `root`.

    Returns:
        the ids of the cases that were written.

    Raises:
        EvidenceError: `capture.upstream.run` or `capture.upstream.installed`.
    """
    ids = [case.id for case in CASES if not only or case.id in only]
    code = "import sys; from assay.provenance.captures.worker import main; sys.exit(main(sys.argv[1], sys.argv[2:]))"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, str(root), *ids],
            env={**os.environ, **QUIET_ENVIRONMENT}, capture_output=True, text=True, check=False, timeout=LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise _failed(f"no end after {LIMIT_S:g} s") from None
    if done.returncode:
        raise _from_worker(done.stderr)
    if not only:
        write_index(root, ids)
    return ids


def check(
    shipped: Path, only: Sequence[str] = (), *, write_rejected: bool = True
) -> tuple[list[Finding], int]:
    """Captures again and compares; writes `<file>.rej` beside every file that differs, unless told not to.

    Returns:
        the findings, and how many arrays were compared.
    """
    findings: list[Finding] = []
    compared = 0
    with tempfile.TemporaryDirectory(prefix="assay-capture-") as name:
        fresh = Path(name)
        ids = capture_into(fresh, only)
        for id_ in ids:
            findings += _case_findings(shipped / id_, fresh / id_, id_, write_rejected)
            compared += len(json.loads((fresh / id_ / DESCRIPTION).read_bytes())["entries"])
        if not only:
            known = {f"{path.parent.name}/{path.name}" for path in shipped.glob("*/*") if path.is_dir()}
            findings += [
                Finding.of(ABSENT, "check", extra, expected="a case", got="a folder that no case makes")
                for extra in sorted(known - set(ids))
            ]
            if (
                not findings
            ):  # the index holds digests of the records, so it is judged against the shipped ones
                findings += set_faults(shipped)[0]
    return findings, compared


def _case_findings(shipped: Path, fresh: Path, id_: str, write_rejected: bool) -> list[Finding]:
    if not (shipped / PROVENANCE).is_file():
        return [Finding.of(ABSENT, "check", id_, expected="a shipped fixture", got="none")]
    findings = []
    for name in (DESCRIPTION, PROVENANCE):
        new = (fresh / name).read_bytes()
        old = (shipped / name).read_bytes() if (shipped / name).is_file() else b""
        if not _same_record(old, new):
            findings.append(_differs(RECORD, shipped / name, new, f"{id_}/{name}", write_rejected))
    new = (fresh / ARRAYS).read_bytes()
    old = (shipped / ARRAYS).read_bytes() if (shipped / ARRAYS).is_file() else b""
    if old != new:
        where = f"{id_}/{ARRAYS}: {_first_difference(old, new, fresh)}"
        findings.append(_differs(BYTES, shipped / ARRAYS, new, where, write_rejected))
    return findings


def _same_record(old: bytes, new: bytes) -> bool:
    """Compares documents; a wheel that differs by platform counts by its version, assay's own version not at all."""
    if old == new:
        return True
    try:
        left, right = json.loads(old), json.loads(new)
    except ValueError:
        return False
    for document in (left, right):
        for pin in document.get("producers", {}).values() if isinstance(document, dict) else ():
            if pin.get("package") == "assay":
                pin["version"] = None
            if pin.get("package") in PINS and not PINS[pin["package"]].is_pure:
                pin["wheel_sha256"] = pin["distribution_sha256"] = None
    return bool(left == right)


def _first_difference(old: bytes, new: bytes, fresh: Path) -> str:
    """Names the first array that differs, how far, and how many do."""
    import numpy as np

    entries: list[dict[str, Any]] = json.loads((fresh / DESCRIPTION).read_bytes())["entries"]
    found: list[str] = []
    for entry in entries:
        kind = {"f32": "<f4", "i32": "<i4", "i64": "<i8"}[entry["dtype"]]
        size = int(np.prod(entry["shape"])) * np.dtype(kind).itemsize
        start = entry["offset"]
        before, after = old[start : start + size], new[start : start + size]
        if before == after:
            continue
        name = rung_name(entry["stage"], entry["layer"], entry["part"])
        if not found and len(before) == len(after):
            a, b = np.frombuffer(before, kind), np.frombuffer(after, kind)
            bits = f"<u{a.itemsize}"
            at = int(np.flatnonzero(a.view(bits) != b.view(bits))[0])
            index = [int(axis) for axis in np.unravel_index(at, entry["shape"])]
            largest = float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max())
            name += f" {index}: {a[at]} and {b[at]}, max abs {largest:.3g}"
        found.append(name)
    return f"{len(found)} arrays, first {found[0]}" if found else "length"


def _differs(code: str, path: Path, new: bytes, where: str, write_rejected: bool) -> Finding:
    rejected = path.with_name(f"{path.name}.rej")
    if write_rejected:
        rejected.write_bytes(new)
    return Finding.of(
        code, "check", where, expected="the shipped bytes", got=f"others, written to {rejected.name}" if write_rejected else "others",
        hint="never overwrite a shipped file before the difference is understood",
    )  # fmt: skip


def _failed(got: str) -> EvidenceError:
    return EvidenceError(
        Finding.of(
            RUN,
            "capture",
            "upstream",
            expected="a finished run",
            got=got,
            hint="pip install 'assay[capture]'",
        )
    )


def _from_worker(stderr: str) -> EvidenceError:
    """Makes the worker's last line into an error; a finding crosses the process border as one JSON line."""
    last = (stderr.strip().splitlines() or ["no message"])[-1]
    try:
        return EvidenceError(Finding(**json.loads(last)))
    except (ValueError, TypeError):
        return _failed(last)
