"""The text contract: what the tokenizer, the chat template and the vocabulary of one profile must be.

Four facts about ids are kept apart on purpose: how many rows the output matrix has, how many ids the tokenizer can
make, which of them are added tokens, and which stop generation. None of them is derived from another.

Source: field notes AFN-005 to AFN-008; the published tokenizer files of the pinned revision.
"""

from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from assay.spec.documents.base import Document, Sha256

Id = Annotated[int, Field(ge=0)]
FileName = Literal[
    "tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "chat_template.jinja"
]


class FilePin(Document):
    """Size and digest of one published file."""

    name: FileName
    size_bytes: Annotated[int, Field(ge=1)]
    sha256: Sha256


class AddedToken(Document):
    """One token that stands outside the merges; it matches its exact spelling and nothing else."""

    id: Id
    content: Annotated[str, Field(min_length=1)]
    special: bool


class LiteralPin(Document):
    """A text that the template carries, known by length and digest and never stored."""

    name: Literal["effort.xhigh", "effort.low", "tools.heading", "tools.instructions"]
    size_bytes: Annotated[int, Field(ge=1)]
    sha256: Sha256


class DeclaredIds(Document):
    """Special ids under the names by which the tokenizer's configuration declares them."""

    bos: Id | None
    eos: Id
    pad: Id


class TextContract(Document):
    """The text pipeline of one profile.

    Attributes:
        profile: id of the profile.
        normalizer: the only normalisation before the pattern.
        pattern: the pre-tokenizer expression, exact.
        older_pattern: what a convenience constructor builds instead; never authoritative.
        base_vocabulary: ids made by merges, `[0, base_vocabulary)`.
        effective_ids: ids that the tokenizer can make; sampling stays below.
        physical_rows: rows of the output matrix.
        added: the added tokens, by id.
        control_atoms: spellings that the template may write as control.
        stop_ids: ids after which generation stops.
        declared: special ids of the tokenizer's configuration.
        roles: the closed set of message roles.
        efforts: the closed set of reasoning efforts, the default first.
        files: digests of the published files.
        vocabulary_sha256: digest of the canonical JSON of the mapping from token to id.
        merges_sha256: digest of the canonical JSON of the list of merge pairs, by rank.
        literals: texts of the template that an oracle needs, by digest.
    """

    profile: Annotated[str, Field(min_length=1)]
    normalizer: Literal["NFC"] = "NFC"
    pattern: str
    older_pattern: str
    base_vocabulary: Id
    effective_ids: Id
    physical_rows: Id
    added: tuple[AddedToken, ...]
    control_atoms: tuple[str, ...]
    stop_ids: tuple[Id, ...]
    declared: DeclaredIds
    roles: tuple[str, ...] = ("system", "user", "assistant", "tool")
    efforts: tuple[str, ...] = ("xhigh", "medium", "low")
    files: tuple[FilePin, ...]
    vocabulary_sha256: Sha256
    merges_sha256: Sha256
    literals: tuple[LiteralPin, ...]

    @model_validator(mode="after")
    def _numbers_agree(self) -> "TextContract":
        ids = [token.id for token in self.added]
        if ids != list(range(self.base_vocabulary, self.effective_ids)):
            raise ValueError("added tokens must fill the ids from the base vocabulary to the effective ids")
        if len({token.content for token in self.added}) != len(self.added):
            raise ValueError("two added tokens share a spelling")
        if not self.effective_ids <= self.physical_rows:
            raise ValueError("the output matrix must have a row for every id")
        if not set(self.control_atoms) <= {token.content for token in self.added}:
            raise ValueError("a control atom must be an added token")
        if not set(self.stop_ids) <= set(ids):
            raise ValueError("a stop id must be an added token")
        return self

    def added_id(self, content: str) -> int:
        """Returns the id of the added token with this spelling."""
        return next(token.id for token in self.added if token.content == content)

    def pin(self, name: str) -> FilePin | None:
        """Returns the pin of a file, or None when the profile doesn't have it."""
        return next((pin for pin in self.files if pin.name == name), None)

    def literal(self, name: str) -> LiteralPin:
        """Returns the pin of a text of the template."""
        return next(pin for pin in self.literals if pin.name == name)


