"""Stores of any legal geometry: what is written is what is read, and any single changed byte is noticed."""

import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.impl.stores.expert_major.blocks import AFFINE4, BF16, F32, Block
from assay.impl.stores.expert_major.families import ExpertGeometry, private_expert_family
from assay.impl.stores.expert_major.layout import Source, Storage, plan_manifest
from assay.impl.stores.expert_major.store import ExpertStore, judge_expert_store
from assay.impl.stores.expert_major.writer import write_expert_store
from assay.impl.stores.ple_rows.layout import PleGeometry, RowCodec
from assay.impl.stores.ple_rows.store import PleStore, judge_ple_store
from assay.impl.stores.ple_rows.tables import derived_table
from assay.impl.stores.ple_rows.writer import write_ple_store
from assay.mutations.store_memory import memory_extent
from assay.mutations.store_samples import golden_ple, sample_bytes, small_component


@st.composite
def expert_shapes(draw: st.DrawFn) -> tuple[ExpertGeometry, Block]:
    block = draw(st.sampled_from([F32, BF16, AFFINE4]))
    unit = 64 if block is AFFINE4 else 1
    experts = draw(st.integers(1, 6))
    return ExpertGeometry(
        draw(st.integers(1, 4)),
        experts,
        draw(st.integers(1, experts)),
        unit * draw(st.integers(1, 3)),
        unit * draw(st.integers(1, 3)),
    ), block


@st.composite
def row_shapes(draw: st.DrawFn) -> PleGeometry:
    table = derived_table(
        family=0x80000006,
        profile="assay-any-v1",
        base=draw(st.integers(2, 40)),
        heads=draw(st.integers(1, 16)),
        width=draw(st.integers(1, 20)),
        alignment=draw(st.sampled_from([1, 2, 16, 128])),
    )
    codec = RowCodec("any", draw(st.integers(1, 9)), draw(st.integers(1, 64)), draw(st.integers(1, 700)))
    return PleGeometry(table, codec, draw(st.integers(1, 300)), draw(st.sampled_from([4096, 8192])))


@given(expert_shapes(), st.data())
@settings(max_examples=25, deadline=None)
def test_any_expert_geometry_is_written_and_read(
    tmp_path_factory: pytest.TempPathFactory, shape: tuple[ExpertGeometry, Block], data: st.DataObject
) -> None:
    geometry, block = shape
    storage = Storage.MLX_AFFINE4 if block is AFFINE4 else Storage.GGML
    family = private_expert_family(0x80000006, "assay-any-v1", geometry)
    manifest = plan_manifest(
        family.id, storage, experts=geometry.experts, used=geometry.used, layers=geometry.shapes(block),
        source=Source(3 * geometry.layers + 1, 1, bytes(32)),
    )  # fmt: skip
    target = tmp_path_factory.mktemp("any") / "store"
    write_expert_store(target, manifest, family, small_component)
    stored = target.read_bytes()
    store = ExpertStore.open(memory_extent(stored), family)
    layer, expert = (
        data.draw(st.integers(0, geometry.layers - 1)),
        data.draw(st.integers(0, geometry.experts - 1)),
    )
    record = store.read_record(layer, expert)
    for role, component in enumerate(record.layer.components):
        assert record.component(role) == sample_bytes(layer, role, expert, component.expert_bytes)
    place = data.draw(st.integers(0, len(stored) - 1))
    changed = stored[:place] + bytes([stored[place] ^ 0x10]) + stored[place + 1 :]
    found, findings = judge_expert_store(memory_extent(changed), family)
    if not findings and found is not None:
        findings = list(ExpertStore(memory_extent(changed), found).verify_all(threads=1).findings)
    assert findings, f"byte {place} is free"


@given(row_shapes(), st.data())
@settings(max_examples=25, deadline=None)
def test_any_row_geometry_is_written_and_read(
    tmp_path_factory: pytest.TempPathFactory, geometry: PleGeometry, data: st.DataObject
) -> None:
    size, rows = geometry.codec.row_bytes, geometry.table.rows

    def row(number: int) -> bytes:
        return (struct.pack("<I", number) * (size // 4 + 1))[:size]

    target = tmp_path_factory.mktemp("any") / "store"
    write_ple_store(target, geometry, lambda first, count: b"".join(row(first + one) for one in range(count)))
    stored = target.read_bytes()
    assert len(stored) == geometry.store_bytes
    wanted = data.draw(st.lists(st.integers(0, rows - 1), max_size=12))
    store = PleStore.open(
        memory_extent(stored), geometry, table_budget=data.draw(st.sampled_from([0, 1 << 20]))
    )
    assert store.read_rows(wanted) == b"".join(map(row, wanted))
    place = data.draw(st.integers(0, len(stored) - 1))
    changed = memory_extent(stored[:place] + bytes([stored[place] ^ 0x10]) + stored[place + 1 :])
    findings = judge_ple_store(changed, geometry)[1]
    if not findings:
        findings = list(PleStore.open(changed, geometry).verify_all(threads=1).findings)
    assert findings, f"byte {place} is free"


@given(st.binary(max_size=600))
@settings(max_examples=60, deadline=None)
def test_noise_is_refused_by_a_typed_finding(noise: bytes) -> None:
    family = private_expert_family(0x80000006, "", None)
    for start in (b"", b"DS4EXPV2"):
        assert judge_expert_store(memory_extent(start + noise), family)[1]


def test_stores_are_judged_where_numpy_and_mlx_can_not_be_imported(tmp_path: Path) -> None:
    golden_ple(tmp_path / "rows")
    code = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'mlx', 'torch', 'numpy', 'transformers'}:\n"
        "            raise ImportError(f'{name} is refused')\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "import assay.impl.stores.expert_major.repack, assay.impl.stores.expert_major.record_digests\n"
        "from assay.provenance.cli import main\n"
        f"sys.exit(main(['validate', {str(tmp_path / 'rows')!r}, '--payload', '-q']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert "ple-store.table" in done.stdout
