"""The miniature: its checkpoint with weights and tokenizer, and its artifact, made on first use.

The miniature is the private profile on which everything that the real checkpoint can do takes seconds. What is made
is kept in the user's cache folder, under a name that changes with everything that it is made from.
"""

import hashlib
import json
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from assay.impl.stores.artifact.build import TOKENIZER_FILES, build_artifact
from assay.impl.stores.artifact.descriptor import DIGEST_KEYS
from assay.impl.stores.checkpoint.payload import hash_buffer_values
from assay.impl.stores.checkpoint.writer import Fill, PlannedTensor, write_checkpoint
from assay.impl.stores.files import file_digest
from assay.provenance.paths import cache_directory
from assay.spec.clauses import Authority, declare
from assay.spec.contract import Contract, expand_tensors
from assay.spec.errors import AdmissionError, Finding
from assay.spec.profiles import load_profile, profile_text

if TYPE_CHECKING:
    from assay.impl.stores.artifact.opened import Artifact

TOKENIZER: Final = declare(
    "artifact.tokenizer",
    Authority.RULE,
    "The tokenizer beside an artifact is the one that it names by digest.",
    source="field note AFN-004",
    cause="the tokenizer of another checkpoint, or a re-saved one",
)
MINIATURE: Final = "miniature"
SHARDS: Final = 3
RULE: Final = "counter rule 1"
"""Changes when the weights, the shards or the artifact's layout do, so that a cached miniature is made again."""


def write_miniature(folder: Path, *, fill: Fill | None = None) -> Contract:
    """Writes the miniature's checkpoint into a folder and returns its contract.

    The hash buffers always hold their contract's values. Layers go to three shards, so that the table of the
    per-layer embedding and the two global tables lie apart, as in the real checkpoint.

    Args:
        folder: made if absent.
        fill: payload of all other tensors; without it they are holes.
    """
    contract = load_profile(MINIATURE)
    buffers = {
        name: struct.pack(f"<{len(values)}q", *values)
        for name, values in hash_buffer_values(contract).items()
    }

    def filled(tensor: PlannedTensor) -> Iterable[bytes] | None:
        if tensor.name in buffers:
            return (buffers[tensor.name],)
        return fill(tensor) if fill is not None else None

    config = contract.config.as_file()
    write_checkpoint(folder, plan_shards(contract), files={"config.json": _config_bytes(config)}, fill=filled)
    return contract


def miniature_checkpoint(folder: Path | None = None) -> Path:
    """Returns the miniature's checkpoint directory with weights and tokenizer, made if it isn't there.

    Args:
        folder: where; the user's cache folder when left out.
    """
    target = folder or cache_directory() / f"miniature-{_made_from()}" / "checkpoint"
    if target.is_dir():
        return target
    return _made_once(target, _write_whole)


def miniature_artifact() -> Path:
    """Returns the miniature's artifact in the user's cache folder, built if it isn't there.

    Raises:
        AssayError: whatever stops the build.
    """
    target = cache_directory() / f"miniature-{_made_from()}" / "miniature.gguf"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        build_artifact(miniature_checkpoint(), target, replace=True)
    return target


def tokenizer_folder(artifact: "Artifact", asked: Path | None) -> Path:
    """Returns the folder of the tokenizer that an artifact names by digest; an empty place when it names none at hand.

    Args:
        artifact: admitted.
        asked: a folder that is said to hold it; its files must have the stated digests.

    Raises:
        AdmissionError: artifact.tokenizer, for a folder whose files are others.
    """
    stated = {
        name: str(artifact.descriptor.entries[key].python())
        for name, key in zip(TOKENIZER_FILES, DIGEST_KEYS, strict=True)
    }
    if asked is None:
        own = miniature_checkpoint()
        return own if _digests(own) == stated else own.parent / "no-tokenizer"
    got = _digests(asked)
    for name, digest in stated.items():
        if got[name] != digest:
            raise AdmissionError(
                Finding.of(TOKENIZER, "tokenizer", str(asked / name), expected=digest, got=got[name])
            )
    return asked


def _digests(folder: Path) -> dict[str, str]:
    return {
        name: file_digest(folder / name)[0] if (folder / name).is_file() else "none"
        for name in TOKENIZER_FILES
    }


def _made_once(target: Path, write: Callable[[Path], None]) -> Path:
    """Makes a folder beside its place and renames it there; who comes second finds it made."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        write(draft)
        draft.rename(target)
    except OSError:
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def _write_whole(folder: Path) -> None:
    from assay.impl.text.miniature import write_tokenizer

    write_miniature(folder, fill=rule_weights)
    write_tokenizer(folder)


def rule_weights(tensor: PlannedTensor) -> Iterator[bytes]:
    """Yields the little-endian BF16 bytes of a tensor by the counter rule, at most 1 MiB at a time."""
    import numpy as np

    from assay.oracles.weights import named

    step = 1 << 19
    for first in range(0, tensor.size_bytes // 2, step):
        count = min(step, tensor.size_bytes // 2 - first)
        found = named(tensor.name, np.arange(count, dtype=np.uint64) + np.uint64(first))
        yield (found.view(np.uint32) >> np.uint32(16)).astype("<u2").tobytes()


def _made_from() -> str:
    """Returns a digest of what the miniature is made from: its contract, the tokenizer, and the release of assay."""
    from assay import __version__
    from assay.impl.text.miniature import tokenizer_files

    digest = hashlib.sha256(profile_text(MINIATURE).encode("utf-8"))
    for name, data in sorted(tokenizer_files().items()):
        digest.update(name.encode("utf-8") + b"\0" + data)
    digest.update(f"{__version__} {RULE}".encode())
    return digest.hexdigest()[:16]


def plan_shards(contract: Contract) -> list[list[PlannedTensor]]:
    """Returns the tensors of each shard: layers, the embedding's table, and the global tables."""
    shards: list[list[PlannedTensor]] = [[] for _ in range(SHARDS)]
    for spec in sorted(expand_tensors(contract), key=lambda one: one.name):
        number = 2 if spec.layer is None else 1 if spec.group in {"ple-shard", "ple-hash"} else 0
        shards[number].append(PlannedTensor(spec.name, spec.dtype, spec.shape))
    return shards


def _config_bytes(config: dict[str, object]) -> bytes:
    return (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
