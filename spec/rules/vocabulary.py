"""Rules of the vocabulary: sizes, the boundary of valid ids, added tokens and stops."""

from typing import Final

from assay.spec.canonical import canonical_digest
from assay.spec.contract.contract import Contract
from assay.spec.rules.base import Check, Judge, rule

SOURCE: Final = "field note AFN-005"

BOUNDARY: Final = rule(
    "vocabulary.boundary",
    "Valid ids are base plus added tokens; the rows from there to the physical width are unassigned; the two sizes differ in kind and are never derived from each other.",
    cause="One number was used for the head's rows and for the tokens.",
    source=SOURCE,
    fix="Mask the unassigned rows before any selection.",
)
PHYSICAL: Final = rule(
    "vocabulary.physical-rows",
    "The physical rows are the configured vocabulary size.",
    cause="The head was cut to the valid ids.",
    source=SOURCE,
)
ADDED: Final = rule(
    "vocabulary.added-tokens",
    "Added tokens have consecutive ids from the base size up and distinct, non-empty texts.",
    cause="A token was inserted in the middle; every later id moves.",
    source=SOURCE,
)
MAPPING_DIGEST: Final = rule(
    "vocabulary.mapping-digest",
    "The digest of the added-token mapping is that of the canonical list of id, content and special.",
    cause="A token's text or special flag was changed.",
)
SPECIAL_IDS: Final = rule(
    "vocabulary.special-ids",
    "The special ids are those of the added tokens marked special, ascending, and their digest is that of the canonical list.",
    cause="A token's special flag was changed at one place.",
)
STOPS: Final = rule(
    "vocabulary.stop-ids",
    "Generation stops at the model's end id and at the tokenizer's end id, and at nothing else.",
    cause="One of the two ids called eos was taken for both.",
    source=SOURCE,
)
NAMED_IDS: Final = rule(
    "vocabulary.named-ids",
    "Every id with a name is the id of the added token with that spelling.",
    cause="An id of a neighbouring token.",
)
MAX_LENGTH: Final = rule(
    "vocabulary.max-length",
    "The tokenizer's maximum length is the configured number of positions.",
    cause="A tokenizer of another release.",
)

SPELLINGS: Final = {
    "model_config_ids": {
        "bos": "<|endoftext|>",
        "pad": "<|endoftext|>",
        "eos": "<|endoftext|>",
        "image": "<|image_pad|>",
        "video": "<|video_pad|>",
        "vision_start": "<|vision_start|>",
        "vision_end": "<|vision_end|>",
    },
    "tokenizer_ids": {
        "end_of_text": "<|endoftext|>",
        "im_start": "<|im_start|>",
        "im_end": "<|im_end|>",
        "eos": "<|im_end|>",
        "pad": "<|endoftext|>",
        "vision_start": "<|vision_start|>",
        "vision_end": "<|vision_end|>",
        "vision_pad": "<|vision_pad|>",
        "image_pad": "<|image_pad|>",
        "video_pad": "<|video_pad|>",
    },
}


def boundary(contract: Contract, judge: Judge) -> None:
    """Two sizes and the rows between them."""
    words, text = contract.vocabulary, contract.config.text
    judge.equal(PHYSICAL, "vocabulary.physical_rows", text.vocab_size, words.physical_rows)
    valid = words.base_tokens + len(words.added_tokens)
    for name, wanted in (
        ("effective_ids", valid),
        ("largest_valid_id", words.effective_ids - 1),
        ("unassigned_first", words.effective_ids),
        ("unassigned_end", words.physical_rows),
        ("unassigned_rows", words.unassigned_end - words.unassigned_first),
    ):
        judge.equal(BOUNDARY, f"vocabulary.{name}", wanted, getattr(words, name))
    judge.holds(
        BOUNDARY,
        "vocabulary.physical_rows",
        words.physical_rows > words.effective_ids,
        f"more than {words.effective_ids}",
        words.physical_rows,
    )
    judge.equal(
        MAX_LENGTH, "vocabulary.model_max_length", text.max_position_embeddings, words.model_max_length
    )


def tokens(contract: Contract, judge: Judge) -> None:
    """Added tokens, special ids, named ids and stops."""
    words = contract.vocabulary
    seen: set[str] = set()
    for index, token in enumerate(words.added_tokens):
        where = f"vocabulary.added_tokens[{index}]"
        judge.equal(ADDED, f"{where}.id", words.base_tokens + index, token.id)
        judge.holds(ADDED, f"{where}.content", token.content not in seen, "a text of its own", token.content)
        seen.add(token.content)
    mapping = [{"id": one.id, "content": one.content, "special": one.special} for one in words.added_tokens]
    judge.equal(
        MAPPING_DIGEST,
        "vocabulary.added_token_mapping_sha256",
        canonical_digest(mapping),
        words.added_token_mapping_sha256,
    )
    special = [one.id for one in words.added_tokens if one.special]
    judge.equal(SPECIAL_IDS, "vocabulary.backend_special_ids", special, list(words.backend_special_ids))
    digest = canonical_digest(list(words.backend_special_ids))
    judge.equal(
        SPECIAL_IDS, "vocabulary.backend_special_ids_sha256", digest, words.backend_special_ids_sha256
    )
    ids = {one.content: one.id for one in words.added_tokens}
    for group, names in SPELLINGS.items():
        declared = getattr(words, group)
        for name, spelling in names.items():
            judge.equal(NAMED_IDS, f"vocabulary.{group}.{name}", ids.get(spelling), getattr(declared, name))
    judge.equal(NAMED_IDS, "vocabulary.tokenizer_ids.bos", None, words.tokenizer_ids.bos)
    stops = sorted({words.model_config_ids.eos, words.tokenizer_ids.eos})
    judge.equal(STOPS, "vocabulary.stop_ids", stops, list(words.stop_ids))


CHECKS: Final[tuple[Check, ...]] = (boundary, tokens)
