"""Turns a run of upstream into the files of a fixture, byte for byte the same each time."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from assay import __version__
from assay.impl.captures.fixtures import PROVENANCE, token_digest
from assay.impl.captures.reading import DESCRIPTION
from assay.provenance.captures.collect import Collected, Rung
from assay.provenance.captures.geometries import GEOMETRIES, Case
from assay.provenance.captures.index import ARRAYS
from assay.provenance.captures.installed import installed_pins
from assay.spec.documents.capture import Capture, CaptureEntry, Producer
from assay.spec.documents.fixture import (
    ArrayProvenance,
    CutStatistics,
    Fixture,
    ProducerPin,
    RunRecord,
    Weights,
)
from assay.spec.origins import SOURCES, UPSTREAM

NEAR_GAP: Final = 1e-4
"""Cuts nearer than this are counted and not asked for parity: upstream itself moves by about 1e-5 between partitions."""

_DTYPES: Final = {"float32": ("f32", "<f4"), "int32": ("i32", "<i4"), "int64": ("i64", "<i8")}


def fixture_files(case: Case, run: Collected) -> dict[str, bytes]:
    """Returns every file of one fixture by name."""
    entries, data = _entries(case, run)
    capture = Capture(
        producer=Producer(
            name="transformers", version="5.24.0", detail="models/qwen4_exp on CPU, float32, single-threaded"
        ),
        token_ids=list(run.tokens),
        entries=entries,
    )
    files = {DESCRIPTION: json_bytes(capture.model_dump(by_alias=True)), ARRAYS: data}
    fixture = _fixture(case, run, entries, {name: _sha256(content) for name, content in files.items()})
    return {**files, PROVENANCE: json_bytes(fixture.model_dump(by_alias=True))}


def write_files(directory: Path, files: dict[str, bytes]) -> None:
    """Writes the files of one fixture."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)


def json_bytes(value: Any) -> bytes:
    """Returns JSON for people and machines: one line a list element, keys in the order of the schema."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace(',{"stage"', ',\n{"stage"').encode("ascii") + b"\n"


def cut_statistics(gaps: list[tuple[int, int, float]]) -> CutStatistics:
    """Counts cuts by their gap; `gaps` holds (layer, token, gap)."""
    near = [(layer, token) for layer, token, gap in gaps if gap <= NEAR_GAP]
    return CutStatistics(
        cuts=len(gaps),
        near=len(near),
        ties=sum(1 for _, _, gap in gaps if gap == 0),
        smallest_gap=min((gap for _, _, gap in gaps), default=None),
        near_places=[[layer, token] for layer, token in near],
    )


def selection_gaps(arrays: dict[Rung, NDArray[Any]], budget: int, first: int) -> list[tuple[int, int, float]]:
    """Returns the score gap at the cut of every query that had to leave a group out, as (layer, token, gap)."""
    gaps = []
    for (stage, layer, part), rows in arrays.items():
        if (stage, part) != ("qsa", "index_scores"):
            continue
        for place, row in enumerate(rows):
            ranked = np.sort(row[row >= 0])[::-1]
            if ranked.size > budget:
                gaps.append((layer or 0, first + place, float(ranked[budget - 1] - ranked[budget])))
    return gaps


def routing_gaps(arrays: dict[Rung, NDArray[Any]], used: int, first: int) -> list[tuple[int, int, float]]:
    """Returns the logit gap between the last expert that was used and the first that was not."""
    gaps = []
    for (stage, layer, part), rows in arrays.items():
        if (stage, part) == ("router", "logits"):
            ranked = np.sort(rows, axis=-1)[:, ::-1]
            gaps += [
                (layer or 0, first + place, float(row[used - 1] - row[used]))
                for place, row in enumerate(ranked)
            ]
    return gaps


def _entries(case: Case, run: Collected) -> tuple[list[CaptureEntry], bytes]:
    entries: list[CaptureEntry] = []
    parts: list[bytes] = []
    offset = 0
    for (stage, layer, part), array in run.arrays.items():
        word, layout = _DTYPES[array.dtype.name]
        data = np.ascontiguousarray(array).astype(layout).tobytes()
        whole = stage == "state"
        entries.append(
            CaptureEntry(
                stage=stage,  # type: ignore[arg-type]
                layer=layer,
                part=part,
                first_token=0 if whole else case.record_from,
                tokens=len(run.tokens) - (0 if whole else case.record_from),
                dtype=word,  # type: ignore[arg-type]
                shape=list(array.shape),
                file=ARRAYS,
                offset=offset,
                sha256=_sha256(data),
            )
        )
        parts.append(data)
        offset += len(data)
    return entries, b"".join(parts)


def _fixture(case: Case, run: Collected, entries: list[CaptureEntry], files: dict[str, str]) -> Fixture:
    text = GEOMETRIES[case.geometry]
    digests: dict[Rung, str] = {
        (entry.stage, entry.layer, entry.part): entry.sha256 or "" for entry in entries
    }
    arrays = [_provenance(entry, run, digests) for entry in entries]
    longest = max(map(len, case.rows))
    pad = text["eos_token_id"] if case.pad_id is None else case.pad_id
    return Fixture(
        id=case.id,
        title=case.title,
        catches=list(case.catches),
        geometry=case.geometry,
        configuration=text,
        weights=Weights(rule=case.rule, sha256=run.weights),
        run=RunRecord(
            rows=[list(row) for row in case.rows],
            partition=list(case.partition),
            left_padding=longest - len(run.tokens),
            row=case.row,
            pad_id=pad,
            eos_id=text["eos_token_id"],
            cache=True,
            attention="eager",
            experts="eager",
            threads=1,
        ),
        producers={**installed_pins(), "assay": ProducerPin(package="assay", version=__version__)},
        arrays=arrays,
        counts={"arrays": len(arrays), **dict(sorted(Counter(array.origin for array in arrays).items()))},
        cuts={
            "selection": cut_statistics(
                selection_gaps(
                    run.arrays, text["indexer_budget"] // text["indexer_compress_ratio"], case.record_from
                )
            ),
            "routing": cut_statistics(
                routing_gaps(run.arrays, text["num_experts_per_tok"], case.record_from)
            ),
        },
        files=files,
    )


def _provenance(entry: CaptureEntry, run: Collected, digests: dict[Rung, str]) -> ArrayProvenance:
    source = SOURCES[(entry.stage, entry.part)]
    if source.origin == UPSTREAM:
        inputs = [token_digest(list(run.tokens)), run.weights]
    else:
        parent = ("output_head", "") if entry.stage == "sampled_id" else (entry.stage, "selection_mask")
        inputs = [digests[(parent[0], entry.layer, parent[1])]]
    return ArrayProvenance(
        stage=entry.stage,
        layer=entry.layer,
        part=entry.part,
        origin=source.origin,
        producer=source.producer,
        qualified_name=source.qualified_name,
        inputs=inputs,
        dtype=entry.dtype,
        shape=entry.shape,
        sha256=entry.sha256 or "",
    )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
