"""Derives the three PLE hash buffers from a configuration, and judges a config by what follows from it.

A port that hashes with another vocabulary size, seed or base gets valid-looking rows of the wrong tokens. So the
derivation is run on the values in the file, and its results are compared with those that the profile pins.
"""

from dataclasses import dataclass
from itertools import accumulate, count, islice
from math import isqrt
from typing import Any, Final

from assay.spec.clauses import Authority, declare
from assay.spec.contract import Contract
from assay.spec.errors import Finding

INPUTS: Final = declare(
    "checkpoint.hash.inputs", Authority.FORM, "The config holds every value that the PLE hash is derived from.",
    source="transformers 5.24.0 Qwen4ExpTextConfig", cause="a conversion that dropped the fields of the embedding",
)  # fmt: skip
MULTIPLIERS: Final = declare(
    "checkpoint.hash.multipliers", Authority.RULE, "The multipliers derived from the config are those of the profile.",
    source="transformers 5.24.0; SplitMix64", cause="the tokenizer's size in the place of vocab_size, or another seed",
)  # fmt: skip
PRIMES: Final = declare(
    "checkpoint.hash.primes", Authority.RULE, "The primes and offsets derived from the config are those of the profile.",
    source="transformers 5.24.0", cause="another ngram_vocab_size_base, n-gram size or number of heads",
)  # fmt: skip
ROWS: Final = declare(
    "checkpoint.hash.rows", Authority.RULE, "The rows of the table follow from the primes and the divisor.",
    source="transformers 5.24.0", cause="another make_ngram_vocab_size_divisible_by",
)  # fmt: skip

STAGE: Final = "hash"
_MASK: Final = (1 << 64) - 1
_LARGEST: Final = 1 << 36  # keeps trial division bounded whatever the file says
_MOST_HEADS: Final = 64
_FIELDS: Final = (
    "vocab_size", "ngram_size", "heads_per_ngram", "ngram_vocab_size_base", "make_ngram_vocab_size_divisible_by"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class HashBuffers:
    """The derived buffers: int64 [ngram_size], [heads], [heads], and the padded number of rows."""

    multipliers: tuple[int, ...]
    primes: tuple[int, ...]
    offsets: tuple[int, ...]
    padded_rows: int


def derive_hash_buffers(
    text_config: dict[str, Any], *, seed: int, ordinal: int, prime_step: int
) -> HashBuffers:
    """Derives the buffers of one PLE layer.

    Args:
        text_config: holds the five fields named in `_FIELDS`, each a positive integer.
        seed: of the model class, unless the config has its own.
        ordinal: position of the layer among the PLE layers, from 0.
        prime_step: added to the seed for each ordinal.
    """
    vocabulary, order, per_gram, base, divisor = (text_config[field] for field in _FIELDS)
    half = max(1, ((1 << 63) - 1) // vocabulary // 2)
    multipliers = tuple(
        2 * (_splitmix(seed + prime_step * ordinal + 0x9E3779B97F4A7C15 * (lag + 1)) % half) + 1
        for lag in range(order)
    )
    heads = (order - 1) * per_gram
    primes = tuple(islice((n for n in count(base) if _is_prime(n)), ordinal * heads, (ordinal + 1) * heads))
    offsets = (0, *accumulate(primes))
    return HashBuffers(multipliers, primes, offsets[:-1], -(-offsets[-1] // divisor) * divisor)


def judge_hash(config: dict[str, Any], contract: Contract, *, file: str = "config.json") -> list[Finding]:
    """Derives the buffers from a config and returns every disagreement with the profile."""
    text = config.get("text_config")
    fields = text if isinstance(text, dict) else {}
    wrong = [
        Finding.of(
            INPUTS,
            STAGE,
            f"{file}: text_config.{field}",
            expected=f"1 to {_LARGEST}",
            got=fields.get(field, "nothing"),
        )
        for field in _FIELDS
        if type(fields.get(field)) is not int or not 1 <= fields[field] <= _LARGEST
    ]
    if not wrong and (fields["ngram_size"] - 1) * fields["heads_per_ngram"] > _MOST_HEADS:
        wrong = [
            Finding.of(
                INPUTS, STAGE, f"{file}: text_config.heads_per_ngram",
                expected=f"at most {_MOST_HEADS} heads", got=fields["heads_per_ngram"],
            )
        ]  # fmt: skip
    if wrong:
        return wrong
    pinned = contract.ple_hash
    seed = fields.get("seed", contract.config.seed.value)
    derived = derive_hash_buffers(
        fields,
        seed=seed if type(seed) is int else contract.config.seed.value,
        ordinal=pinned.ple_layer_index,
        prime_step=pinned.derivation.prime_step,
    )
    found = [
        (MULTIPLIERS, "layer_multipliers", pinned.layer_multipliers, derived.multipliers),
        (PRIMES, "ngram_heads_vocab_sizes", pinned.head_primes, derived.primes),
        (PRIMES, "ngram_heads_offsets", pinned.head_offsets, derived.offsets),
        (ROWS, "padded rows", pinned.padded_rows, derived.padded_rows),
    ]
    return [
        Finding.of(code, STAGE, f"derived from {file}: {name}", expected=expected, got=got)
        for code, name, expected, got in found
        if expected != got
    ]


def _splitmix(x: int) -> int:
    x &= _MASK
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def _is_prime(n: int) -> bool:
    if n < 2 or n % 2 == 0:
        return n == 2
    return all(n % divisor for divisor in range(3, isqrt(n) + 1, 2))
