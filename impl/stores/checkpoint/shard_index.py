"""Reads and judges `model.safetensors.index.json`: which file owns which tensor.

The index is the only authority for name to file. A tensor that lies in another file as well is a copy that nobody
owns, whatever the order in which files are opened.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from assay.impl.stores.strict_json import json_type, read_json_object
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, Finding

FORM: Final = declare(
    "index.form", Authority.FORM, "The index holds `metadata` with `total_size`, and `weight_map` of text to text.",
    source="Hugging Face sharded checkpoint index", cause="an edit by hand, or a file of another tool under this name",
)  # fmt: skip
FILE_NAME: Final = declare(
    "index.file_name", Authority.RULE, "A shard is named by a plain file name that ends in `.safetensors`.",
    source="Hugging Face sharded checkpoint index", cause="an index that tries to reach outside its folder",
)  # fmt: skip
TENSOR_NAME: Final = declare(
    "index.tensor_name", Authority.RULE, "A tensor is named by printable text.",
    source="the inventory digest separates fields by control characters", cause="a damaged or hostile index",
)  # fmt: skip
TOTAL_SIZE: Final = declare(
    "index.total_size", Authority.RULE,
    "`total_size` is a whole number (a decimal without a fraction will do) and is the sum of all spans.",
    source="Hugging Face sharded checkpoint index; upstream prints it as a decimal",
    cause="shards were rewritten and the index was not",
)  # fmt: skip

INDEX_NAME: Final = "model.safetensors.index.json"
STAGE: Final = "index"
_EXACT_IN_DOUBLE: Final = 2.0**53
_LONGEST_FILE_NAME_BYTES: Final = 255


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """What an index says.

    Attributes:
        owners: tensor name -> file name, in the order of the index.
        total_size: bytes of all tensors, or None when the index does not say it legibly.
        other_metadata: keys of `metadata` beside `total_size`; some converters write such.
    """

    owners: dict[str, str]
    total_size: int | None
    other_metadata: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The sorted names of all shards."""
        return tuple(sorted(set(self.owners.values())))


def read_index(path: Path) -> tuple[ShardIndex | None, list[Finding]]:
    """Reads an index file; None when it can't be read at all."""
    try:
        document = read_json_object(path, stage=STAGE)
    except AdmissionError as error:
        return None, [error.finding]
    return judge_index(document, where=path.name)


def judge_index(
    document: dict[str, Any], *, where: str = INDEX_NAME
) -> tuple[ShardIndex | None, list[Finding]]:
    """Judges the form of an index; returns the entries that can be used and every finding."""
    findings: list[Finding] = []
    weight_map = document.get("weight_map")
    findings += [
        Finding.of(FORM, STAGE, f"{where}: {key}", expected="metadata and weight_map only", got="another key")
        for key in document
        if key not in {"metadata", "weight_map"}
    ]
    total_size = _total_size(document.get("metadata"), where, findings)
    if not isinstance(weight_map, dict) or not weight_map:
        got = (
            "none"
            if "weight_map" not in document
            else "an empty one"
            if weight_map == {}
            else json_type(weight_map)
        )
        findings.append(
            Finding.of(FORM, STAGE, f"{where}: weight_map", expected="an object of names", got=got)
        )
        return None, findings
    owners: dict[str, str] = {}
    for name, file in weight_map.items():
        at = f"{where}: weight_map[{name}]"
        if not name or not name.isprintable():
            findings.append(
                Finding.of(TENSOR_NAME, STAGE, at, expected="a printable name", got=name or "an empty one")
            )
        elif not isinstance(file, str):
            findings.append(Finding.of(FORM, STAGE, at, expected="a file name", got=json_type(file)))
        elif not is_plain_file_name(file) or not file.endswith(".safetensors"):
            findings.append(
                Finding.of(FILE_NAME, STAGE, at, expected="a plain name ending in .safetensors", got=file)
            )
        else:
            owners[name] = file
    metadata = document.get("metadata")
    others = tuple(key for key in metadata if key != "total_size") if isinstance(metadata, dict) else ()
    return ShardIndex(owners, total_size, others), findings


@lru_cache(maxsize=1024)  # an index of thousands of tensors names a hundred files
def is_plain_file_name(name: str) -> bool:
    """Says whether a name stays inside its folder on every platform."""
    return (
        bool(name)
        and name.isprintable()
        and name not in {".", ".."}
        and not set(name) & set('/\\:*?"<>|')
        and len(name.encode("utf-8", "surrogatepass")) <= _LONGEST_FILE_NAME_BYTES
    )


def _total_size(metadata: Any, where: str, findings: list[Finding]) -> int | None:
    at = f"{where}: metadata.total_size"
    if not isinstance(metadata, dict) or "total_size" not in metadata:
        findings.append(Finding.of(FORM, STAGE, at, expected="a whole number", got="none"))
        return None
    value = metadata["total_size"]
    if type(value) is int and value >= 0:
        return value
    if type(value) is float and value.is_integer() and 0 <= value <= _EXACT_IN_DOUBLE:
        return int(value)
    findings.append(Finding.of(TOTAL_SIZE, STAGE, at, expected="an exact whole number of bytes", got=value))
    return None
