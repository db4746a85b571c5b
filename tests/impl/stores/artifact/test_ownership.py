"""Who owns which byte: every layout rule is broken once, and dense pages never touch a store."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.impl.stores.artifact import build as build_module
from assay.impl.stores.artifact import structural as structural_module
from assay.impl.stores.artifact.admission import Admission, admit
from assay.impl.stores.artifact.build import build_artifact
from assay.impl.stores.artifact.descriptor import fixture_descriptor
from assay.impl.stores.artifact.ownership import PAGE, Span, page_spans
from assay.impl.stores.artifact.structural import write_structural
from assay.impl.stores.gguf.reader import read_gguf
from assay.mutations.artifact_sketch import EXPERT, PLE, Record, Sketch, structural_sketch
from assay.spec.errors import AdmissionError

from .conftest import write_small


def admitted(sketch: Sketch) -> Admission:
    extent, descriptor = sketch.extent(), fixture_descriptor()
    return admit(read_gguf(extent), extent, descriptor, (descriptor.physical_profile_id,))


def stores_exchanged(sketch: Sketch) -> None:
    expert, ple = sketch.record(EXPERT), sketch.record(PLE)
    start = sketch.data_start
    ple.offset = expert.offset
    expert.offset = ple.offset + ple.size
    sketch.rows_at, sketch.expert_at = start + ple.offset, start + expert.offset


def dense_exchanged(sketch: Sketch) -> None:
    """The first two tensors have one size: each lies where the other should."""
    one, other = sketch.records[0], sketch.records[1]
    assert one.size == other.size
    one.offset, other.offset = other.offset, one.offset


def one_page_later(sketch: Sketch) -> None:
    for name in (EXPERT, PLE):
        sketch.record(name).offset += PAGE
    sketch.expert_at += PAGE
    sketch.rows_at += PAGE
    sketch.file_bytes += PAGE


def off_the_page(sketch: Sketch) -> None:
    for name in (EXPERT, PLE):
        sketch.record(name).offset += 32
    sketch.expert_at += 32
    sketch.rows_at += 32
    sketch.file_bytes += 32


def a_tail(sketch: Sketch) -> None:
    sketch.file_bytes += PAGE


def shared_page(sketch: Sketch) -> None:
    """Both stores 32 bytes behind the dense tensors: in the page in which those end."""
    last = sketch.records[-3]
    step = sketch.record(EXPERT).offset - (last.offset + last.size + 32) // 32 * 32
    for name in (EXPERT, PLE):
        sketch.record(name).offset -= step
    sketch.expert_at -= step
    sketch.rows_at -= step
    sketch.file_bytes -= step


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (stores_exchanged, ("artifact.owner.order", "physical owner order")),
        (stores_exchanged, ("artifact.owner.end", "PLE end")),
        (stores_exchanged, ("artifact.owner.end", "final tensor extent")),
        (dense_exchanged, ("artifact.owner.dense-order", "dense physical order")),
        (one_page_later, ("artifact.owner.coverage", f"ExpertMajor owner: {EXPERT}")),
        (off_the_page, ("artifact.owner.opaque", f"ExpertMajor owner: {EXPERT} start")),
        (off_the_page, ("artifact.owner.opaque", f"PLE owner: {PLE} end")),
        (a_tail, ("artifact.owner.end", "PLE end")),
        (a_tail, ("artifact.owner.whole", "whole-file ownership")),
        (shared_page, ("artifact.owner.pages", "dense page spans")),
    ],
)
def test_a_broken_layout_rule_is_named(change: Callable[[Sketch], None], found: tuple[str, str]) -> None:
    sketch = structural_sketch()
    change(sketch)
    assert found in [(one.code, one.where) for one in admitted(sketch).findings["ownership"]]


def test_a_tensor_that_no_role_explains_is_named() -> None:
    sketch = structural_sketch(lambda one: one.records.insert(0, Record("odd.weight", [32], 30)))
    assert ("artifact.tensor.unexpected", "tensor inventory: odd.weight") in [
        (one.code, one.where) for one in admitted(sketch).findings["inventory"]
    ]


@given(st.lists(st.tuples(st.integers(0, 10 * PAGE), st.integers(0, 3 * PAGE)), max_size=8))
def test_page_spans_are_the_pages_of_all_bytes_and_no_others(ranges: list[tuple[int, int]]) -> None:
    spans = [Span("x", start, start + size) for start, size in ranges]
    touched = {
        page for one in spans if one.end > one.start for page in range(one.start // PAGE, -(-one.end // PAGE))
    }
    found = list(page_spans(spans))
    assert {page for one in found for page in range(one.start // PAGE, one.end // PAGE)} == touched
    assert all(one.end < other.start for one, other in itertools.pairwise(found))


def test_a_disk_without_holes_gets_no_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structural_module, "MOST_ALLOCATED", 4096)
    with pytest.raises(AdmissionError) as caught:
        write_structural(tmp_path / "s.gguf")
    assert (caught.value.finding.code, caught.value.finding.where) == (
        "artifact.structural.sparse",
        str(tmp_path / "s.gguf"),
    )
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_reads_otherwise_the_second_time_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_small(tmp_path / "source")
    real = build_module._Work._read_dense
    reads: list[int] = []

    def other(work: object, place: tuple[int, int, int]) -> bytes:
        reads.append(place[0])
        data = real(work, place)  # type: ignore[arg-type]
        return bytes(len(data)) if reads.count(place[0]) > 1 and place[0] == 5 else data

    monkeypatch.setattr(build_module._Work, "_read_dense", other)
    with pytest.raises(AdmissionError) as caught:
        build_artifact(source, tmp_path / "x.gguf")
    sixth = "model.language_model.layers.0.attn_hyper_connection.block_inject_weight.weight"
    assert (caught.value.finding.code, caught.value.finding.where) == ("build.same", sixth)
    assert not (tmp_path / "x.gguf").exists()
