"""Affine 4-bit experts end to end: an artifact in these codes against the oracle on the matrices that they stand for.

The artifact is built from the miniature, loaded through the private seam and multiplied as stored. The oracle gets the
same bytes of the expert store, decoded here value by value, and nothing else of the implementation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.impl.captures.writing import write_capture
from assay.impl.model.bank import Bank
from assay.impl.model.experts import PackedExperts
from assay.impl.model.loader import load_artifact
from assay.impl.model.numerics import Numerics
from assay.impl.model.state import differing
from assay.impl.stores.artifact.build import build_artifact
from assay.impl.stores.artifact.opened import Artifact
from assay.oracles.geometry import from_config
from assay.oracles.tensors import RuleWeights
from assay.provenance.captures.arrays import OpenCapture
from assay.provenance.captures.compare import compare
from assay.provenance.captures.geometries import counter_tokens
from assay.provenance.captures.mlx_run import PRODUCER, run_tokens
from assay.provenance.captures.oracle_run import as_arrays, run_with
from assay.provenance.miniature import miniature_checkpoint
from assay.spec.documents.diff import Diff

CALLS: Final = (17, 1, 2, 12, 1)
"""Rows sorted by expert in some calls, gathered in others."""


@dataclass(frozen=True, slots=True)
class AffineRun:
    """What a comparison found.

    Attributes:
        diff: the MLX model against the oracle, every rung and state.
        differing: owners of the state that differ between these calls, one call and single tokens.
        packed_layers: layers whose experts stayed in codes.
        expert_bytes: of all codes, scales and biases in memory.
    """

    diff: Diff
    differing: list[str]
    packed_layers: int
    expert_bytes: int


def compare_affine(out: Path, numerics: Numerics) -> AffineRun:
    """Builds, runs both and compares; captures and artifact are left in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "affine4.gguf"
    build_artifact(miniature_checkpoint(), path, codec="mlx-affine4", replace=True)
    with Artifact.open(path, is_private=True) as artifact:
        model = load_artifact(artifact, path, numerics).model
        config = artifact.config.get("text_config", artifact.config)
        tokens = list(counter_tokens(6, sum(CALLS), config["vocab_size"], avoid=config["eos_token_id"]))
        ours, state = run_tokens(model, tokens, CALLS)
        wrong = []
        for widths in ((len(tokens),), (1,) * len(tokens)):
            bank, start = Bank(model), 0
            for width in widths:
                bank.advance({0: tokens[start : start + width]})
                start += width
            wrong += [f"calls of {widths[0]}: {owner}" for owner in differing(state, bank.state())]
        geometry = from_config(artifact.config)
        oracle = run_with(geometry, _Decoded(artifact, RuleWeights(geometry)), tokens)
    write_capture(out / "mlx", ours, tokens, producer=PRODUCER)
    write_capture(out / "oracle", as_arrays(oracle, ours), tokens, producer=PRODUCER)
    diff = compare(OpenCapture(out / "mlx"), OpenCapture(out / "oracle"), ("mlx", "oracle"))
    packed = [one.moe.experts for one in model.weights.layers if isinstance(one.moe.experts, PackedExperts)]
    return AffineRun(diff, wrong, len(packed), sum(one.nbytes for one in packed))


class _Decoded:
    """The miniature's tensors by rule; its experts as the codes of the artifact say."""

    def __init__(self, artifact: Artifact, rule: RuleWeights) -> None:
        self._artifact, self._rule = artifact, rule
        self._made: dict[str, NDArray[np.float32]] = {}

    def tensor(self, name: str) -> NDArray[np.float32]:
        """Returns a tensor; matrices of the fused experts stand gate over up."""
        if ".mlp.experts." not in name:
            return np.asarray(self._rule.tensor(name))
        if name not in self._made:
            layer = int(name.partition("layers.")[2].partition(".")[0])
            shape = np.asarray(self._rule.tensor(name)).shape
            roles = (0, 1) if name.endswith("gate_up_proj") else (2,)
            self._made[name] = np.stack(
                [self._matrix(layer, expert, roles, shape[1:]) for expert in range(shape[0])]
            )
        return self._made[name]

    def ple_rows(self, layer: int, ids: Sequence[int]) -> Any:
        """Returns rows of a table."""
        return self._rule.ple_rows(layer, ids)

    def _matrix(
        self, layer: int, expert: int, roles: Sequence[int], shape: tuple[int, ...]
    ) -> NDArray[np.float32]:
        record = self._artifact.experts.read_record(layer, expert)
        return np.concatenate([dequantised(bytes(record.component(role))) for role in roles]).reshape(shape)


def dequantised(blocks: bytes) -> NDArray[np.float32]:
    """Returns the values of blocks, one after another: 32 bytes of nibbles, low first, BF16 scale, BF16 bias.

    Written apart from the implementation's decoder.
    """
    raw = np.frombuffer(blocks, np.uint8).reshape(-1, 36).astype(np.uint32)
    codes = np.stack([raw[:, :32] % 16, raw[:, :32] // 16], axis=-1).reshape(-1, 64).astype(np.float32)
    scale, bias = ((raw[:, at] * 2**16 + raw[:, at + 1] * 2**24).view(np.float32)[:, None] for at in (32, 34))
    return (codes * scale + bias).reshape(-1)
