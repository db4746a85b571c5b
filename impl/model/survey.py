"""What a checkpoint would have to hold, asked of its headers alone: before a byte of a weight is read.

The loader runs once against a survey, which answers with empty promises of arrays and writes down what is missing, has
another shape, or belongs to the text model and is asked for by nobody: a directory whose configuration forgot a layer
would otherwise load, and be another model.
"""

import re
from collections.abc import Sequence
from typing import Final

import mlx.core as mx

from assay.impl.model.clauses import STAGE, TENSOR
from assay.impl.model.sources import Source, Tensors
from assay.impl.model.tables import ResidentRows
from assay.impl.stores.checkpoint.inventory import InventoryRow
from assay.spec.errors import AdmissionError, Finding

MOST_TOLD: Final = 20
"""Findings that are told one by one; the rest is counted."""
MOST_FOUND: Final = 1000
"""Findings after which no more are looked for: the checkpoint is of another model."""
_NOT_TEXT: Final = re.compile(r"(model\.)?(visual|vision_tower|mtp)\.|.*\.rotary_emb\.inv_freq$")
"""What a checkpoint holds beside the text model, by its name, and the buffer that older releases saved."""
_EXPERTS: Final = ".mlp.experts."
_ROWS: Final = ".ple_embedding.ngram_embedding."


class Survey(Source):
    """Answers like a source, reads hash buffers only, and collects findings."""

    def __init__(self, reader: Tensors) -> None:
        super().__init__(reader)
        self._asked: set[str] = set()
        self._findings: list[Finding] = []

    def row(self, name: str, shape: Sequence[int]) -> InventoryRow:
        """Returns the record of a tensor, or a promise of one after a finding."""
        self._asked.add(name)
        try:
            return super().row(name, shape)
        except AdmissionError as error:
            self._found(error.finding)
            return InventoryRow(name, "F32", tuple(shape), "", 0, 0)

    def matrix(self, name: str, shape: Sequence[int]) -> mx.array:
        """Returns a promise."""
        self.row(name, shape)
        return mx.zeros(
            [1] * len(shape)
        )  # nobody looks at it, and a lying size may be more than a shape can say

    def projection(self, name: str, outputs: int, inputs: int) -> mx.array:
        """Returns a promise."""
        return self.matrix(name, (outputs, inputs))

    def vector(self, name: str, shape: Sequence[int]) -> mx.array:
        """Returns a promise."""
        return self.matrix(name, shape)

    def buffer(self, name: str, derived: Sequence[int]) -> None:
        """Judges a hash buffer."""
        self._asked.add(name)
        try:
            super().buffer(name, derived)
        except AdmissionError as error:
            self._found(error.finding)

    def table(self, names: Sequence[str], rows: int, width: int) -> ResidentRows:
        """Judges the parts of a table, and returns a promise."""
        self._asked.update(names)
        before = len(self._findings)
        try:
            self.records(names, rows, width)
        except AdmissionError as error:
            if len(self._findings) == before:  # else the parts have told why their sum is wrong
                self._found(error.finding)
        return ResidentRows(mx.zeros((1, 1)))

    def made(self, array: mx.array) -> mx.array:
        """Returns an array without evaluating it."""
        return array

    def judge(self, *, has_experts: bool, has_rows: bool) -> None:
        """Refuses a checkpoint in which anything was found.

        Args:
            has_experts: whether experts were asked for; otherwise somebody else has them.
            has_rows: the same of embedding rows.

        Raises:
            AdmissionError: model.tensor or model.hash-buffers, with all findings.
        """
        parts = [part for part, asked in ((_EXPERTS, has_experts), (_ROWS, has_rows)) if not asked]
        for name in sorted(self._reader.rows.keys() - self._asked):
            if not _NOT_TEXT.match(name) and not any(part in name for part in parts):
                self._found(
                    Finding.of(
                        TENSOR, STAGE, name, expected="a tensor that the configuration has a use for",
                        got="one that nothing asks for",
                        hint="the configuration is of another model, or the tensor lies here in two forms",
                    )
                )  # fmt: skip
        if self._findings:
            self._refuse()

    def _found(self, finding: Finding) -> None:
        self._findings.append(finding)
        if len(self._findings) >= MOST_FOUND:
            self._refuse()

    def _refuse(self) -> None:
        told, rest = self._findings[:MOST_TOLD], len(self._findings) - MOST_TOLD
        if rest > 0:
            got = (
                f"{rest} more findings" if rest < MOST_FOUND - MOST_TOLD else f"at least {rest} more findings"
            )
            told.append(Finding.of(TENSOR, STAGE, "the rest", expected="none", got=got))
        raise AdmissionError(told[0], told[1:])
