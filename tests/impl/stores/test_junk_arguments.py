"""Whatever stands where a number or a name belongs, a store says so in one typed line and makes nothing."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from assay.impl.stores.expert_major.blocks import AFFINE4, BF16
from assay.impl.stores.expert_major.families import ExpertGeometry, private_expert_family
from assay.impl.stores.expert_major.layout import Source, Storage, plan_manifest
from assay.impl.stores.expert_major.writer import write_expert_store
from assay.impl.stores.ple_rows.layout import PleGeometry
from assay.impl.stores.ple_rows.store import PleStore
from assay.impl.stores.ple_rows.tables import QWEN4EXP_ROWS, derived_table, paged, raw_codec
from assay.impl.stores.ple_rows.writer import write_ple_store
from assay.mutations import ple_store
from assay.mutations.store_memory import memory_extent
from assay.mutations.store_samples import GOLDEN_PLE, SMALL_FAMILY, golden_rows, small_component
from assay.spec.errors import AssayError, ContractError

JUNK: Final = [None, b"x", 1.5, math.nan, True, -1, 0, 2**70, [1], (1, "a"), {}, object()]
NAMES: Final = [type(one).__name__ + (f" {one}" if isinstance(one, (int, float)) else "") for one in JUNK]


def refusal(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(ContractError) as caught:
        call()
    assert "\n" not in caught.value.finding.line
    return caught.value.finding.code, caught.value.finding.where


def field_names(record: object) -> list[str]:
    return [one.name for one in dataclasses.fields(record)]


@pytest.mark.parametrize("junk", JUNK, ids=NAMES)
def test_no_field_of_a_row_geometry_takes_junk(junk: object, tmp_path: Path) -> None:
    changed: list[PleGeometry] = [
        replace(GOLDEN_PLE, **{name: junk}) for name in ("rows_per_page", "page_alignment")
    ]
    changed += [
        replace(GOLDEN_PLE, table=replace(GOLDEN_PLE.table, **{name: junk}))
        for name in field_names(GOLDEN_PLE.table)
    ]
    changed += [
        replace(GOLDEN_PLE, codec=replace(GOLDEN_PLE.codec, **{name: junk}))
        for name in field_names(GOLDEN_PLE.codec)
    ]
    primes = (junk, *GOLDEN_PLE.table.primes[1:])
    changed.append(replace(GOLDEN_PLE, table=replace(GOLDEN_PLE.table, primes=primes)))
    extent = memory_extent(ple_store.sample())
    for geometry in changed:
        code, _ = refusal(lambda geometry=geometry: write_ple_store(tmp_path / "rows", geometry, golden_rows))
        assert code.startswith("ple-store.")
        with pytest.raises(AssayError):
            PleStore.open(extent, geometry)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("junk", JUNK, ids=NAMES)
@pytest.mark.parametrize(
    ("name", "code"),
    [("base", "ple-store.heads"), ("heads", "ple-store.heads"), ("alignment", "ple-store.row-alignment")],
)
def test_no_table_is_derived_from_junk(name: str, code: str, junk: object) -> None:
    numbers = {"family": 0x80000001, "base": 11, "heads": 2, "width": 8, "alignment": 4, name: junk}
    assert refusal(lambda: derived_table(profile="x", **numbers)) == (code, name)


@pytest.mark.parametrize(
    "junk", [one for one in JUNK if one != 2**70], ids=[one for one in NAMES if "118" not in one]
)
def test_no_row_or_page_has_a_size_of_junk(junk: object) -> None:
    assert refusal(lambda: raw_codec("x", BF16, junk)) == ("codec.blocks.cover", "row of x")
    codec = raw_codec("x", BF16, 160)
    assert refusal(lambda: paged(QWEN4EXP_ROWS, codec, junk)) == ("ple-store.page.room", "page_bytes")


@pytest.mark.parametrize("junk", JUNK, ids=NAMES)
@pytest.mark.parametrize("name", field_names(ExpertGeometry(1, 1, 1, 1, 1)))
def test_no_expert_geometry_takes_junk(name: str, junk: object) -> None:
    geometry = replace(ExpertGeometry(3, 4, 2, 128, 64), **{name: junk})
    assert refusal(lambda: private_expert_family(0x80000002, "x", geometry)) == (
        "expert-store.private-family",
        f"geometry.{name}",
    )


@pytest.mark.parametrize(
    "junk", [one for one in JUNK if one is not True], ids=[one for one in NAMES if "True" not in one]
)
@pytest.mark.parametrize("name", ["tensor_count", "size_bytes", "sha256"])
def test_no_source_is_junk(name: str, junk: object, tmp_path: Path) -> None:
    geometry = SMALL_FAMILY.geometry
    assert geometry is not None
    source = replace(Source(40, 1, bytes(32)), **{name: junk})
    manifest = plan_manifest(
        SMALL_FAMILY.id, Storage.MLX_AFFINE4, experts=4, used=2, layers=geometry.shapes(AFFINE4), source=source
    )  # fmt: skip
    code, where = refusal(
        lambda: write_expert_store(tmp_path / "store", manifest, SMALL_FAMILY, small_component)
    )
    assert code in {"expert-store.plan", "expert-store.source"}
    assert where in {"manifest", "source_sha256", "source_bytes", "source_tensor_count"}
    assert list(tmp_path.iterdir()) == []
