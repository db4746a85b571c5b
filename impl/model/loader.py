"""Loads a checkpoint directory as it lies: the real names or those of save_pretrained, fused experts or one by one.

Every tensor is looked up under its possible names, its shape is compared with what the configuration gives, and only
then are its bytes read, in pieces. A norm that stores w around zero becomes 1 + w here and nowhere else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
from numpy.typing import NDArray

from assay.impl.model import ple
from assay.impl.model.clauses import CONFIG, reject
from assay.impl.model.experts import DenseExperts, Experts, from_records
from assay.impl.model.gdn import GdnWeights
from assay.impl.model.geometry import Geometry, read_geometry
from assay.impl.model.graph import LayerWeights, Model, ModelWeights
from assay.impl.model.moe import MoeWeights
from assay.impl.model.numerics import Numerics
from assay.impl.model.ple import PleWeights, Rows
from assay.impl.model.qsa import QsaWeights
from assay.impl.model.residual import Mixer
from assay.impl.model.sources import Memory, Source, Tensors
from assay.impl.model.survey import Survey
from assay.impl.model.tables import ResidentRows
from assay.impl.stores.artifact.opened import Artifact
from assay.impl.stores.artifact.tensors import ArtifactTensors
from assay.impl.stores.checkpoint.layout import CONFIG_LIMIT_BYTES, CONFIG_NAME
from assay.impl.stores.checkpoint.reader import CheckpointReader
from assay.impl.stores.strict_json import read_json_object

GENERATION_NAME: Final = "generation_config.json"
AFFINE: Final = "mlx-affine4"


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


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Weights that are not read into memory now: whoever has them is asked while the model runs.

    Attributes:
        experts: layer -> its experts; None reads them all.
        rows: layer -> its embedding table; None holds small tables and reads rows of large ones from the file.
    """

    experts: Callable[[int], Experts] | None = None
    rows: Callable[[int], Rows] | None = None


HERE: Final = Elsewhere()
"""Everything is read."""


def load_checkpoint(folder: Path, numerics: Numerics, elsewhere: Elsewhere = HERE) -> Loaded:
    """Returns the model of a directory.

    Args:
        folder: with config.json and shards.
        numerics: how reductions are made.
        elsewhere: what is not read.

    Raises:
        AdmissionError: model.config, model.tensor, model.hash-buffers, or what the checkpoint reader finds.
    """
    config = read_json_object(
        folder / CONFIG_NAME, stage="config", where=CONFIG_NAME, limit_bytes=CONFIG_LIMIT_BYTES
    )
    geometry = read_geometry(config)
    reader = CheckpointReader.open(folder)
    _surveyed(reader, geometry, elsewhere)
    source = Source(reader)
    weights = _weights(source, geometry, elsewhere)
    return Loaded(Model(geometry, weights, numerics), config, folder, source.resident_bytes)


def load_artifact(artifact: Artifact, path: Path, numerics: Numerics, elsewhere: Elsewhere = HERE) -> Loaded:
    """Returns the model of an admitted artifact; it stays open while rows may be read from it.

    Args:
        artifact: opened through the private seam.
        path: its file.
        numerics: how reductions are made.
        elsewhere: what is not read.

    Raises:
        AdmissionError: model.config, model.tensor, model.hash-buffers, or a damaged page.
    """
    config = dict(artifact.config)
    geometry = read_geometry(config)
    tensors = ArtifactTensors(artifact)
    _surveyed(tensors, geometry, elsewhere)
    source = Source(tensors)
    if elsewhere.experts is None and artifact.descriptor.facts["expertCodec"] == AFFINE:
        packed = partial(_packed, artifact, geometry, source)  # multiplied as they are stored
        elsewhere = replace(elsewhere, experts=packed)
    weights = _weights(source, geometry, elsewhere)
    return Loaded(Model(geometry, weights, numerics), config, path, source.resident_bytes)


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
    memory = Memory(tensors)
    _surveyed(memory, geometry, HERE)
    return Model(geometry, _weights(Source(memory), geometry, HERE), numerics)


def _surveyed(reader: Tensors, g: Geometry, elsewhere: Elsewhere) -> None:
    """Refuses tensors that are not those of the geometry, all of them at once, before a weight is read."""
    nothing = mx.zeros(0)
    experts = None if elsewhere.experts is None else lambda _layer: DenseExperts(nothing, nothing, nothing)
    rows = None if elsewhere.rows is None else lambda _layer: ResidentRows(nothing)
    survey = Survey(reader)
    _weights(survey, g, Elsewhere(experts, rows))
    survey.judge(has_experts=experts is None, has_rows=rows is None)


def _weights(source: Source, g: Geometry, elsewhere: Elsewhere) -> ModelWeights:
    embedding = source.matrix(source.name("embed_tokens.weight"), (g.physical_rows, g.hidden))
    if g.is_tied and not source.has("lm_head.weight"):
        head = mx.contiguous(embedding.T)
    else:
        names = ["lm_head.weight", "model.lm_head.weight", "language_model.lm_head.weight"]
        chosen = next((name for name in names if source.has(name)), names[0])
        head = source.projection(chosen, g.physical_rows, g.hidden)
    layers = tuple(_layer(source, g, layer, elsewhere) for layer in range(g.layers))
    mixer = _mixer(source, g, "hyper_connection_mixer.", has_injection=False)
    return ModelWeights(embedding, layers, mixer, head)