PATTERN: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
OLDER_PATTERN: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The expression of the Qwen2 class, without combining marks; the convenience constructor rebuilds this one."""

ADDED_SPELLINGS: Final = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>",
    "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>",
    "<think>", "</think>", "<|audio_start|>", "<|audio_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>",
    "<tts_text_bos_single>", "<|audio_pad|>",
)  # fmt: skip
_NOT_SPECIAL: Final = frozenset(range(14, 26))  # tool, fill-in-the-middle, repository and thinking tokens

CONTROL_ATOMS: Final = (
    "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>",
    "</tool_response>",
)  # fmt: skip


def added_tokens(first_id: int) -> tuple[AddedToken, ...]:
    """Returns the family's 33 added tokens, numbered from `first_id`."""
    return tuple(
        AddedToken(id=first_id + index, content=content, special=index not in _NOT_SPECIAL)
        for index, content in enumerate(ADDED_SPELLINGS)
    )


QWEN4EXP_TEXT: Final = TextContract(
    profile="qwen4exp-base-v1",
    pattern=PATTERN,
    older_pattern=OLDER_PATTERN,
    base_vocabulary=248_044,
    effective_ids=248_077,
    physical_rows=248_320,
    added=added_tokens(248_044),
    control_atoms=CONTROL_ATOMS,
    stop_ids=(248_044, 248_046),
    declared=DeclaredIds(bos=None, eos=248_046, pad=248_044),
    files=(
        FilePin(
            name="tokenizer.json",
            size_bytes=12_809_320,
            sha256="0997f410c57a1f4e53b09e4be8f4a172d90edd9564368fb0847030937229b9f3",
        ),
        FilePin(
            name="tokenizer_config.json",
            size_bytes=17_928,
            sha256="b11349aafa7cdc6a320767cf7ceb29ed82f7eda5d65e8e0819e76f0ce947bf27",
        ),
        FilePin(
            name="vocab.json",
            size_bytes=6_722_759,
            sha256="ce99b4cb2983d118806ce0a8b777a35b093e2000a503ebde25853284c9dfa003",
        ),
        FilePin(
            name="merges.txt",
            size_bytes=3_353_259,
            sha256="a9d356d7bdf1ef4949e3e748e95b8e10ad9d4e2e838eddc38a0a7b6b94d1db8d",
        ),
        FilePin(
            name="chat_template.jinja",
            size_bytes=8_952,
            sha256="c3cf9e34abf4f9e36c2d72165aa9c132d3e2a725b6c2586aaa3a8af9d7a81041",
        ),
    ),
    vocabulary_sha256="c39c2e23ff5b2c34598e82921096f697da6593888669ccdf03840df9175558bc",
    merges_sha256="f73216a68eea59796c4f48025952a9a19c277c3b7a2d8af202591301ec229c15",
    literals=(
        LiteralPin(
            name="effort.xhigh",
            size_bytes=207,
            sha256="982cfb432c323e6de8a3562b3456054e08709d51961bb3f50a3b74d351e5c7e3",
        ),
        LiteralPin(
            name="effort.low",
            size_bytes=136,
            sha256="6b391e93fe4721f0b0a10bf81661d4ebce08eed424505cd2a73fbaf73f2a9b45",
        ),
        LiteralPin(
            name="tools.heading",
            size_bytes=61,
            sha256="c1ac20d770de32b1f158c730a299681c8cc51b3868454fbba102ac9aeacad7bf",
        ),
        LiteralPin(
            name="tools.instructions",
            size_bytes=817,
            sha256="c618bf70de036a3337fbf9cfaf7171d7b700d3e116d61b6f4a40511e1ab4e25b",
        ),
    ),
)
"""The pinned checkpoint. The two digests of meaning were computed from the pinned `vocab.json` and `merges.txt`."""
