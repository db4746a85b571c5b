"""Reads the literal vectors that ship beside the captures and asks any copy of the oracles for their answers.

The oracle is called and nothing of it is used to judge it: rules of long lists are expanded here, results are
compared here, element by element, in plain Python.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

from assay.spec.canonical import canonical_digest
from assay.spec.clauses import Authority, declare
from assay.spec.documents.vectors import Vector, Vectors
from assay.spec.errors import AssayError, Finding

STAGE: Final = "vector"
INDEX: Final = "index.tsv"
INDEX_HEAD: Final = "assay-vectors\t1"

LITERAL: Final = declare(
    "vector.literal", Authority.RULE,
    "Every operation gives the literal results of its vectors, and refuses what they say it refuses.",
    source="public bug reports; published facts; hand computation", cause="a mistake that the vector's `catches` names",
    fix="`assay oracle OP` with the vector's arguments shows the whole answer",
)  # fmt: skip
CAPTURED: Final = declare(
    "vector.captured", Authority.UPSTREAM,
    "The whole-model oracle gives the arrays that the pinned upstream held, in the captures' own chunks.",
    source="transformers 5.24.0 models/qwen4_exp; AFN-014", cause="a mistake in the operation that the rung names, or in an earlier one",
    fix="`assay gate parity.oracle-upstream` compares every array of every capture",
)  # fmt: skip
LISTED: Final = declare(
    "vector.index", Authority.PIN, "index.tsv says of every shipped vector what its file holds, with its SHA-256.",
    source="assay: an index that a C program can read", cause="a vector edited without its row, or a row without its vector",
)  # fmt: skip
RAISED: Final = declare(
    "vector.raised", Authority.PROCESS, "An operation answers a vector or refuses it with a typed error.",
    source="design: errors", cause="an oracle that crashes where it should answer or refuse",
)  # fmt: skip

Answer = Callable[[str, dict[str, Any]], Mapping[str, Any]]
"""Called with an operation and its arguments; gives results by name or raises an `AssayError`."""


def shipped() -> Path:
    """Returns the folder of the shipped vectors."""
    return Path(str(resources.files("assay").joinpath("fixtures", "vectors")))


def read_vectors(folder: Path | None = None) -> dict[str, list[Vector]]:
    """Returns the vectors of every operation, in the order of their files."""
    found: dict[str, list[Vector]] = {}
    for path in sorted((folder or shipped()).glob("*.json")):
        document = Vectors.model_validate_json(path.read_bytes())
        found[document.operation] = document.vectors
    return found


def findings(vector: Vector, operation: str, answer: Answer) -> Iterator[Finding]:
    """Yields at most one finding: the first result that is not what the vector says."""
    try:
        got = answer(operation, expand(vector.arguments))
    except AssayError as error:
        wanted = vector.refused
        said = f"{error.finding.code} at {error.finding.where}"
        if wanted is None:
            yield _finding(vector, "", "an answer", said)
        elif (error.finding.code, error.finding.where) != (wanted.code, wanted.where):
            yield _finding(vector, "", f"{wanted.code} at {wanted.where}", said)
        return
    except Exception as error:  # noqa: BLE001 - whatever a wrong oracle raises is a result, and its own clause
        said = f"{type(error).__name__}: {error}"
        yield Finding.of(RAISED, STAGE, vector.id, expected="an answer or a typed refusal", got=said)
        return
    if vector.refused is not None:
        yield _finding(vector, "", f"{vector.refused.code} at {vector.refused.where}", "an answer")
        return
    for name, value in expand(vector.expected or {}).items():
        place = _difference(value, _plain(got[name]), vector.atol, name)
        if place is not None:
            yield _finding(vector, *place)
            return


def expand(value: Any) -> Any:
    """Returns a JSON value with every rule of a list written out and every decimal string as an integer."""
    if isinstance(value, list):
        return [expand(one) for one in value]
    if isinstance(value, str):
        digits = value.removeprefix("-")
        return int(value) if digits.isascii() and digits.isdigit() else value
    if not isinstance(value, dict):
        return value
    if "fill" in value:
        line = [value["fill"]] * value["length"]
        for index, other in value["set"].items():
            line[int(index)] = other
        return line
    if "repeat" in value:
        return value["repeat"] * value["times"] + value.get("then", [])
    if "range" in value:
        return list(range(*value["range"]))
    return {name: expand(one) for name, one in value.items()}


def index_text(folder: Path | None = None) -> str:
    """Returns the index of a folder of vectors: one line each, fields by tabs, readable without a JSON parser.

    Fields: `vector`, id, operation, file, place in the file, origin, bug reports (or `-`), SHA-256 of the vector's
    canonical JSON. A first line `file` for each file holds its SHA-256 and its number of vectors.
    """
    lines = [INDEX_HEAD]
    for path in sorted((folder or shipped()).glob("*.json")):
        data = path.read_bytes()
        raw = json.loads(data)["vectors"]
        document = Vectors.model_validate_json(data)
        lines.append(f"file\t{path.name}\t{hashlib.sha256(data).hexdigest()}\t{len(raw)}")
        for place, (one, plain) in enumerate(zip(document.vectors, raw, strict=True)):
            fields = (one.id, document.operation, path.name, str(place), one.origin)
            lines.append(
                "\t".join(["vector", *fields, ",".join(one.reports) or "-", canonical_digest(plain)])
            )
    return "\n".join(lines) + "\n"


def index_findings(folder: Path | None = None) -> list[Finding]:
    """Returns one finding for each row of index.tsv that the files don't give, or give otherwise."""
    place = folder or shipped()
    stored = (place / INDEX).read_text(encoding="ascii").splitlines()
    made = index_text(place).splitlines()
    found = []
    for row in [one for one in stored if one not in made]:
        name = " ".join(row.split("\t")[:2])
        found.append(
            Finding.of(LISTED, STAGE, f"{INDEX}: {name}", expected="a row that the files give", got=row)
        )
    for row in [one for one in made if one not in stored]:
        name = " ".join(row.split("\t")[:2])
        found.append(Finding.of(LISTED, STAGE, f"{INDEX}: {name}", expected=row, got="no such row"))
    return found


def _finding(vector: Vector, place: str, expected: Any, got: Any) -> Finding:
    where = f"{vector.id}: {place}" if place else vector.id
    return Finding.of(LITERAL, STAGE, where, expected=expected, got=got, hint=vector.catches)


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _difference(expected: Any, got: Any, atol: float, place: str) -> tuple[str, Any, Any] | None:
    """Returns place and both values of the first difference; null in the expected list is not judged."""
    if isinstance(expected, list) or isinstance(got, (list, tuple)):
        if not isinstance(expected, list) or not isinstance(got, (list, tuple)) or len(expected) != len(got):
            return place, _extent(expected), _extent(got)
        for index, (one, other) in enumerate(zip(expected, got, strict=True)):
            found = _difference(one, other, atol, f"{place}[{index}]")
            if found is not None:
                return found
        return None
    if isinstance(expected, int) and isinstance(got, int):
        return None if expected == got else (place, expected, got)
    # Written so that a NaN differs from everything.
    return None if abs(expected - got) <= atol else (place, expected, got)


def _extent(value: Any) -> str:
    return f"{len(value)} elements" if isinstance(value, (list, tuple)) else "a single value"