def _layer(source: Source, g: Geometry, layer: int, elsewhere: Elsewhere) -> LayerWeights:
    name = f"layers.{layer}."
    return LayerWeights(
        attn_mixer=_mixer(source, g, f"{name}attn_hyper_connection."),
        mixing=(_gdn if g.kinds[layer] == "gdn" else _qsa)(source, g, name),
        mlp_mixer=_mixer(source, g, f"{name}mlp_hyper_connection."),
        moe=_moe(source, g, layer, elsewhere),
        ple=_ple(source, g, layer, elsewhere) if layer in g.ple_layers else None,
    )


def _mixer(source: Source, g: Geometry, name: str, *, has_injection: bool = True) -> Mixer:
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


def _gdn(source: Source, g: Geometry, name: str) -> GdnWeights:
    stem, width = source.name(f"{name}linear_attn."), g.value_heads * g.value_dim
    return GdnWeights(
        qkv=source.projection(f"{stem}in_proj_qkv.weight", g.channels, g.hidden),
        z=source.projection(f"{stem}in_proj_z.weight", width, g.hidden),
        a=source.projection(f"{stem}in_proj_a.weight", g.value_heads, g.hidden),
        b=source.projection(f"{stem}in_proj_b.weight", g.value_heads, g.hidden),
        out=source.projection(f"{stem}out_proj.weight", g.hidden, width),
        taps=_taps(source, f"{stem}conv1d.weight", g.channels, g.kernel),
        decay=source.made(-mx.exp(source.vector(f"{stem}A_log", (g.value_heads,)))),
        bias=source.vector(f"{stem}dt_bias", (g.value_heads,)),
        gain=source.vector(f"{stem}norm.weight", (g.value_dim,)),
    )


def _qsa(source: Source, g: Geometry, name: str) -> QsaWeights:
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


def _moe(source: Source, g: Geometry, layer: int, elsewhere: Elsewhere) -> MoeWeights:
    stem = source.name(f"layers.{layer}.mlp.")
    shared = f"{stem}shared_expert."
    held = elsewhere.experts
    return MoeWeights(
        router=source.projection(f"{stem}gate.weight", g.experts, g.hidden),
        experts=_experts(source, g, f"{stem}experts.") if held is None else held(layer),
        shared_gate=source.projection(f"{shared}gate_proj.weight", g.shared_width, g.hidden),
        shared_up=source.projection(f"{shared}up_proj.weight", g.shared_width, g.hidden),
        shared_down=source.projection(f"{shared}down_proj.weight", g.hidden, g.shared_width),
        shared_scale=source.projection(f"{stem}shared_expert_gate.weight", 1, g.hidden),
    )


def _experts(source: Source, g: Geometry, stem: str) -> DenseExperts:
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
    return DenseExperts(*(source.made(mx.contiguous(one.swapaxes(1, 2))) for one in (gate, up, down)))


def _packed(artifact: Artifact, g: Geometry, source: Source, layer: int) -> Experts:
    """Reads the records of a layer in affine codes."""
    records = (artifact.experts.read_record(layer, expert) for expert in range(g.experts))
    found = from_records((map(one.component, range(3)) for one in records), g.experts, AFFINE, g)
    source.resident_bytes += found.nbytes
    return found


def _ple(source: Source, g: Geometry, layer: int, elsewhere: Elsewhere) -> PleWeights:
    stem = source.name(f"layers.{layer}.ple.")
    found = ple.derive_hash(g, g.ple_layers.index(layer))
    buffers = (
        ("layer_multipliers", found.multipliers),
        ("ngram_heads_vocab_sizes", found.primes),
        ("ngram_heads_offsets", found.offsets),
    )
    for name, derived in buffers:
        source.buffer(f"{stem}ple_embedding.{name}", derived)
    return PleWeights(
        key=source.projection(f"{stem}key_proj.weight", g.wide, g.ple_embedding),
        value=source.projection(f"{stem}value_proj.weight", g.hidden, g.ple_embedding),
        norm_key=_centred(source, f"{stem}norm_key.weight", g.wide),
        norm_query=_centred(source, f"{stem}norm_query.weight", g.wide),
        norm_conv=_centred(source, f"{stem}norm_conv.weight", g.wide),
        taps=_taps(source, f"{stem}conv1d.weight", g.wide, g.ple_kernel),
        hash=found,
        rows=_table(source, g, f"{stem}ple_embedding.ngram_embedding.", found.padded_rows)
        if elsewhere.rows is None
        else elsewhere.rows(layer),
    )


def _table(source: Source, g: Geometry, stem: str, rows: int) -> Rows:
    """Returns the embedding table of a layer, in one tensor or in parts."""
    names = [f"{stem}weight"]
    if not source.has(names[0]):
        names = [f"{stem}shard_{part}.weight" for part in range(g.ngram_parts)]
    return source.table(names, rows, g.ple_embedding // g.ple_heads)


def _centred(source: Source, name: str, width: int) -> mx.array:
    """The gain of a norm that stores w around zero: 1 + w."""
    return source.made(source.vector(name, (width,)) + 1.0)


def _taps(source: Source, name: str, channels: int, kernel: int) -> mx.array:
    """Convolution weights [channel, 1, kernel] as [kernel, channel]."""
    return source.made(mx.contiguous(source.vector(name, (channels, 1, kernel))[:, 0].T))
