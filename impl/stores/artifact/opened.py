"""An admitted artifact, open for reading: what a runtime may use, and nothing that admission didn't prove.

A runtime consumes the admitted descriptor. It doesn't read the file's metadata again, guess a family or look for
another file beside it. A structural fixture is admitted and still refused here: it has no payload.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from assay.impl.stores.artifact.admission import Admission, admit
from assay.impl.stores.artifact.descriptor import EXPERT_TENSOR, PLE_TENSOR, ArtifactDescriptor
from assay.impl.stores.artifact.judge import descriptor_of, is_artifact
from assay.impl.stores.artifact.private import CONFIG_KEY
from assay.impl.stores.artifact.report import rejected_report
from assay.impl.stores.expert_major.blocks import GGML
from assay.impl.stores.expert_major.store import ExpertStore
from assay.impl.stores.extents import Extent, StoreFile
from assay.impl.stores.gguf.reader import Gguf, read_gguf
from assay.impl.stores.ple_rows.store import PleStore
from assay.impl.stores.strict_json import parse_json, require_object
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, Finding

STRUCTURAL: Final = declare(
    "artifact.structural-only",
    Authority.PROCESS,
    "Nothing is computed from a structural fixture, whoever asks and through whichever seam.",
    source="field notes AFN-004 and AFN-013",
    cause="`assay generate` on the structural fixture",
    fix="build an artifact from a checkpoint with weights",
)
NOT_OURS: Final = declare(
    "artifact.kind",
    Authority.FORM,
    "An artifact has the metadata and the two stores of this project's format.",
    source="field note AFN-004",
    cause="a GGUF of another project",
    fix="`assay validate` says what the file is",
)


class StructuralOnlyError(AdmissionError):
    """A structural fixture was asked to compute; its report is admitted all the same."""

    def __init__(self, path: Path, report: dict[str, Any]) -> None:
        super().__init__(
            Finding.of(
                STRUCTURAL, "execution", str(path), expected="an artifact with a payload",
                got="structural admission-only",
            )
        )  # fmt: skip
        self.report = report


class NotAdmittedError(AdmissionError):
    """An artifact that admission rejected, with its report."""

    def __init__(self, finding: Finding, report: dict[str, Any]) -> None:
        super().__init__(finding)
        self.report = report


class Artifact:
    """An admitted artifact with a payload.

    Attributes:
        descriptor: what it was admitted as.
        config: the configuration of its checkpoint.
        admission: the judgement, with owners and the 30-field report.
        experts: the expert store.
        rows: the row store.
    """

    def __init__(self, file: StoreFile, gguf: Gguf, admission: Admission, config: Mapping[str, Any]) -> None:
        self._file = file
        self._gguf = gguf
        self._stack = ExitStack()
        self._stack.callback(file.close)
        self.admission = admission
        self.descriptor: ArtifactDescriptor = admission.descriptor
        self.config = config
        self.experts = ExpertStore.open(
            self._extent(EXPERT_TENSOR), self.descriptor.family, self.descriptor.source
        )
        self.rows = PleStore.open(self._extent(PLE_TENSOR), self.descriptor.rows)

    @classmethod
    def open(cls, path: Path, *, is_private: bool) -> Self:
        """Admits a file and opens it; nothing of the payload is read.

        Args:
            path: the artifact.
            is_private: whether the private seam was asked for. Without it nothing is admitted: no production profile
                exists.

        Raises:
            NotAdmittedError: with the report, at the stage that rejected it.
            StructuralOnlyError: with the report, for an admitted fixture.
            AdmissionError: gguf.* or store.file.*, when the directory can't be read; artifact.kind.
        """
        file = StoreFile.open(path)
        try:
            gguf, admission = _admitted(path, file.extent(), is_private=is_private)
            return cls(file, gguf, admission, _config(gguf))
        except BaseException:
            file.close()
            raise

    @property
    def names(self) -> list[str]:
        """Names of the dense tensors."""
        return [one.name for one in self.descriptor.dense]

    def dense(self, name: str) -> tuple[str, tuple[int, ...], Extent]:
        """Returns type (`F32`, `F16`, `BF16`), shape in source order, and bytes of a dense tensor.

        Raises:
            KeyError: for a name that isn't dense.
        """
        tensor = self._gguf.tensor(name)
        if tensor is None or name in {EXPERT_TENSOR, PLE_TENSOR}:
            raise KeyError(name)
        return GGML[tensor.type_id].name, tuple(reversed(tensor.dimensions)), self._extent(name)

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _extent(self, name: str) -> Extent:
        tensor = self._gguf.tensor(name)
        if tensor is None or tensor.bytes is None:
            raise KeyError(name)
        return self._file.extent(self._gguf.data_start + tensor.offset, tensor.bytes, name)


def _admitted(path: Path, extent: Extent, *, is_private: bool) -> tuple[Gguf, Admission]:
    gguf = read_gguf(extent)
    if not is_artifact(gguf):
        raise AdmissionError(
            Finding.of(NOT_OURS, "identity", str(path), expected="an artifact", got="another GGUF file")
        )
    descriptor, known, refused = descriptor_of(gguf, is_private=is_private)
    if refused:
        raise NotAdmittedError(refused[0], rejected_report(refused[0]))
    admission = admit(gguf, extent, descriptor, known)
    if admission.first is not None:
        raise NotAdmittedError(admission.first, admission.report)
    if descriptor.is_structural:
        raise StructuralOnlyError(path, admission.report)
    return gguf, admission


def _config(gguf: Gguf) -> dict[str, Any]:
    value = gguf.value(CONFIG_KEY)
    data = value.data[8:] if value is not None else b"{}"
    return require_object(
        parse_json(data, stage="identity", where=CONFIG_KEY), stage="identity", where=CONFIG_KEY
    )
