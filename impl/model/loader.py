"""Loads a checkpoint directory as it lies: the real names or those of save_pretrained, fused experts or one by one.

Every tensor is looked up under its possible names, its shape is compared with what the configuration gives, and only
then are its bytes read, in pieces. A norm that stores w around zero becomes 1 + w here and nowhere else.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from assay.impl.model import ple
from assay.impl.model.clauses import CONFIG, HASH, TENSOR, reject
from assay.impl.model.gdn import GdnWeights
from assay.impl.model.geometry import Geometry, read_geometry
from assay.impl.model.graph import LayerWeights, Model, ModelWeights
from assay.impl.model.moe import DenseExperts, MoeWeights
from assay.impl.model.numerics import Numerics
from assay.impl.model.ple import PleWeights
from assay.impl.model.qsa import QsaWeights
from assay.impl.model.residual import Mixer
from assay.impl.model.tables import FileRows, ResidentRows
from assay.impl.stores.artifact.opened import Artifact
from assay.impl.stores.artifact.tensors import ArtifactTensors
from assay.impl.stores.checkpoint_reader import CheckpointReader
from assay.impl.stores.inventory import InventoryRow
from assay.impl.stores.layout import CONFIG_LIMIT_BYTES, CONFIG_NAME
from assay.impl.stores.strict_json import read_json_object

GENERATION_NAME: Final = "generation_config.json"
PREFIXES: Final = ("model.language_model.", "model.", "language_model.model.", "")
"""What stands before `layers.` in the names: the published checkpoint, save_pretrained, older conversions."""
WIDEN_BELOW_BYTES: Final = 2 << 30
"""Weights of at most this many stored bytes are widened to float32 once, exactly; MLX's CPU products in narrower types
use no BLAS. Larger ones stay in their stored type and are widened as they are used."""
RESIDENT_BELOW_BYTES: Final = 256 << 20
"""Embedding tables up to this size are held in memory; larger ones are read row by row."""
_STORED: Final[dict[str, tuple[str, Any]]] = {
    "F32": ("<f4", None),
    "F16": ("<f2", None),
    "BF16": ("<u2", mx.bfloat16),
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model and where it came from.

    Attributes:
        model: weights and graph.
        config: the parsed config.json.
        folder: the directory, or the file of an artifact.
        resident_bytes: bytes of weights in memory.
    """

    model: Model
    config: dict[str, Any]
    folder: Path
    resident_bytes: int


def load_checkpoint(folder: Path, numerics: Numerics) -> Loaded:
    """Returns the model of a directory.

    Raises:
        AdmissionError: model.config, model.tensor, model.hash-buffers, or what the checkpoint reader finds.
    """
    config = read_json_object(
        folder / CONFIG_NAME, stage="config", where=CONFIG_NAME, limit_bytes=CONFIG_LIMIT_BYTES
    )
    geometry = read_geometry(config)
    reader = CheckpointReader.open(folder)
    source = _Source(reader, geometry)
    weights = _weights(source, geometry)
    return Loaded(Model(geometry, weights, numerics), config, folder, source.resident_bytes)


def load_artifact(artifact: Artifact, path: Path, numerics: Numerics) -> Loaded:
    """Returns the model of an admitted artifact; it stays open while rows may be read from it.

    Args:
        artifact: opened through the private seam.
        path: its file.
        numerics: how reductions are made.

    Raises:
        AdmissionError: model.config, model.tensor, model.hash-buffers, or a damaged page.
    """
    config = dict(artifact.config)
    geometry = read_geometry(config)
    source = _Source(ArtifactTensors(artifact), geometry)
    return Loaded(Model(geometry, _weights(source, geometry), numerics), config, path, source.resident_bytes)


def stop_ids(loaded: Loaded) -> frozenset[int]:
    """Returns the ids that end a generation: those of generation_config.json, or else of the configuration.

    Raises:
        AdmissionError: model.config, when generation_config.json names something that is no id.
    """
    path = loaded.folder / GENERATION_NAME
    if not path.is_file():
        return frozenset(loaded.model.geometry.eos)
    found = read_json_object(path, stage="config", where=GENERATION_NAME, limit_bytes=CONFIG_LIMIT_BYTES)
    value = found.get("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if any(type(one) is not int for one in ids):
        raise reject(CONFIG, f"{GENERATION_NAME}: eos_token_id", expected="token ids", got=value)
    return frozenset(ids) or frozenset(loaded.model.geometry.eos)


def load_tensors(config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], numerics: Numerics) -> Model:
    """Returns the model of tensors in memory, such as those of a rule.

    Args:
        config: as in config.json.
        tensors: float32 values (int64 for hash buffers) by stored name.
        numerics: how reductions are made.
    """
    geometry = read_geometry(config)
    return Model(geometry, _weights(_Source(_Memory(tensors), geometry), geometry), numerics)


