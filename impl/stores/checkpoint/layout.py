"""What a checkpoint directory holds: its config, its index and the header of each shard, read once, in bounded memory."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from assay.impl.stores.checkpoint.header_set import HEADER_SET_NAME, HeaderSet, read_header_set
from assay.impl.stores.checkpoint.safetensors import Header, read_header
from assay.impl.stores.checkpoint.shard_index import INDEX_NAME, ShardIndex, read_index
from assay.impl.stores.files import folder_names
from assay.impl.stores.strict_json import read_json_object
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, Finding

ABSENT_FILE: Final = declare(
    "files.missing", Authority.INPUT, "Every file that the profile pins is there.",
    source="the file list of the pinned revision", cause="a partial download", fix="fetch the file; until then the verdict is open",
)  # fmt: skip

CONFIG_NAME: Final = "config.json"
SINGLE_NAME: Final = "model.safetensors"
CONFIG_LIMIT_BYTES: Final = 16 << 20


@dataclass(slots=True)
class Layout:
    """A checkpoint directory as it was read.

    Attributes:
        folder: the directory.
        names: its entries, sorted.
        config: the parsed config, or None.
        index: the parsed index, or None.
        headers: header of each shard that could be read, by file name.
        header_set: where headers come from when no shard is there, or None.
        absent_shards: shards that the index names and that are not there.
        unread_shards: shards that are there and whose header can't be read.
        faults: findings of each stage, in the order of reading.
        gaps: absent files of each stage.
    """

    folder: Path
    names: tuple[str, ...]
    config: dict[str, Any] | None = None
    index: ShardIndex | None = None
    headers: dict[str, Header] = field(default_factory=dict)
    header_set: HeaderSet | None = None
    absent_shards: tuple[str, ...] = ()
    unread_shards: tuple[str, ...] = ()
    faults: dict[str, list[Finding]] = field(default_factory=dict)
    gaps: dict[str, list[Finding]] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether the header of every shard is at hand, with every entry of it."""
        return (
            bool(self.headers)
            and not self.absent_shards
            and not self.unread_shards
            and not any(header.unread for header in self.headers.values())
        )

    def found(self, stage: str) -> tuple[list[Finding], list[Finding]]:
        """Returns the faults and gaps of one stage."""
        return self.faults.get(stage, []), self.gaps.get(stage, [])


def read_layout(folder: Path, *, jobs: int = 1) -> Layout:
    """Reads what a checkpoint directory holds; only the headers of shards are read, never their payload.

    Raises:
        AdmissionError: `input.file.*`, when the folder itself can't be listed.
    """
    layout = Layout(folder, tuple(folder_names(folder)))
    _read_config(layout)
    _read_index(layout)
    _read_headers(layout, jobs)
    return layout


def _read_config(layout: Layout) -> None:
    if CONFIG_NAME not in layout.names:
        layout.gaps["config"] = [_absent(CONFIG_NAME, "config")]
        return
    try:
        layout.config = read_json_object(
            layout.folder / CONFIG_NAME, stage="config", where=CONFIG_NAME, limit_bytes=CONFIG_LIMIT_BYTES
        )
    except AdmissionError as error:
        layout.faults["config"] = [error.finding]


def _read_index(layout: Layout) -> None:
    if INDEX_NAME in layout.names:
        layout.index, layout.faults["index"] = read_index(layout.folder / INDEX_NAME)
    elif SINGLE_NAME not in layout.names:
        layout.gaps["index"] = [_absent(INDEX_NAME, "index")]


def _read_headers(layout: Layout, jobs: int) -> None:
    named = layout.index.files if layout.index is not None else ()
    present = [name for name in layout.names if name.endswith(".safetensors")]
    faults: list[Finding] = layout.faults.setdefault("headers", [])
    if not present and HEADER_SET_NAME in layout.names:
        layout.header_set, found = read_header_set(layout.folder / HEADER_SET_NAME)
        faults += found
        if layout.header_set is not None:
            layout.headers = dict(layout.header_set.headers)
    else:
        faults += _read_shards(layout, present, jobs)
    have = {*layout.headers, *present}
    layout.absent_shards = tuple(name for name in named if name not in have)
    layout.unread_shards = tuple(name for name in present if name not in layout.headers)
    layout.gaps["headers"] = list(_absent_shards(layout, bool(present)))


def _read_shards(layout: Layout, present: Iterable[str], jobs: int) -> list[Finding]:
    """Reads the headers in a few threads (it is waiting, not work) and keeps the order of the names."""
    faults: list[Finding] = []
    paths = [layout.folder / name for name in present]
    with ThreadPoolExecutor(max(1, min(jobs, 8))) as pool:
        for path, (header, found) in zip(paths, pool.map(read_header, paths), strict=True):
            faults += found
            if header is not None:
                layout.headers[path.name] = header
    return faults


def _absent_shards(layout: Layout, has_shards: bool) -> Iterable[Finding]:
    """Says which shards are not there; all of them are one finding, a few of them one each."""
    if not has_shards:
        named = len(layout.index.files) if layout.index is not None else 0
        got = "none" if layout.header_set is None else f"none; headers taken from {HEADER_SET_NAME}"
        yield _absent("*.safetensors", "headers", expected=f"{named} shards" if named else "shards", got=got)
        return
    owners = layout.index.owners if layout.index is not None else {}
    for name in layout.absent_shards:
        tensors = sum(1 for owner in owners.values() if owner == name)
        yield _absent(name, "headers", expected=f"a shard that owns {tensors} tensors")


def _absent(name: str, stage: str, *, expected: str = "a file", got: str = "nothing there") -> Finding:
    return Finding.of(ABSENT_FILE, stage, name, expected=expected, got=got)
