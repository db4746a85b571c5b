"""Rules of the per-layer embedding: primes, offsets, multipliers, product bounds and the extent of the table."""

from typing import Final

from assay.spec.contract.contract import Contract
from assay.spec.hashing import align_up, is_prime, primes_after, splitmix64
from assay.spec.rules.base import Check, Judge, rule

LONGEST_NGRAM: Final = 64
SOURCE: Final = "transformers, hash of the n-gram embedding; published rows and primes"

DERIVATION: Final = rule(
    "ple.hash.derivation",
    "The mixing constants are those of SplitMix64, the mask has 64 bits, and the bound is the largest signed 64-bit integer.",
    cause="A constant mistyped in one digit: all multipliers move, and all rows with them.",
    source="SplitMix64 (Steele, Lea, Flood 2014), as transformers uses it",
)
SEED: Final = rule(
    "ple.hash.seed",
    "The seed of the hash is the default seed of the configuration.",
    cause="A seed written into the file by a converter.",
    source=SOURCE,
)
ORDINAL: Final = rule(
    "ple.hash.ordinal",
    "The hash uses the ordinal of the embedding among its kind, counted from zero, not its layer.",
    cause="The layer number was used as ordinal.",
    source=SOURCE,
)
MULTIPLIERS: Final = rule(
    "ple.hash.multipliers",
    "Multiplier i is twice the SplitMix64 output of seed, ordinal and i, reduced below half of the bound, plus one.",
    cause="A multiplier narrowed to 32 bits, or derived from the tokenizer's size instead of the padded one.",
    source=SOURCE,
)
MULTIPLIER_BOUND: Final = rule(
    "ple.hash.multiplier-bound",
    "Every multiplier is odd and at most max_long // vocab_size.",
    cause="A multiplier of another vocabulary size.",
    source=SOURCE,
)
PRIMES: Final = rule(
    "ple.hash.primes",
    "The head moduli are prime, and are the consecutive primes after ngram_vocab_size_base - 1.",
    cause="A prime was skipped or repeated; heads after it then read other rows.",
    source=SOURCE,
)
OFFSETS: Final = rule(
    "ple.hash.offsets",
    "Offset 0 is zero and each further offset is the sum of the primes before it.",
    cause="An offset narrowed or shifted by one head.",
    source=SOURCE,
)
TOTAL: Final = rule(
    "ple.hash.total-rows",
    "The rows of all heads are the sum of the primes.",
    cause="A total kept from an older prime list.",
    source=SOURCE,
)
PADDED: Final = rule(
    "ple.hash.padded-rows",
    "The padded rows are the total rounded up to make_ngram_vocab_size_divisible_by.",
    cause="Padding rows were dropped in a conversion.",
    source=SOURCE,
)
PRODUCT: Final = rule(
    "ple.hash.product-bound",
    "The largest product is the largest token id times the largest multiplier and stays below 2^63 - 1, so signed and unsigned arithmetic agree.",
    cause="A wider vocabulary or a larger multiplier; the remainder then depends on the sign.",
    source=SOURCE,
)
SAFETY: Final = rule(
    "ple.hash.safety",
    "The four sentences on the safety of the hash are distinct.",
    cause="A sentence was dropped.",
)
EXTENT: Final = rule(
    "ple.extent.geometry",
    "Rows, head rows, padding, width and alignment of the row store are those of the hash and the configuration.",
    cause="The store was made from another hash, or from the unpadded table.",
)
SHARDS: Final = rule(
    "ple.extent.shards",
    "The embedding is split into split_ngram_parts equal shards that together have all padded rows.",
    cause="A conversion that merged or re-split the table.",
)
PROFILE: Final = rule(
    "ple.extent.profile",
    "The row store names the profile of the identity and a hash id of at most 31 bytes; both fit the wire's fields.",
    cause="A store of another profile.",
)
WIRE: Final = rule(
    "ple.extent.wire",
    "The wire is little-endian; digests have the bytes of SHA-256; header and page header have room for their fields; both and the page alignment are powers of two that contain each other.",
    cause="A container written for another reader.",
)
PENDING: Final = rule(
    "ple.extent.pending",
    "A decision that is listed as pending says so; nothing here can freeze it.",
    cause="A fixture's codec was taken for a production decision.",
)


HEADER_FIXED_BYTES: Final = 216
"""Bytes of the manifest header before its tables: magic, ids, codec, page geometry and extents."""
PAGE_HEADER_FIXED_BYTES: Final = 64
"""Bytes of a page header: magic, index, first row and nine u32."""


