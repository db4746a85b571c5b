"""GGUF v3: bounded reading, typed metadata, an exact partition of bytes, and agreement with the public reader."""

import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.impl.stores.extents import StoreFile
from assay.impl.stores.gguf.reader import Entry, Gguf, read_gguf
from assay.impl.stores.gguf.rules import judge_gguf
from assay.impl.stores.gguf.values import Value, ValueType, array, encoded, scalar
from assay.impl.stores.gguf.writer import Planned, plan_gguf, write_gguf
from assay.spec.errors import AdmissionError, ContractError, Finding, shown


def refusal(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(ContractError) as caught:
        call()
    return caught.value.finding.code, caught.value.finding.where


Built = tuple[str, tuple[int, ...], int, int]


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def raw(
    tensors: list[Built],
    *,
    entries: list[bytes] = [],  # noqa: B006 - never changed
    data_at: int = 4096,
    size: int = 8192,
    version: int = 3,
    counts: tuple[int, int] | None = None,
) -> bytes:
    """A file written by hand: data starts at `data_at` because general.alignment says so."""
    body = text("general.alignment") + struct.pack("<II", 4, data_at) + b"".join(entries)
    records = b"".join(
        text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
        for name, dims, kind, offset in tensors
    )
    tensor_count, entry_count = counts or (len(tensors), 1 + len(entries))
    head = b"GGUF" + struct.pack("<IQQ", version, tensor_count, entry_count) + body + records
    return head.ljust(size, b"\0")[:size]


def read(tmp_path: Path, data: bytes) -> Gguf:
    target = tmp_path / "x.gguf"
    target.write_bytes(data)
    with StoreFile.open(target) as file:
        return read_gguf(file.extent())


def judged(tmp_path: Path, data: bytes) -> list[tuple[str, str]]:
    target = tmp_path / "x.gguf"
    target.write_bytes(data)
    with StoreFile.open(target) as file:
        return [(one.code, one.where) for one in judge_gguf(read_gguf(file.extent()), file.extent())]


def refused(call: Callable[[], object]) -> Finding:
    with pytest.raises(AdmissionError) as caught:
        call()
    assert caught.value.finding.stage == "gguf"
    return caught.value.finding


def test_a_tensor_that_ends_with_the_file_is_read(tmp_path: Path) -> None:
    """Bug report A20: 8,192 bytes, data at 4,096, 64 bytes at 4,032."""
    assert read(tmp_path, raw([("t", (64,), 24, 4032)])).tensors[0].bytes == 64


@pytest.mark.parametrize(
    ("offset", "code"),
    [
        (4064, "gguf.truncated"),
        (2**40, "gguf.truncated"),
        (0xFFFFFFFFFFFFF000, "gguf.tensor.offset"),
        (2**64 - 1, "gguf.tensor.offset"),
    ],
)
def test_an_offset_beyond_the_file_is_refused_even_where_the_sum_wraps(
    tmp_path: Path, offset: int, code: str
) -> None:
    """Bug report A20."""
    finding = refused(lambda: read(tmp_path, raw([("t", (64,), 24, offset)])))
    assert (finding.code, finding.where, finding.got) == (code, "t.offset", str(offset))


@pytest.mark.parametrize("dims", [(2**33, 2**31), (2**63, 3)])
def test_dimensions_whose_product_wraps_are_refused(tmp_path: Path, dims: tuple[int, ...]) -> None:
    """Bug report A20: the product wraps to 0."""
    finding = refused(lambda: read(tmp_path, raw([("t", dims, 24, 0)])))
    assert (finding.code, finding.where) == ("gguf.tensor.elements", "t.dim")


def test_one_bad_tensor_of_two_is_an_error_not_a_shorter_model(tmp_path: Path) -> None:
    """Bug report A20."""
    data = raw([("bad", (64,), 24, 2**40), ("good", (64,), 24, 0)])
    assert refused(lambda: read(tmp_path, data)).where == "bad.offset"


@pytest.mark.parametrize(
    ("name", "spans", "size", "wanted"),
    [
        (
            "a: the same range twice",
            [0, 0],
            64,
            [("gguf.tensor.overlap", "b.offset"), ("gguf.trailing", "file length")],
        ),
        ("b: a hole", [0, 72], 56, [("gguf.tensor.hole", "b.offset")]),
        ("c: reverse order", [64, 0], 64, []),
    ],
)
def test_the_data_is_partitioned_exactly(
    tmp_path: Path, name: str, spans: list[int], size: int, wanted: list[tuple[str, str]]
) -> None:
    """Bug report A21 (a) to (c), with an alignment of 8 so that 72 is aligned."""
    tensors = [("a", (64,), 24, spans[0]), ("b", (size,), 24, spans[1])]
    plain = raw(tensors, data_at=8)
    start = read(tmp_path, plain).data_start
    assert judged(tmp_path, plain[: start + 128]) == wanted


def test_a_trailing_byte_is_found(tmp_path: Path) -> None:
    """Bug report A21 (d)."""
    tensors = [("a", (64,), 24, 0), ("b", (64,), 24, 64)]
    plain = raw(tensors, data_at=8)
    start = read(tmp_path, plain).data_start
    assert judged(tmp_path, plain[: start + 128]) == []
    assert judged(tmp_path, plain[: start + 129]) == [("gguf.trailing", "file length")]


def test_a_shape_larger_than_its_range_is_found(tmp_path: Path) -> None:
    """Bug report A21 (e): 32 floats in 64 bytes."""
    tensors = [("a", (32,), 0, 0), ("b", (64,), 24, 64)]
    plain = raw(tensors, data_at=8)
    start = read(tmp_path, plain).data_start
    assert judged(tmp_path, plain[: start + 128]) == [("gguf.tensor.overlap", "b.offset")]


def test_integers_rewritten_in_another_type_are_other_values() -> None:
    """Bug report A22."""
    right = array(ValueType.UINT64, [5000000011, 7, 9])
    (first,) = struct.unpack("<i", struct.pack("<q", 5000000011)[:4])
    assert first == 705032715
    assert array(ValueType.INT32, [first, 7, 9]) != right
    fits = [20000003, 20000023]
    assert array(ValueType.INT32, fits) != array(ValueType.UINT64, fits)
    assert array(ValueType.INT32, fits).python() == array(ValueType.UINT64, fits).python()


@pytest.mark.parametrize(
    ("data", "code", "where"),
    [
        (b"", "gguf.magic", "magic"),
        (b"\0\0\0\0" + raw([])[4:], "gguf.magic", "magic"),
        (b"GGUF", "gguf.truncated", "version"),
        (raw([], version=2), "gguf.version", "version"),
        (raw([], counts=(2**64 - 1, 1)), "gguf.count", "tensor count"),
        (raw([], counts=(0, 2**64 - 1)), "gguf.count", "metadata count"),
        (raw([("t", (1,) * 9, 24, 0)]), "gguf.tensor.rank", "t.rank"),
        (raw([("t", (), 24, 0)]), "gguf.tensor.rank", "t.rank"),
        (raw([("", (1,), 24, 0)]), "gguf.tensor.name", "tensors[0].name"),
        (raw([], entries=[struct.pack("<Q", 2**64 - 1)]), "gguf.metadata.key", "metadata[1].key"),
        (raw([], entries=[struct.pack("<Q", 2) + b"\xff\xfe"]), "gguf.metadata.key", "metadata[1].key"),
        (raw([], entries=[text("k") + struct.pack("<I", 13)]), "gguf.metadata.type", "k"),
        (raw([], entries=[text("k") + struct.pack("<IQ", 8, 2**63)]), "gguf.truncated", "k"),
        (raw([], entries=[text("k") + struct.pack("<IIQ", 9, 4, 2**62)]), "gguf.metadata.array-length", "k"),
        (raw([], entries=[text("k") + struct.pack("<IIQ", 9, 0, 2**24 + 1)], size=2**24 + 9999), "gguf.metadata.array-length", "k"),
        (raw([], entries=[text("k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9]), "gguf.metadata.nesting", "k"),
        (raw([], data_at=48), "gguf.alignment", "general.alignment"),
        (raw([], data_at=0), "gguf.alignment", "general.alignment"),
        (raw([("t", (1,), 24, 0)], size=90), "gguf.truncated", "data start"),
    ],
)  # fmt: skip
def test_what_can_not_be_read_ends_at_its_own_clause(
    tmp_path: Path, data: bytes, code: str, where: str
) -> None:
    finding = refused(lambda: read(tmp_path, data))
    assert (finding.code, finding.where) == (code, where)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (raw([("t", (64,), 24, 0), ("t", (64,), 24, 4096)], size=4096 * 3), ("gguf.tensor.unique", "t")),
        (raw([], entries=[text("general.alignment") + struct.pack("<II", 4, 4096)]), ("gguf.metadata.unique", "general.alignment")),
        (raw([], entries=[text("b") + struct.pack("<IB", 7, 2)]), ("gguf.metadata.value", "b")),
        (raw([], entries=[text("s") + struct.pack("<IQ", 8, 1) + b"\xff"]), ("gguf.metadata.value", "s")),
        (raw([("t", (0, 4), 24, 0)]), ("gguf.tensor.dimension", "t.dim[0]")),
        (raw([("t", (64,), 99, 0)]), ("gguf.tensor.type", "t.type")),
        (raw([("t", (640,), 12, 0)]), ("gguf.tensor.blocks", "t.dim[0]")),
        (raw([("t", (64,), 24, 1)]), ("gguf.tensor.aligned", "t.offset")),
    ],
)  # fmt: skip
def test_what_is_wrong_between_records_is_collected(
    tmp_path: Path, data: bytes, found: tuple[str, str]
) -> None:
    assert found in judged(tmp_path, data)


def test_hidden_bytes_in_padding_are_found(tmp_path: Path) -> None:
    data = bytearray(raw([("t", (4096,), 24, 0)]))
    assert judged(tmp_path, bytes(data)) == []
    data[4000] = 7
    assert judged(tmp_path, bytes(data)) == [("gguf.padding", "before the data")]


def test_every_length_short_of_the_whole_file_is_refused(tmp_path: Path) -> None:
    whole = raw([("t", (4096,), 24, 0)], entries=[text("k") + encoded(array(ValueType.STRING, ["a", "b"]))])
    read(tmp_path, whole)
    for size in [*range(200), 4095, 4096, 8191]:
        assert refused(lambda size=size: read(tmp_path, whole[:size])).code in {
            "gguf.truncated",
            "gguf.magic",
            "gguf.count",
            "gguf.metadata.array-length",
        }


SCALARS = st.one_of(
    st.tuples(st.just(ValueType.UINT32), st.integers(0, 2**32 - 1)),
    st.tuples(st.just(ValueType.UINT64), st.integers(0, 2**64 - 1)),
    st.tuples(st.just(ValueType.INT64), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just(ValueType.FLOAT32), st.floats(width=32, allow_nan=False)),
    st.tuples(st.just(ValueType.FLOAT64), st.floats(allow_nan=False)),
    st.tuples(st.just(ValueType.BOOL), st.booleans()),
    st.tuples(st.just(ValueType.STRING), st.text(st.characters(exclude_categories=["Cs"]), max_size=30)),
)


@given(st.dictionaries(st.text("abc.", min_size=1, max_size=9), SCALARS, max_size=8), st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read_back_with_its_types(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, tuple[ValueType, int]], data: st.DataObject
) -> None:
    entries = [Entry(key, scalar(kind, value)) for key, (kind, value) in values.items()]
    widths = data.draw(st.lists(st.integers(1, 200), max_size=6))
    tensors = [Planned(f"t{index}", (width,), 24) for index, width in enumerate(widths)]
    plan = plan_gguf(entries, tensors)
    target = tmp_path_factory.mktemp("gguf") / "x.gguf"
    write_gguf(
        target, plan, lambda draft, index, start: draft.write(start, bytes([index + 1]) * widths[index])
    )
    with StoreFile.open(target) as file:
        found = read_gguf(file.extent())
        assert judge_gguf(found, file.extent()) == []
        assert found.entries == tuple(entries)
        assert [one.value.python() for one in found.entries] == [value for _, value in values.values()]
        for index, tensor in enumerate(found.tensors):
            start = found.data_start + tensor.offset
            assert file.extent().read(start, widths[index]) == bytes([index + 1]) * widths[index]


def test_the_public_reader_reads_what_we_write(tmp_path: Path) -> None:
    entries = [
        Entry("general.architecture", scalar(ValueType.STRING, "qwen4exp")),
        Entry("a.u32", scalar(ValueType.UINT32, 7)),
        Entry("a.f32", scalar(ValueType.FLOAT32, 0.25)),
        Entry("a.bool", scalar(ValueType.BOOL, True)),
        Entry("a.u64s", array(ValueType.UINT64, [23703573157769, 2**64 - 1])),
        Entry("a.texts", array(ValueType.STRING, ["ein", "zwei", "ö"])),
    ]
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    tensors = [Planned("w", (6, 4), 0), Planned("ds4.ple_rows.v1", (4096,), 24, page=4096)]
    plan = plan_gguf(entries, tensors)
    payloads = [values.tobytes(), bytes(range(256)) * 16]
    target = tmp_path / "x.gguf"
    write_gguf(target, plan, lambda draft, index, start: draft.write(start, payloads[index]))
    theirs = gguf.GGUFReader(target)
    ours = {entry.key: entry.value.python() for entry in entries}
    assert {key: field.contents() for key, field in theirs.fields.items() if key in ours} == ours
    assert [int(one) for one in theirs.fields["a.u64s"].types] == [9, 10]
    assert [tensor.name for tensor in theirs.tensors] == ["w", "ds4.ple_rows.v1"]
    assert np.array_equal(theirs.tensors[0].data, values)
    assert int(theirs.tensors[1].data_offset) == plan.starts[1]
    assert plan.starts[1] % 4096 == 0
    assert theirs.tensors[1].data.tobytes() == payloads[1]


def test_we_read_what_the_public_writer_writes(tmp_path: Path) -> None:
    target = tmp_path / "theirs.gguf"
    writer = gguf.GGUFWriter(str(target), "llama")
    writer.add_uint32("x.count", 3)
    writer.add_array("x.names", ["a", "b"])
    writer.add_float32("x.eps", 1e-6)
    writer.add_tensor("w", np.arange(10, dtype=np.float16))
    writer.add_tensor("v", np.ones((3, 5), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with StoreFile.open(target) as file:
        ours = read_gguf(file.extent())
        assert judge_gguf(ours, file.extent()) == []
    assert ours.value("x.count") == scalar(ValueType.UINT32, 3)
    assert ours.value("x.names") == array(ValueType.STRING, ["a", "b"])
    assert [(one.name, one.dimensions, one.bytes) for one in ours.tensors] == [
        ("w", (10,), 20),
        ("v", (5, 3), 60),
    ]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ValueType.UINT32, -1),
        (ValueType.UINT32, 2**32),
        (ValueType.UINT32, True),
        (ValueType.BOOL, 1),
        (ValueType.STRING, 3),
        (ValueType.UINT64, 1.0),
    ],
)
def test_a_value_that_is_not_of_the_type_is_not_written(kind: ValueType, value: float) -> None:
    assert refusal(lambda: scalar(kind, value)) == ("gguf.write.value", "value")
    assert refusal(lambda: array(kind, [value])) == ("gguf.write.value", "value")


def test_a_float_is_compared_by_its_bits() -> None:
    assert scalar(ValueType.FLOAT32, 0.0) != scalar(ValueType.FLOAT32, -0.0)
    assert scalar(ValueType.FLOAT32, float("nan")) == Value(ValueType.FLOAT32, None, 1, b"\0\0\xc0\x7f")


def test_a_row_that_is_not_whole_blocks_is_not_planned() -> None:
    with pytest.raises(ContractError) as caught:
        plan_gguf([], [Planned("down", (640, 4), 12)])
    assert (caught.value.finding.code, caught.value.finding.where) == ("codec.blocks.cover", "down.dim[0]")


def test_a_hostile_sparse_file_is_refused_quickly_and_without_memory(tmp_path: Path) -> None:
    """Zeros read as empty inner arrays: their number is bounded, so that a hole of gigabytes can't hold the reader."""
    import tracemalloc

    head = raw([], entries=[text("k") + struct.pack("<IIQ", 9, 9, 2**24)], size=200)
    target = tmp_path / "x.gguf"
    target.write_bytes(head)
    with target.open("r+b") as file:
        file.truncate(2**40)
    tracemalloc.start()
    with StoreFile.open(target) as opened:
        finding = refused(lambda: read_gguf(opened.extent()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (finding.code, finding.where) == ("gguf.metadata.array-length", "k")
    assert peak < 4 << 20


def test_metadata_beyond_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    head = raw([], entries=[text("a") + struct.pack("<IIQ", 9, 4, 2**24), bytes(0)], size=100)
    target = tmp_path / "x.gguf"
    target.write_bytes(head)
    with target.open("r+b") as file:
        file.truncate(2**28)
    with StoreFile.open(target) as opened:
        finding = refused(lambda: read_gguf(opened.extent()))
    assert (finding.code, finding.where) == ("gguf.metadata.size", "a")


def test_a_tensor_of_unknown_type_is_not_planned() -> None:
    with pytest.raises(ContractError) as caught:
        plan_gguf([], [Planned("t", (64,), 99)])
    assert (caught.value.finding.code, caught.value.finding.where) == ("codec.type.known", "t")


def test_padding_is_read_in_pieces_and_only_up_to_its_first_byte(tmp_path: Path) -> None:
    """A hole of 1 GiB before the second tensor; the memory stays that of a piece."""
    gib = 1 << 30
    target = tmp_path / "x.gguf"
    target.write_bytes(raw([("a", (8,), 0, 0), ("b", (8,), 0, gib)], data_at=gib, size=4096))
    with target.open("r+b") as file:
        file.truncate(2 * gib + 32)
        file.seek(5000)
        file.write(b"\x07")
    tracemalloc.start()
    with StoreFile.open(target) as file:
        extent = file.extent()
        found = judge_gguf(read_gguf(extent), extent)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(one.code, one.where, one.got) for one in found] == [
        ("gguf.padding", "before the data", "byte 0x07 at 5000")
    ]
    assert peak < 1 << 23


def test_a_file_that_is_nearly_all_padding_is_refused_unread(tmp_path: Path) -> None:
    gib = 1 << 30
    target = tmp_path / "x.gguf"
    target.write_bytes(raw([(f"t{n}", (8,), 0, n * gib) for n in range(9)], data_at=gib, size=4096))
    with target.open("r+b") as file:
        file.truncate(9 * gib + 32)
    with StoreFile.open(target) as file:
        extent = file.extent()
        assert [(one.code, one.where) for one in judge_gguf(read_gguf(extent), extent)] == [
            ("gguf.padding", "all padding")
        ]


@pytest.mark.parametrize("size", [4097, 1 << 37])
def test_bytes_behind_a_directory_without_tensors_are_found(tmp_path: Path, size: int) -> None:
    target = tmp_path / "x.gguf"
    target.write_bytes(raw([], data_at=32, size=64))
    with target.open("r+b") as file:
        file.truncate(size)
    with StoreFile.open(target) as file:
        extent = file.extent()
        assert [(one.code, one.where) for one in judge_gguf(read_gguf(extent), extent)] == [
            ("gguf.trailing", "file length")
        ]


def test_findings_beyond_64_are_counted(tmp_path: Path) -> None:
    found = judged(tmp_path, raw([(f"t{n}", (8,), 99, 0) for n in range(100)], size=1 << 16))
    assert found[:2] == [("gguf.tensor.type", "t0.type"), ("gguf.tensor.type", "t1.type")]
    assert (len(found), found[64]) == (65, ("gguf.findings", "directory"))


def test_more_records_than_the_limit_are_refused_before_they_are_read(tmp_path: Path) -> None:
    target = tmp_path / "x.gguf"
    for counts, where in (((131_073, 1), "tensor count"), ((0, 131_073), "metadata count")):
        target.write_bytes(raw([], data_at=32, size=64, counts=counts))
        with target.open("r+b") as file:
            file.truncate(1 << 24)
        with pytest.raises(AdmissionError) as caught, StoreFile.open(target) as file:
            read_gguf(file.extent())
        assert (caught.value.finding.code, caught.value.finding.where, caught.value.finding.expected) == (
            "gguf.count",
            where,
            "at most 131072",
        )


def test_text_that_is_no_unicode_is_not_written() -> None:
    assert refusal(lambda: scalar(ValueType.STRING, "\ud800")) == ("gguf.write.value", "value")


@pytest.mark.parametrize("values", [None, 3, "abc", {1: 2}, object()])
def test_what_is_no_list_is_no_array(values: object) -> None:
    assert refusal(lambda: array(ValueType.UINT32, values)) == ("gguf.write.value", "value")


@pytest.mark.parametrize("junk", [None, 3, b"a", 1.5, [4], object()])
def test_junk_is_neither_name_nor_shape_nor_type(junk: object) -> None:
    value = scalar(ValueType.UINT32, 1)
    assert refusal(lambda: plan_gguf([], [Planned(junk, (4,), 24)]))[0] == "gguf.write.plan"
    assert refusal(lambda: plan_gguf([], [Planned("a", junk, 24)])) == ("gguf.write.plan", "a")
    assert refusal(lambda: plan_gguf([], [Planned("a", (junk, "x"), 24)])) == ("gguf.write.plan", "a")
    if junk != 3:
        assert refusal(lambda: plan_gguf([], [Planned("a", (4,), junk)])) == ("codec.type.known", "a")
    assert refusal(lambda: plan_gguf([Entry(junk, value)], []))[0] == "gguf.write.plan"


def test_arrays_of_arrays_are_not_written() -> None:
    assert refusal(lambda: array(ValueType.ARRAY, [])) == ("gguf.write.value", "value")
    assert refusal(lambda: scalar(ValueType.ARRAY, 1)) == ("gguf.write.value", "value")


@pytest.mark.parametrize(
    ("planned", "words"),
    [
        (Planned("a", (), 24), "1..8 dimensions"),
        (Planned("a", (1,) * 9, 24), "1..8 dimensions"),
        (Planned("a", (-4,), 24), "dimensions in 1..2^63 - 1"),
        (Planned("a", (0,), 24), "dimensions in 1..2^63 - 1"),
        (Planned("a", (2**64,), 24), "dimensions in 1..2^63 - 1"),
        (Planned("a", (4.0,), 24), "dimensions in 1..2^63 - 1"),
        (Planned("a", (2**62, 2), 24), "fewer than 2^63 values"),
        (Planned("", (4,), 24), "a name of 1..65535 bytes"),
        (Planned("\ud800", (4,), 24), "Unicode text"),
        (Planned("a", (4,), 24, page=100), "pages of a power of two"),
    ],
)
def test_a_tensor_that_can_not_be_written_is_refused_while_planning(planned: Planned, words: str) -> None:
    with pytest.raises(ContractError) as caught:
        plan_gguf([], [planned])
    found = caught.value.finding
    assert (found.code, found.where, found.expected) == ("gguf.write.plan", shown(planned.name), words)


def test_a_name_that_stands_twice_is_refused_while_planning() -> None:
    entry = Entry("x", scalar(ValueType.UINT32, 1))
    assert refusal(lambda: plan_gguf([], [Planned("a", (4,), 24)] * 2)) == ("gguf.write.plan", "a")
    assert refusal(lambda: plan_gguf([entry, entry], [])) == ("gguf.write.plan", "x")


@pytest.mark.parametrize("alignment", [0, 48, 1 << 31])
def test_an_alignment_that_the_reader_refuses_is_not_planned(alignment: int) -> None:
    entry = Entry("general.alignment", scalar(ValueType.UINT32, alignment))
    assert refusal(lambda: plan_gguf([entry], [])) == ("gguf.write.plan", "general.alignment")
