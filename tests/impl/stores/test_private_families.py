"""Private descriptors follow from a configuration and can't be confused with public ones."""

import pytest

from assay.impl.stores.expert_major.families import PUBLIC, QWEN4EXP, ExpertGeometry
from assay.impl.stores.ple_rows.tables import QWEN4EXP_ROWS, derived_table
from assay.impl.stores.private_families import private_stores
from assay.spec.errors import ContractError

MINIATURE = {
    "num_hidden_layers": 8, "num_experts": 16, "num_experts_per_tok": 4, "hidden_size": 64,
    "moe_intermediate_size": 64, "ple_embed_dim": 64, "heads_per_ngram": 8, "ngram_size": 3,
    "ngram_vocab_size_base": 499, "make_ngram_vocab_size_divisible_by": 16, "ple_layer_ids": [2],
    "vocab_size": 384,
}  # fmt: skip


def test_the_rule_gives_the_published_table_of_the_public_profile() -> None:
    table = derived_table(
        family=4, profile="qwen4exp-base-v1", base=20_000_000, heads=16, width=160, alignment=128
    )
    assert table == QWEN4EXP_ROWS


def test_the_miniature_has_its_own_id_and_name() -> None:
    stores = private_stores(MINIATURE)
    assert (stores.family.id, stores.family.profile) == (0x80000001, "assay-miniature-v1")
    assert stores.family.geometry == ExpertGeometry(8, 16, 4, 64, 64)
    # Primes from 499 on, by hand.
    assert stores.rows.primes[:5] == (499, 503, 509, 521, 523)
    assert stores.rows.primes[-1] == 601
    assert (stores.rows.width, stores.rows.rows % 16) == (4, 0)
    assert 0 <= stores.rows.rows - sum(stores.rows.primes) < 16


def test_another_geometry_has_another_private_id_and_name() -> None:
    names = set()
    for change in (
        {},
        {"hidden_size": 128},
        {"num_experts": 32},
        {"ngram_vocab_size_base": 1000},
        {"seed": 99},
        {"vocab_size": 77},
    ):
        stores = private_stores({**MINIATURE, **change})
        assert stores.family.is_private
        assert stores.family.id == stores.rows.family
        assert stores.family.profile == stores.rows.profile
        assert len(stores.family.profile) <= 31
        names.add((stores.family.id, stores.family.profile))
    assert len(names) == 6


def test_even_the_public_geometry_is_private_when_it_is_derived() -> None:
    geometry = QWEN4EXP.geometry
    assert geometry is not None
    stores = private_stores({
        **MINIATURE, "num_hidden_layers": 48, "num_experts": 512, "num_experts_per_tok": 10, "hidden_size": 2560,
        "moe_intermediate_size": 640, "ple_embed_dim": 2560, "ngram_vocab_size_base": 20_000_000,
        "make_ngram_vocab_size_divisible_by": 128,
    })  # fmt: skip
    assert stores.family.id not in PUBLIC
    assert stores.family.profile != QWEN4EXP.profile
    assert stores.family.geometry == geometry
    assert stores.rows.primes == QWEN4EXP_ROWS.primes


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"num_experts": 513}, "num_experts"),
        ({"num_hidden_layers": 80}, "num_hidden_layers"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"hidden_size": "64"}, "hidden_size"),
        ({"ple_layer_ids": [2, 4]}, "ple_layer_ids"),
        ({"ple_layer_ids": None}, "ple_layer_ids"),
        ({"ngram_size": 4}, "heads_per_ngram"),
        ({"ngram_size": 1}, "heads_per_ngram"),
        ({"ple_embed_dim": 65}, "ple_embed_dim"),
        ({"ple_layer_ids": [99]}, "ple_layer_ids"),
        ({"ple_layer_ids": ["a"]}, "ple_layer_ids"),
        ({"make_ngram_vocab_size_divisible_by": 100}, "make_ngram_vocab_size_divisible_by"),
        ({"ngram_vocab_size_base": 1 << 31}, "ngram_vocab_size_base"),
        ({"ngram_vocab_size_base": 286_331_153}, "ngram_vocab_size_base"),
        ({"num_experts_per_tok": 17}, "num_experts_per_tok"),
        ({"seed": -1}, "seed"),
        ({"vocab_size": None}, "vocab_size"),
    ],
)
def test_what_the_containers_can_not_hold_is_refused_by_its_key(change: dict[str, object], key: str) -> None:
    with pytest.raises(ContractError) as caught:
        private_stores({**MINIATURE, **change})
    assert (caught.value.finding.code, caught.value.finding.where) == (
        "private.geometry",
        f"text_config.{key}",
    )
