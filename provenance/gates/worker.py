"""One gate in a process of its own: `python -m assay.provenance.gates.worker`.

The order comes as one line of JSON on stdin; the result is written to the file that the order names. Stdin stays open
as long as the parent lives: when it closes, this process and all that it started end, so that a killed run leaves
nothing running.
"""

import importlib
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from assay.provenance.evidence.durable import write_durably
from assay.provenance.gates.base import GateContext, GateResult
from assay.spec.errors import AssayError, EvidenceError
from assay.spec.verdicts import Outcome


def main() -> int:
    """Runs the ordered gate and writes its result; returns the exit code of the process."""
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    context = GateContext(
        checkpoint=Path(order["checkpoint"]) if order["checkpoint"] else None,
        out=Path(order["out"]),
        jobs=order["jobs"],
        seed=order["seed"],
        private=order["private"],
    )
    module, _, name = order["function"].partition(":")
    before = set(sys.modules)
    try:
        result = getattr(importlib.import_module(module), name)(context)
    except EvidenceError as error:
        result = GateResult(Outcome.INCONCLUSIVE, findings=(error.finding,), reason=error.finding.line)
    except AssayError as error:
        result = GateResult(Outcome.FAIL, findings=(error.finding,), reason=error.finding.line)
    if not isinstance(result, GateResult):
        sys.stderr.write(f"the gate returned {type(result).__name__}, not a GateResult\n")
        return 1
    write_durably(Path(order["result"]), json.dumps(_as_json(result, _used(before))).encode())
    return 0


def _used(before: set[str]) -> list[str]:
    """Returns the modules of assay that the gate has loaded: what it stood on, however it came to them."""
    return sorted(name for name in set(sys.modules) - before if name.split(".")[0] == "assay")


def _as_json(result: GateResult, modules: list[str]) -> dict[str, Any]:
    return {
        "modules": modules,
        "outcome": result.outcome,
        "measurements": result.measurements,
        "findings": [finding.as_json() for finding in result.findings],
        "reason": result.reason,
        "is_private": result.is_private,
    }


def _end_with_the_parent() -> None:
    # Not through sys.stdin: its lock would be held at interpreter shutdown, and that aborts the process.
    while os.read(0, 4096):
        pass
    if os.getpgrp() == os.getpid():  # the parent made this process the leader of its own group
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
