"""Maps the arrays of a capture and hands them out by token ranges, so that no array need fit in memory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.impl.captures.reading import Span, digest_faults, require_capture
from assay.spec.documents.capture import Capture
from assay.spec.errors import AdmissionError
from assay.spec.stages import rung

Rung = tuple[str, int | None, str]
_LAYOUT: Final = {"f32": "<f4", "f16": "<f2", "bf16": "<u2", "i32": "<i4", "i64": "<i8"}


@dataclass(frozen=True, slots=True)
class Stored:
    """Values of one rung as they are stored: `raw` keeps the bits, `dtype` says what they are."""

    raw: NDArray[Any]
    dtype: str

    def values(self) -> NDArray[Any]:
        """Returns the values: float32 for floats, int64 for integers."""
        if self.dtype == "bf16":
            return (self.raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return self.raw.astype(np.float32 if self.dtype.startswith("f") else np.int64)


class OpenCapture:
    """A capture whose arrays can be read by rung and token range."""

    def __init__(self, directory: Path, *, digests: bool = False) -> None:
        """Opens a capture.

        Args:
            directory: folder of the capture.
            digests: read every array that states its SHA-256 and compare; otherwise sizes alone are judged.

        Raises:
            AdmissionError: the first fault of the capture.
        """
        folder = require_capture(directory)
        if digests and (faults := digest_faults(folder)):
            raise AdmissionError(faults[0])
        document = folder.document
        if document is None:  # no document without a fault
            raise AssertionError(directory)
        self.document: Capture = document
        self._spans: dict[Rung, list[Span]] = {}
        for span in folder.spans:
            one = span.entry
            self._spans.setdefault((one.stage, one.layer, one.part), []).append(span)
        for spans in self._spans.values():
            spans.sort(key=lambda span: span.entry.first_token)

    def rungs(self) -> list[Rung]:
        """Returns the rungs that have an array, in the order of the ladder."""
        return sorted(self._spans, key=lambda key: rung(*key))

    def segments(self, key: Rung) -> list[tuple[int, int]]:
        """Returns the token ranges [first, end) of a rung, ascending."""
        return [
            (span.entry.first_token, span.entry.first_token + span.entry.tokens)
            for span in self._spans.get(key, [])
        ]

    def dtype(self, key: Rung) -> str:
        """Returns the dtype of the first array of a rung."""
        return self._spans[key][0].entry.dtype

    def row_shape(self, key: Rung, token: int) -> tuple[int, ...]:
        """Returns the shape of one token's row in the array that holds this token."""
        return tuple(self._holding(key, token).entry.shape[1:])

    def rows(self, key: Rung, first: int, end: int) -> Stored:
        """Returns the rows [first, end) of a rung, which must lie in one array; shape [tokens, row size]."""
        span = self._holding(key, first)
        entry = span.entry
        width = int(np.prod(entry.shape[1:], dtype=np.int64))
        item = np.dtype(_LAYOUT[entry.dtype])
        if width == 0:
            return Stored(np.zeros((end - first, 0), item), entry.dtype)
        start = span.start + (first - entry.first_token) * width * item.itemsize
        mapped = np.memmap(span.path, item, "r", start, ((end - first), width))
        return Stored(np.asarray(mapped), entry.dtype)

    def states(self, key: Rung) -> dict[int, Span]:
        """Returns the state arrays of a rung by the number of tokens after which they stand."""
        return {span.entry.first_token + span.entry.tokens: span for span in self._spans.get(key, [])}

    def state(self, span: Span, first: int, end: int) -> Stored:
        """Returns the values [first, end) of a state array in storage order."""
        item = np.dtype(_LAYOUT[span.entry.dtype])
        start = span.start + first * item.itemsize
        mapped = np.memmap(span.path, item, "r", start, (end - first,))
        return Stored(np.asarray(mapped), span.entry.dtype)

    def whole(self, key: Rung) -> NDArray[Any]:
        """Returns all rows of a rung of small captures, float32 or int64, in the entry's own shape."""
        spans = self._spans[key]
        if key[0] == "state":
            entry = spans[-1].entry
            size = int(np.prod(entry.shape, dtype=np.int64))
            return self.state(spans[-1], 0, size).values().reshape(entry.shape)
        parts = [
            self.rows(key, first, end).values().reshape(end - first, *self.row_shape(key, first))
            for first, end in self.segments(key)
        ]
        return np.concatenate(parts)

    def _holding(self, key: Rung, token: int) -> Span:
        for span in self._spans[key]:
            if span.entry.first_token <= token < span.entry.first_token + span.entry.tokens:
                return span
        raise KeyError((key, token))
