"""The text contract: what the tokenizer, the chat template and the vocabulary of one profile must be.

The ids come from the frozen profile; what only the text pipeline needs stands here: digests of files and of their
meaning, the control atoms, and the texts of the template that an oracle must find, by length and digest.

Source: field notes AFN-005 to AFN-008; the published tokenizer files of the pinned revision.
"""

from collections.abc import Iterable
from functools import cache
from typing import Annotated, Final, Literal, get_args

from pydantic import Field, model_validator

from assay.spec.contract import Contract
from assay.spec.contract.vocabulary import AddedToken
from assay.spec.documents.base import Document, Sha256
from assay.spec.profiles import load_profile

Id = Annotated[int, Field(ge=0)]
FileName = Literal[
    "tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "chat_template.jinja"
]

LiteralName = Literal["effort.xhigh", "effort.low", "tools.heading", "tools.instructions"]


class FilePin(Document):
    """Size and digest of one published file."""

    name: FileName
    size_bytes: Annotated[int, Field(ge=1)]
    sha256: Sha256


class LiteralPin(Document):
    """A text that the template carries, known by length and digest and never stored."""

    name: LiteralName
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

CONTROL_ATOMS: Final = (
    "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>",
    "</tool_response>",
)  # fmt: skip


@cache
def text_contract(profile: str) -> TextContract:
    """Returns the text contract of a packaged profile, `qwen4exp` or `miniature`."""
    frozen = load_profile(profile)
    vocabulary = frozen.vocabulary
    ids = vocabulary.tokenizer_ids
    pins = _PINS[profile]
    return TextContract(
        profile=frozen.identity.profile_id,
        pattern=PATTERN,
        older_pattern=OLDER_PATTERN,
        base_vocabulary=vocabulary.base_tokens,
        effective_ids=vocabulary.effective_ids,
        physical_rows=vocabulary.physical_rows,
        added=tuple(vocabulary.added_tokens),
        control_atoms=CONTROL_ATOMS,
        stop_ids=tuple(vocabulary.stop_ids),
        declared=DeclaredIds(bos=ids.bos, eos=ids.eos, pad=ids.pad),
        files=pins.files or _pinned(frozen),
        vocabulary_sha256=pins.vocabulary_sha256,
        merges_sha256=pins.merges_sha256,
        literals=pins.literals,
    )


def contract_of_profile(profile_id: str) -> TextContract:
    """Returns the text contract of a packaged profile by the id that its contract has."""
    return next(one for one in map(text_contract, _PINS) if one.profile == profile_id)


def contract_of_tokens(added: Iterable[AddedToken]) -> TextContract | None:
    """Returns the text contract of the packaged profile that has these added tokens, None when none has."""
    spelled = {(token.id, token.content) for token in added}
    known = map(text_contract, _PINS)
    return next((one for one in known if {(token.id, token.content) for token in one.added} == spelled), None)


def _pinned(frozen: Contract) -> tuple[FilePin, ...]:
    published = frozen.source_pins.files if frozen.source_pins else {}
    names: tuple[FileName, ...] = get_args(FileName)
    return tuple(
        FilePin(name=name, size_bytes=published[name].size_bytes, sha256=published[name].sha256)
        for name in names
        if name in published
    )


class _Pins(Document):
    files: tuple[FilePin, ...] = ()  # those of the profile's own source pins need no second copy here
    vocabulary_sha256: Sha256
    merges_sha256: Sha256
    literals: tuple[LiteralPin, ...]


def _files(*rows: tuple[FileName, int, str]) -> tuple[FilePin, ...]:
    return tuple(FilePin(name=name, size_bytes=size, sha256=digest) for name, size, digest in rows)


def _literals(*rows: tuple[LiteralName, int, str]) -> tuple[LiteralPin, ...]:
    return tuple(LiteralPin(name=name, size_bytes=size, sha256=digest) for name, size, digest in rows)


# fmt: off
_PINS: Final[dict[str, _Pins]] = {
    "qwen4exp": _Pins(
        # Both computed from the pinned vocab.json and merges.txt; a re-saved tokenizer.json must give the same.
        vocabulary_sha256="c39c2e23ff5b2c34598e82921096f697da6593888669ccdf03840df9175558bc",
        merges_sha256="f73216a68eea59796c4f48025952a9a19c277c3b7a2d8af202591301ec229c15",
        literals=_literals(
            ("effort.xhigh", 207, "982cfb432c323e6de8a3562b3456054e08709d51961bb3f50a3b74d351e5c7e3"),
            ("effort.low", 136, "6b391e93fe4721f0b0a10bf81661d4ebce08eed424505cd2a73fbaf73f2a9b45"),
            ("tools.heading", 61, "c1ac20d770de32b1f158c730a299681c8cc51b3868454fbba102ac9aeacad7bf"),
            ("tools.instructions", 817, "c618bf70de036a3337fbf9cfaf7171d7b700d3e116d61b6f4a40511e1ab4e25b"),
        ),
    ),
    "miniature": _Pins(
        files=_files(
            ("tokenizer.json", 15_488, "00a4ab8569af5a8c9e1eb5402999400a739a5b1ce049be822ee319ad7d9f2795"),
            ("vocab.json", 4_062, "542fdf6c69de9dca1ed8e160d50a6623c7b9d5d7a1fe8319a6669051156a9767"),
            ("merges.txt", 357, "9ebb0b556197b3864a3517eea367c48a19b66566eb8c9594f3a2ebfb6039c782"),
            ("tokenizer_config.json", 6_291, "bd8731844dac12c62260b650e208e5d8f4c4d9f6e6bc439fcb9f5d39229d0c22"),
            ("chat_template.jinja", 3_952, "4d53f6e330bef88923bb088aa297e780ebbcbdf02e306306790c466df62e7948"),
        ),
        vocabulary_sha256="0b319387da7589bf8fde65461bed4678c3b50784ba470b182fffa66c00575bfd",
        merges_sha256="417abeba54859dc7f731fe5f04077a71cfdcce20d09c6f27ba404a01cb825f18",
        literals=_literals(
            ("effort.xhigh", 83, "a30a3b9b619e0e44b3b3ff1dee1b4f59a12de50c93f0d5100cf1c1e2653ff72e"),
            ("effort.low", 25, "147efcb2e421f6883a1b310f1e588cafdf11222f0254f3f06105f8fd88825bc8"),
            ("tools.heading", 42, "305bed93d7b5ed566a9a46967db1b962afdd8717467920fc2f82af6276b32757"),
            ("tools.instructions", 135, "ebdfc7e008a688e6b6a96bcac7b55857133d047f4c9ab48d4c933b4c6f91c8b6"),
        ),
    ),
}
# fmt: on
