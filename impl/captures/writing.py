"""Writes captures: arrays of one run by rung, little-endian in one file, beside the document that says what they are."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.impl.captures.reading import DESCRIPTION
from assay.spec.documents.capture import Capture, CaptureEntry, Producer
from assay.spec.stages import rung

Rung = tuple[str, int | None, str]
ARRAYS: Final = "arrays.bin"
_STORED: Final = {"f": ("f32", "<f4"), "i": ("i64", "<i8"), "u": ("i64", "<i8")}


def write_capture(
    folder: Path,
    arrays: Mapping[Rung, NDArray[Any]],
    tokens: Sequence[int],
    *,
    producer: Producer,
    first_token: int = 0,
    prompt: bytes | None = None,
    artifact: str | None = None,
    tokenizer: str | None = None,
) -> None:
    """Writes one run of one sequence.

    Args:
        folder: made if absent; its two files are replaced.
        arrays: rung -> array; the first axis counts tokens from `first_token` on, except for `state`.
        tokens: all ids of the sequence.
        producer: who computed them.
        first_token: place of the first row.
        prompt: the bytes that were tokenized, if known.
        artifact: SHA-256 of what was run.
        tokenizer: SHA-256 of the tokenizer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    entries: list[CaptureEntry] = []
    offset = 0
    draft = folder / f"{ARRAYS}.tmp"
    with draft.open("wb") as file:
        for (stage, layer, part), array in sorted(arrays.items(), key=lambda item: rung(*item[0])):
            dtype, layout = _STORED[array.dtype.kind]
            data = np.ascontiguousarray(array).astype(layout).tobytes()
            whole = stage == "state"
            entries.append(
                CaptureEntry.model_validate(
                    {
                        "stage": stage,
                        "layer": layer,
                        "part": part,
                        "first_token": 0 if whole else first_token,
                        "tokens": len(tokens) if whole else array.shape[0],
                        "dtype": dtype,
                        "shape": list(array.shape),
                        "file": ARRAYS,
                        "offset": offset,
                        "sha256": hashlib.sha256(data).hexdigest(),
                    }
                )
            )
            file.write(data)
            offset += len(data)
    draft.replace(folder / ARRAYS)
    capture = Capture(
        producer=producer,
        artifact=artifact,
        tokenizer=tokenizer,
        prompt_hex=None if prompt is None else prompt.hex(),
        token_ids=list(tokens),
        entries=entries,
    )
    text = json.dumps(capture.model_dump(by_alias=True), ensure_ascii=True, indent=1) + "\n"
    described = folder / f"{DESCRIPTION}.tmp"
    described.write_text(text, encoding="ascii")
    described.replace(folder / DESCRIPTION)
