"""What `assay text` prints: a prompt with origins, ids, decoded text, and what a model's turn held."""

from typing import Annotated, Any, Literal

from pydantic import Field

from assay.spec.documents.base import Document, FindingRecord, Sha256

Count = Annotated[int, Field(ge=0, lt=2**53)]


class TextSource(Document):
    """Where a result comes from.

    Attributes:
        profile: id of the profile whose contract was used.
        seam: `private` for the miniature, whose results can't reach `qualified`.
    """

    profile: str
    seam: Literal["private"] | None


class SegmentRecord(Document):
    """Bytes of one kind: 0 is data, 1 is trusted control."""

    kind: Literal[0, 1]
    offset: Count
    length: Count


class OriginRecord(Document):
    """Bytes of one maker; `path` is the field of the request, empty for what no caller wrote."""

    kind: Literal["template", "vocabulary", "caller", "computed"]
    path: str
    offset: Count
    length: Count


class TextPrompt(TextSource):
    """A rendered prompt; `ids` only when they were asked for."""

    schema_: Literal["assay.text-prompt/1"] = Field("assay.text-prompt/1", alias="schema")
    text: str
    size_bytes: Count
    sha256: Sha256
    segments: tuple[SegmentRecord, ...]
    origins: tuple[OriginRecord, ...]
    ids: tuple[Count, ...] | None


class TextIds(TextSource):
    """The ids of a text, and the pieces that the pattern made of it where all of it was data."""

    schema_: Literal["assay.text-ids/1"] = Field("assay.text-ids/1", alias="schema")
    ids: tuple[Count, ...]
    pieces: tuple[str, ...] | None


class DecodedToken(Document):
    """One id: the bytes that it stands for, null for an id without text, and what it made certain in the stream."""

    id: int
    hex: str | None
    text: str


class TextDecoded(TextSource):
    """The text of ids; `rest` is what an incomplete last character became."""

    schema_: Literal["assay.text-decoded/1"] = Field("assay.text-decoded/1", alias="schema")
    text: str
    tokens: tuple[DecodedToken, ...]
    rest: str


class CallRecord(Document):
    """A complete call: arguments as the model wrote them, and by the declared types where tools were given."""

    name: str
    arguments: dict[str, str]
    typed: dict[str, Any] | None


class TextTurn(TextSource):
    """What one turn of a model held; a malformed call is a problem and never a call."""

    schema_: Literal["assay.text-turn/1"] = Field("assay.text-turn/1", alias="schema")
    reasoning: str
    content: str
    calls: tuple[CallRecord, ...]
    problems: tuple[FindingRecord, ...]