class _Tensors(Protocol):
    """Where bytes come from: a `CheckpointReader`, or memory."""

    rows: dict[str, InventoryRow]

    def pieces(self, name: str, *, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yields the bytes [begin, end) of a tensor."""

    def read(self, name: str) -> bytes:
        """Returns all bytes of a small tensor."""


class _Memory:
    """Tensors in memory in the form of a checkpoint reader."""

    def __init__(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        self._tensors = tensors
        self.rows = {
            name: InventoryRow(
                name,
                "I64" if array.dtype.kind == "i" else "F32",
                array.shape,
                "memory",
                0,
                self._layout(name).nbytes,
            )
            for name, array in tensors.items()
        }

    def pieces(self, name: str, *, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yields the bytes [begin, end) of a tensor."""
        yield self.read(name)[begin:end]

    def read(self, name: str) -> bytes:
        """Returns all bytes of a tensor."""
        return self._layout(name).tobytes()

    def _layout(self, name: str) -> NDArray[Any]:
        array = self._tensors[name]
        return array.astype("<i8" if array.dtype.kind == "i" else "<f4")


class _Source:
    """The tensors of a checkpoint by the names of this module, as MLX arrays."""

    def __init__(self, reader: _Tensors, geometry: Geometry) -> None:
        self._reader = reader
        self._geometry = geometry
        self.resident_bytes = 0
        own = [row for row in reader.rows.values() if "ngram_embedding" not in row.name]
        self._widens = sum(row.end - row.begin for row in own) <= WIDEN_BELOW_BYTES
        self._prefix = next(
            (prefix for prefix in PREFIXES if f"{prefix}embed_tokens.weight" in reader.rows), PREFIXES[0]
        )

    def name(self, name: str) -> str:
        """Returns the stored name of a tensor below the text model."""
        return self._prefix + name

    def has(self, name: str) -> bool:
        """Says whether a stored name exists."""
        return name in self._reader.rows

    def row(self, name: str, shape: Sequence[int]) -> InventoryRow:
        """Returns the record of a tensor with this shape and a type that can be read."""
        row = self._reader.rows.get(name)
        if row is None:
            raise reject(TENSOR, name, expected=f"a tensor {list(shape)}", got="none")
        if row.shape != tuple(shape) or row.dtype not in _STORED:
            expected = f"{list(shape)} in {', '.join(_STORED)}"
            raise reject(TENSOR, name, expected=expected, got=f"{list(row.shape)} {row.dtype}")
        return row

    def matrix(self, name: str, shape: Sequence[int]) -> mx.array:
        """Returns a tensor as stored, widened to float32 when all weights fit."""
        found = _array(self._bytes(self.row(name, shape)), self._reader.rows[name])
        if self._widens and found.dtype != mx.float32:
            found = found.astype(mx.float32)
        return self._kept(found)

    def projection(self, name: str, outputs: int, inputs: int) -> mx.array:
        """Returns a linear layer's matrix as [input, output]."""
        return self._kept(mx.contiguous(self.matrix(name, (outputs, inputs)).T), again=True)

    def vector(self, name: str, shape: Sequence[int]) -> mx.array:
        """Returns a small tensor in float32."""
        found = _array(self._bytes(self.row(name, shape)), self._reader.rows[name])
        return self._kept(found.astype(mx.float32))

    def integers(self, name: str) -> list[int] | None:
        """Returns a stored int64 vector, or None when there is none."""
        row = self._reader.rows.get(name)
        if row is None:
            return None
        if row.dtype != "I64" or len(row.shape) != 1 or row.shape[0] > 4096:
            raise reject(TENSOR, name, expected="a vector of I64", got=f"{list(row.shape)} {row.dtype}")
        return [int(one) for one in np.frombuffer(self._reader.read(name), "<i8")]

    def table(self, names: Sequence[str], rows: int, width: int) -> ResidentRows | FileRows:
        """Returns a table that lies in one tensor or in several, one after another."""
        records, found = [], 0
        for name in names:
            stored = self._reader.rows.get(name)
            height = stored.shape[0] if stored is not None and len(stored.shape) == 2 else 0
            records.append(self.row(name, (height, width)))
            found += height
        if found != rows or len({record.dtype for record in records}) != 1:
            kinds = ", ".join(sorted({record.dtype for record in records}))
            raise reject(
                TENSOR, names[0], expected=f"{rows} rows of one type", got=f"{found} rows of {kinds}"
            )
        size = sum(record.end - record.begin for record in records)
        if size <= RESIDENT_BELOW_BYTES:
            parts = [_array(self._bytes(record), record).astype(mx.float32) for record in records]
            return ResidentRows(self._kept(parts[0] if len(parts) == 1 else mx.concatenate(parts)))
        return FileRows(self._reader, records, width)

    def _bytes(self, row: InventoryRow) -> NDArray[np.uint8]:
        data = np.empty(row.end - row.begin, np.uint8)
        at = 0
        for piece in self._reader.pieces(row.name):
            data[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)
        return data

    def _kept(self, array: mx.array, *, again: bool = False) -> mx.array:
        mx.eval(array)
        self.resident_bytes += 0 if again else array.nbytes
        return array


def _array(data: NDArray[np.uint8], row: InventoryRow) -> mx.array:
    layout, kind = _STORED[row.dtype]
    values = mx.array(data.view(layout).reshape(row.shape))
    return values if kind is None else values.view(kind)


def _weights(source: _Source, g: Geometry) -> ModelWeights:
    embedding = source.matrix(source.name("embed_tokens.weight"), (g.physical_rows, g.hidden))
    if g.is_tied and not source.has("lm_head.weight"):
        head = mx.contiguous(embedding.T)
    else:
        names = ["lm_head.weight", "model.lm_head.weight", "language_model.lm_head.weight"]
        chosen = next((name for name in names if source.has(name)), names[0])
        head = source.projection(chosen, g.physical_rows, g.hidden)
    layers = tuple(_layer(source, g, layer) for layer in range(g.layers))
    mixer = _mixer(source, g, "hyper_connection_mixer.", has_injection=False)
    return ModelWeights(embedding, layers, mixer, head)


def _layer(source: _Source, g: Geometry, layer: int) -> LayerWeights:
    name = f"layers.{layer}."
    return LayerWeights(
        attn_mixer=_mixer(source, g, f"{name}attn_hyper_connection."),
        mixing=(_gdn if g.kinds[layer] == "gdn" else _qsa)(source, g, name),
        mlp_mixer=_mixer(source, g, f"{name}mlp_hyper_connection."),
        moe=_moe(source, g, source.name(f"{name}mlp.")),
        ple=_ple(source, g, layer) if layer in g.ple_layers else None,
    )


def _mixer(source: _Source, g: Geometry, name: str, *, has_injection: bool = True) -> Mixer:
    stem = source.name(name)
    inject = None
    if has_injection:
        inject = source.projection(f"{stem}block_inject_weight.weight", g.streams, g.wide)
    return Mixer(
        gain=_centred(source, f"{stem}hc_norm.weight", g.wide),
        down=source.projection(f"{stem}input_mix_weight_down.weight", g.rank, g.wide),
        up=source.projection(f"{stem}input_mix_weight_up.weight", g.wide, g.rank),
        inject=inject,
    )


def _gdn(source: _Source, g: Geometry, name: str) -> GdnWeights:
    stem, width = source.name(f"{name}linear_attn."), g.value_heads * g.value_dim
    return GdnWeights(
        qkv=source.projection(f"{stem}in_proj_qkv.weight", g.channels, g.hidden),
        z=source.projection(f"{stem}in_proj_z.weight", width, g.hidden),
        a=source.projection(f"{stem}in_proj_a.weight", g.value_heads, g.hidden),
        b=source.projection(f"{stem}in_proj_b.weight", g.value_heads, g.hidden),
        out=source.projection(f"{stem}out_proj.weight", g.hidden, width),
        taps=_taps(source, f"{stem}conv1d.weight", g.channels, g.kernel),
        decay=_evaluated(-mx.exp(source.vector(f"{stem}A_log", (g.value_heads,)))),
        bias=source.vector(f"{stem}dt_bias", (g.value_heads,)),
        gain=source.vector(f"{stem}norm.weight", (g.value_dim,)),
    )


def _qsa(source: _Source, g: Geometry, name: str) -> QsaWeights:
    stem, width = source.name(f"{name}self_attn."), g.heads * g.head_dim
    keys = g.kv_heads * g.head_dim

    def bias(part: str, size: int) -> mx.array | None:
        return source.vector(f"{stem}{part}.bias", (size,)) if g.has_attention_bias else None

    return QsaWeights(
        q=source.projection(f"{stem}q_proj.weight", 2 * width, g.hidden),
        k=source.projection(f"{stem}k_proj.weight", keys, g.hidden),
        v=source.projection(f"{stem}v_proj.weight", keys, g.hidden),
        o=source.projection(f"{stem}o_proj.weight", g.hidden, width),
        q_gain=_centred(source, f"{stem}q_norm.weight", g.head_dim),
        k_gain=_centred(source, f"{stem}k_norm.weight", g.head_dim),
        index=source.projection(
            f"{stem}indexer.index_qk_proj.weight", (g.index_heads + 1) * g.index_dim, g.hidden
        ),
        index_q_gain=_centred(source, f"{stem}indexer.q_layernorm.weight", g.index_dim),
        index_k_gain=_centred(source, f"{stem}indexer.k_layernorm.weight", g.index_dim),
        q_bias=bias("q_proj", 2 * width),
        k_bias=bias("k_proj", keys),
        v_bias=bias("v_proj", keys),
        o_bias=bias("o_proj", g.hidden),
    )


def _moe(source: _Source, g: Geometry, stem: str) -> MoeWeights:
    shared = f"{stem}shared_expert."
    return MoeWeights(
        router=source.projection(f"{stem}gate.weight", g.experts, g.hidden),
        experts=_experts(source, g, f"{stem}experts."),
        shared_gate=source.projection(f"{shared}gate_proj.weight", g.shared_width, g.hidden),
        shared_up=source.projection(f"{shared}up_proj.weight", g.shared_width, g.hidden),
        shared_down=source.projection(f"{shared}down_proj.weight", g.hidden, g.shared_width),
        shared_scale=source.projection(f"{stem}shared_expert_gate.weight", 1, g.hidden),
    )


def _experts(source: _Source, g: Geometry, stem: str) -> DenseExperts:
    """Reads fused tensors (the gate rows stand first), or three of each expert."""
    width, hidden = g.expert_width, g.hidden
    fused = next(
        (f"{stem}gate_up_proj{end}" for end in ("", ".weight") if source.has(f"{stem}gate_up_proj{end}")),
        None,
    )
    if fused is not None:
        both = source.matrix(fused, (g.experts, 2 * width, hidden))
        end = fused.removeprefix(f"{stem}gate_up_proj")
        down = source.matrix(f"{stem}down_proj{end}", (g.experts, hidden, width))
        gate, up = both[:, :width], both[:, width:]
    else:
        gate, up, down = (
            mx.stack([source.matrix(f"{stem}{expert}.{part}.weight", shape) for expert in range(g.experts)])
            for part, shape in (
                ("gate_proj", (width, hidden)), ("up_proj", (width, hidden)), ("down_proj", (hidden, width))
            )
        )  # fmt: skip
    return DenseExperts(*(_evaluated(mx.contiguous(one.swapaxes(1, 2))) for one in (gate, up, down)))


def _ple(source: _Source, g: Geometry, layer: int) -> PleWeights:
    stem = source.name(f"layers.{layer}.ple.")
    found = ple.derive_hash(g, g.ple_layers.index(layer))
    buffers = (
        ("layer_multipliers", found.multipliers),
        ("ngram_heads_vocab_sizes", found.primes),
        ("ngram_heads_offsets", found.offsets),
    )
    for name, derived in buffers:
        stored = source.integers(f"{stem}ple_embedding.{name}")
        if stored is not None and stored != list(derived):
            raise reject(HASH, f"{stem}ple_embedding.{name}", expected=list(derived), got=stored)
    table = f"{stem}ple_embedding.ngram_embedding."
    names = [f"{table}weight"]
    if not source.has(names[0]):
        names = [f"{table}shard_{part}.weight" for part in range(g.ngram_parts)]
    return PleWeights(
        key=source.projection(f"{stem}key_proj.weight", g.wide, g.ple_embedding),
        value=source.projection(f"{stem}value_proj.weight", g.hidden, g.ple_embedding),
        norm_key=_centred(source, f"{stem}norm_key.weight", g.wide),
        norm_query=_centred(source, f"{stem}norm_query.weight", g.wide),
        norm_conv=_centred(source, f"{stem}norm_conv.weight", g.wide),
        taps=_taps(source, f"{stem}conv1d.weight", g.wide, g.ple_kernel),
        hash=found,
        rows=source.table(names, found.padded_rows, g.ple_embedding // g.ple_heads),
    )


def _centred(source: _Source, name: str, width: int) -> mx.array:
    """The gain of a norm that stores w around zero: 1 + w."""
    return _evaluated(source.vector(name, (width,)) + 1.0)


def _taps(source: _Source, name: str, channels: int, kernel: int) -> mx.array:
    """Convolution weights [channel, 1, kernel] as [kernel, channel]."""
    return _evaluated(mx.contiguous(source.vector(name, (channels, 1, kernel))[:, 0].T))


def _evaluated(array: mx.array) -> mx.array:
    mx.eval(array)
    return array