def derivation(contract: Contract, judge: Judge) -> None:
    """Mixing constants, seed, ordinal and multipliers."""
    hash_, text = contract.ple_hash, contract.config.text
    parts = hash_.derivation
    for name, value in (
        ("mask64", 2**64 - 1),
        ("splitmix_gamma", 0x9E3779B97F4A7C15),
        ("splitmix_m1", 0xBF58476D1CE4E5B9),
        ("splitmix_m2", 0x94D049BB133111EB),
    ):
        judge.equal(DERIVATION, f"ple_hash.derivation.{name}", f"0x{value:016x}", getattr(parts, name))
    judge.equal(DERIVATION, "ple_hash.derivation.max_long", 2**63 - 1, parts.max_long)
    judge.equal(SEED, "ple_hash.seed", contract.config.seed.value, hash_.seed)
    judge.holds(
        ORDINAL,
        "ple_hash.ple_layer_index",
        hash_.ple_layer_index < len(text.ple_layer_ids),
        f"an ordinal below {len(text.ple_layer_ids)}",
        hash_.ple_layer_index,
    )
    bound = parts.max_long // text.vocab_size
    gamma, m1, m2 = (int(value, 16) for value in (parts.splitmix_gamma, parts.splitmix_m1, parts.splitmix_m2))
    start = hash_.seed + parts.prime_step * hash_.ple_layer_index
    if text.ngram_size > LONGEST_NGRAM:
        raise ValueError(f"an n-gram of {text.ngram_size} tokens has no multipliers")
    wanted = [
        2 * (splitmix64(start + gamma * (index + 1), gamma=gamma, m1=m1, m2=m2) % max(1, bound // 2)) + 1
        for index in range(text.ngram_size)
    ]
    judge.items(MULTIPLIERS, "ple_hash.layer_multipliers", wanted, hash_.layer_multipliers)
    for index, value in enumerate(hash_.layer_multipliers):
        judge.holds(
            MULTIPLIER_BOUND,
            f"ple_hash.layer_multipliers[{index}]",
            value % 2 == 1 and value <= bound,
            f"odd and at most {bound}",
            value,
        )


def table(contract: Contract, judge: Judge) -> None:
    """Primes, offsets, totals and the largest product."""
    hash_, text = contract.ple_hash, contract.config.text
    heads = (text.ngram_size - 1) * text.heads_per_ngram
    wanted = primes_after(text.ngram_vocab_size_base - 1, heads, skip=hash_.ple_layer_index * heads)
    judge.items(PRIMES, "ple_hash.head_primes", wanted, hash_.head_primes)
    for index, prime in enumerate(hash_.head_primes):
        judge.holds(PRIMES, f"ple_hash.head_primes[{index}]", is_prime(prime), "a prime", prime)
    offsets = [sum(hash_.head_primes[:index]) for index in range(len(hash_.head_primes))]
    judge.items(OFFSETS, "ple_hash.head_offsets", offsets, hash_.head_offsets)
    total = sum(hash_.head_primes)
    judge.equal(TOTAL, "ple_hash.total_head_rows", total, hash_.total_head_rows)
    padded = align_up(hash_.total_head_rows, text.make_ngram_vocab_size_divisible_by)
    judge.equal(PADDED, "ple_hash.padded_rows", padded, hash_.padded_rows)
    product = (text.vocab_size - 1) * max(hash_.layer_multipliers)
    judge.equal(PRODUCT, "ple_hash.max_hash_product", product, hash_.max_hash_product)
    judge.holds(
        PRODUCT,
        "ple_hash.max_hash_product",
        hash_.max_hash_product < 2**63 - 1,
        "below 9223372036854775807",
        hash_.max_hash_product,
    )
    judge.equal(SAFETY, "ple_hash.hash_safety", 4, len(set(hash_.hash_safety)))


def extent(contract: Contract, judge: Judge) -> None:
    """The row store has the geometry of the hash."""
    store, hash_, text = contract.ple_extent, contract.ple_hash, contract.config.text
    heads = (text.ngram_size - 1) * text.heads_per_ngram
    for name, wanted in (
        ("rows", hash_.padded_rows),
        ("head_rows", hash_.total_head_rows),
        ("padding_rows", hash_.padded_rows - hash_.total_head_rows),
        ("row_width", text.ple_embed_dim // heads),
        ("row_alignment", text.make_ngram_vocab_size_divisible_by),
    ):
        judge.equal(EXTENT, f"ple_extent.{name}", wanted, getattr(store, name))
    judge.equal(
        SHARDS, "ple_extent.embedding_shard_count", text.split_ngram_parts, store.embedding_shard_count
    )
    judge.equal(
        SHARDS,
        "ple_extent.embedding_shard_rows",
        store.rows,
        store.embedding_shard_rows * store.embedding_shard_count,
    )
    judge.equal(PROFILE, "ple_extent.profile_id", contract.identity.profile_id, store.profile_id)
    for name in ("profile_id", "hash_id"):
        value: str = getattr(store, name)
        judge.holds(
            PROFILE,
            f"ple_extent.{name}",
            0 < len(value.encode()) <= 31,
            "1 to 31 bytes",
            f"{len(value.encode())}",
        )
    wire = store.wire_format
    judge.equal(WIRE, "ple_extent.wire_format.endianness", "little", wire.endianness)
    judge.equal(WIRE, "ple_extent.wire_format.page_digest_algorithm", "SHA-256", wire.page_digest_algorithm)
    judge.equal(WIRE, "ple_extent.wire_format.page_digest_bytes", 256 // 8, wire.page_digest_bytes)
    sizes = (wire.page_header_bytes, wire.header_bytes, wire.minimum_page_alignment)
    judge.holds(
        WIRE,
        "ple_extent.wire_format",
        sizes[0] < sizes[1] < sizes[2] and all(size & (size - 1) == 0 for size in sizes),
        "page header < header < page alignment, all powers of two",
        sizes,
    )
    # Fixed fields, two u32 tables with an entry for each head, two digests; a page header has fixed fields only.
    fields = HEADER_FIXED_BYTES + 2 * 4 * len(contract.ple_hash.head_primes) + 2 * wire.page_digest_bytes
    for name, size, room in (
        ("header_bytes", wire.header_bytes, fields),
        ("page_header_bytes", wire.page_header_bytes, PAGE_HEADER_FIXED_BYTES),
    ):
        judge.holds(WIRE, f"ple_extent.wire_format.{name}", size >= room, f"room for {room} bytes", size)
    for index, decision in enumerate(store.pending_decisions):
        judge.equal(PENDING, f"ple_extent.pending_decisions[{index}].state", "pending", decision.state)
    if contract.visibility == "public":
        subjects = [decision.subject for decision in store.pending_decisions]
        judge.equal(PENDING, "ple_extent.pending_decisions", ["codec", "page-geometry"], subjects)


CHECKS: Final[tuple[Check, ...]] = (derivation, table, extent)
