"""The process in which upstream runs: captures the named cases and writes their files."""

import json
import sys
from pathlib import Path

from assay.provenance.captures.collect import collect
from assay.provenance.captures.geometries import case
from assay.provenance.captures.installed import installed_pins
from assay.provenance.captures.writing import fixture_files, write_files
from assay.spec.errors import AssayError


def main(root: str, ids: list[str]) -> int:
    """Writes each case below `root`; an error leaves as one JSON line on stderr."""
    try:
        installed_pins()  # before upstream runs: numbers of another release are not worth the wait
        for id_ in ids:
            one = case(id_)
            write_files(Path(root) / id_, fixture_files(one, collect(one)))
    except AssayError as error:
        print(json.dumps(error.finding.as_json()), file=sys.stderr)  # noqa: T201 - read by the parent process
        return 1
    return 0
