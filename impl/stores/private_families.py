"""Private descriptors: which stores a configuration of another geometry has, and under which names.

A private family has an id from 0x80000000 up and a profile name that no public profile can have. Both follow from
the geometry, so that two configurations share them only when their stores are interchangeable.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from assay.impl.stores.expert_major.families import (
    PRIVATE_BASE,
    ExpertFamily,
    ExpertGeometry,
    private_expert_family,
)
from assay.impl.stores.ple_rows.layout import MAX_HEADS, RowTable
from assay.impl.stores.ple_rows.tables import derived_table
from assay.spec.canonical import canonical_digest
from assay.spec.clauses import Authority, declare
from assay.spec.errors import ContractError, Finding

GEOMETRY: Final = declare(
    "private.geometry",
    Authority.FORM,
    "A configuration names the sizes that its stores follow from, and the containers can hold them.",
    source="ExpertMajor v2 and PLE rows v1, limits; private families",
    cause="a configuration of another architecture, more than 16 hash heads, or more than one PLE layer",
)

MINIATURE_ID: Final = 0x80000001
MINIATURE_PROFILE: Final = "assay-miniature-v1"
_OFFSETS: Final = 1 << 32
_LIMITS: Final = {"num_hidden_layers": 79, "num_experts": 512}
_KEYS: Final = (
    "num_hidden_layers", "num_experts", "num_experts_per_tok", "hidden_size", "moe_intermediate_size",
    "ple_embed_dim", "heads_per_ngram", "ngram_size", "ngram_vocab_size_base", "make_ngram_vocab_size_divisible_by",
    "vocab_size",
)  # fmt: skip
_DEFAULT_SEED: Final = 1234
_MINIATURE: Final = {
    "num_hidden_layers": 8, "num_experts": 16, "num_experts_per_tok": 4, "hidden_size": 64,
    "moe_intermediate_size": 64, "ple_embed_dim": 64, "heads_per_ngram": 8, "ngram_size": 3,
    "ngram_vocab_size_base": 499, "make_ngram_vocab_size_divisible_by": 16, "vocab_size": 384, "seed": _DEFAULT_SEED,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PrivateStores:
    """The two stores of a private configuration."""

    family: ExpertFamily
    rows: RowTable


def private_stores(text_config: Mapping[str, Any]) -> PrivateStores:
    """Returns the descriptors of a configuration's expert store and row table.

    Args:
        text_config: the `text_config` of a checkpoint's configuration.

    Raises:
        ContractError: private.geometry, naming the key.
    """
    sizes = {key: _size(text_config, key) for key in _KEYS}
    seed = text_config.get("seed", _DEFAULT_SEED)
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 1 << 63:
        raise _error("seed", "an integer in 0..2^63 - 1", seed)
    layers = text_config.get("ple_layer_ids")
    if not isinstance(layers, list) or len(layers) != 1:
        raise _error("ple_layer_ids", "one layer, for one row table", layers)
    most = sizes["num_hidden_layers"]
    if not isinstance(layers[0], int) or isinstance(layers[0], bool) or not 1 <= layers[0] <= most:
        raise _error("ple_layer_ids", f"a layer in 1..{most}", layers)
    if sizes["num_experts_per_tok"] > sizes["num_experts"]:
        raise _error("num_experts_per_tok", f"at most {sizes['num_experts']}", sizes["num_experts_per_tok"])
    alignment = sizes["make_ngram_vocab_size_divisible_by"]
    if alignment & (alignment - 1):
        raise _error("make_ngram_vocab_size_divisible_by", "a power of two", alignment)
    heads = sizes["heads_per_ngram"] * (sizes["ngram_size"] - 1)
    if not 1 <= heads <= MAX_HEADS:
        raise _error("heads_per_ngram", f"1..{MAX_HEADS} heads in all", heads)
    if sizes["ple_embed_dim"] % heads:
        raise _error("ple_embed_dim", f"a multiple of {heads} heads", sizes["ple_embed_dim"])
    base = sizes["ngram_vocab_size_base"]
    if base * (heads - 1) >= _OFFSETS:
        raise _error("ngram_vocab_size_base", f"offsets of {heads} heads below 2^32", base)
    geometry = ExpertGeometry(
        sizes["num_hidden_layers"],
        sizes["num_experts"],
        sizes["num_experts_per_tok"],
        sizes["hidden_size"],
        sizes["moe_intermediate_size"],
    )
    number, profile = _names({**sizes, "seed": seed})
    table = derived_table(
        family=number,
        profile=profile,
        base=base,
        heads=heads,
        width=sizes["ple_embed_dim"] // heads,
        alignment=alignment,
    )
    if table.offsets[-1] >= _OFFSETS:
        raise _error("ngram_vocab_size_base", f"offsets of {heads} heads below 2^32", base)
    return PrivateStores(private_expert_family(number, profile, geometry), table)


def _names(sizes: dict[str, int]) -> tuple[int, str]:
    """Returns id and profile of sizes and seed, which place the rows; the miniature has a name of its own."""
    if sizes == _MINIATURE:
        return MINIATURE_ID, MINIATURE_PROFILE
    digest = canonical_digest(sizes)
    # The lowest 256 ids are for names given by hand.
    number = PRIVATE_BASE | 0x100 | int(digest[:8], 16) & 0x7FFFFFFF
    return number, f"assay-private-{digest[:12]}-v1"


def _size(text_config: Mapping[str, Any], key: str) -> int:
    value = text_config.get(key)
    most = _LIMITS.get(key, 1 << 31)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise _error(key, f"an integer in 1..{most}", value)
    return value


def _error(key: str, expected: object, got: object) -> ContractError:
    return ContractError(Finding.of(GEOMETRY, "private", f"text_config.{key}", expected=expected, got=got))
