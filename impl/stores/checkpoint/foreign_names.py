"""Maps the tensors of a conversion back to the roles of the profile, and says how each role is stored.

Conversions rename, pack, transpose and split. What is judged here is what headers show: that each role is there in
every layer, and that its stored geometry can hold the role's logical shape. Values are not judged.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from assay.impl.stores.checkpoint.inventory import InventoryRow
from assay.spec.contract import Contract, TensorSpec, expand_tensors

_BASE: Final = "model.language_model."
_PREFIXES: Final = (  # the more telling first
    ("language_model.model.", _BASE),
    ("language_model.lm_head.", "lm_head."),
    (_BASE, _BASE),
    ("lm_head.", "lm_head."),
    ("model.", _BASE),
)
_EXCLUDED: Final = re.compile(
    r"^(model\.|language_model\.|language_model\.model\.)?(visual|vision_tower|mtp)\."
)
_COMPANION: Final = re.compile(
    r"[._](scales|biases|weight_scale|weight_scale_inv|weight_scale_2|weight_global_scale|weight_zero_point"
    r"|weight_shape|input_scale|input_global_scale|scale|scale_inv|qzeros|g_idx)$"
)
_PACKED: Final = re.compile(r"\.(weight_packed|qweight)$")
_SPLIT: Final = re.compile(r"^(.*\.mlp\.)(?:experts\.(\d+)|switch_mlp)\.(gate|up|down)_proj$")
_FLOATS: Final = frozenset({"BF16", "F16", "F32"})
_WHOLE_WIDTH: Final = frozenset({"F8_E4M3", "F8_E5M2", "I8", "U8"})
_MLX_BITS: Final = frozenset({2, 3, 4, 5, 6, 8})


@dataclass(slots=True)
class RoleState:
    """How one role is stored over all its layers.

    Attributes:
        pattern: name with `N` in the place of layer and shard numbers.
        expected: how many tensors of the role the profile has.
        as_is: stored under their own name, dtype and shape.
        recoded: another name, dtype, packing or layout, with a geometry that can hold the logical shape.
        absent: names of those that were not found.
        narrowed: names of those stored as F16, whose range is smaller than that of BF16.
        misfits: name, logical shape and stored description of those whose geometry can't hold it.
    """

    pattern: str
    expected: int = 0
    as_is: int = 0
    recoded: int = 0
    absent: list[str] = field(default_factory=list)
    narrowed: list[str] = field(default_factory=list)
    misfits: list[tuple[str, str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ConversionMap:
    """The roles of a conversion, by pattern, and what no role explains.

    Attributes:
        roles: by pattern, in the order of the profile.
        unexplained: patterns of stored names that belong to no role, with their number.
        codecs: description of a codec -> number of tensors stored in it.
        stored_bytes: bytes of everything that belongs to a role, scales included.
        elements: elements of the roles that were found.
    """

    roles: dict[str, RoleState]
    unexplained: dict[str, int]
    codecs: dict[str, int]
    stored_bytes: int
    elements: int

    @property
    def bits_per_weight(self) -> float:
        """Real bits per weight over all roles that were found, scales and biases counted."""
        return round(8 * self.stored_bytes / self.elements, 3) if self.elements else 0.0


def map_conversion(
    rows: Iterable[InventoryRow], contract: Contract, *, block: tuple[int, int] | None = None
) -> ConversionMap:
    """Maps every stored tensor to a role of the profile; `block` is the rows and columns that share one scale."""
    mains, companions = _sorted_out(rows)
    roles: dict[str, RoleState] = {}
    codecs: dict[str, int] = defaultdict(int)
    used: set[str] = set()
    stored_bytes = elements = 0
    for spec in expand_tensors(contract):
        state = roles.setdefault(pattern_of(spec.name), RoleState(pattern_of(spec.name)))
        state.expected += 1
        found = _pieces(spec, mains)
        if not found:
            state.absent.append(spec.name)
            continue
        used.update(key for key, _ in found)
        parts = [row for _, row in found]
        beside = [row for key, _ in found for row in companions.get(key, ())]
        stored_bytes += sum(row.end - row.begin for row in (*parts, *beside))
        elements += spec.elements
        if len(parts) == 1 and (parts[0].name, parts[0].dtype, parts[0].shape) == (
            spec.name,
            spec.dtype,
            spec.shape,
        ):
            state.as_is += 1
            continue
        codec, problem = _judge_geometry(spec, parts, companions, [key for key, _ in found], block)
        if problem:
            state.misfits.append((spec.name, f"{spec.dtype} {list(spec.shape)}", problem))
        else:
            state.recoded += 1
            if spec.dtype == "BF16" and any(part.dtype == "F16" for part in parts):
                state.narrowed.append(spec.name)
            codecs[codec] += 1
    unexplained: dict[str, int] = defaultdict(int)
    for key, row in mains.items():
        if key not in used:
            unexplained[pattern_of(row.name)] += 1
    return ConversionMap(roles, dict(unexplained), dict(codecs), stored_bytes, elements)


def pattern_of(name: str) -> str:
    """Returns a name with `N` in the place of its numbers."""
    return re.sub(r"(?<=[._])\d+(?=\.|$)", "N", name)


def canonical_name(name: str) -> str:
    """Returns the profile's spelling of a stored name, without the leaf `weight`; experts keep their split form."""
    name = _PACKED.sub(".weight", name).removesuffix(".weight") + "."  # the dot lets a prefix be a whole name
    for theirs, ours in _PREFIXES:
        if name.startswith(theirs):
            name = ours + name.removeprefix(theirs)
            break
    return name.removesuffix(".")


def _sorted_out(
    rows: Iterable[InventoryRow],
) -> tuple[dict[str, InventoryRow], dict[str, list[InventoryRow]]]:
    """Returns main tensors by canonical name, and scales and the like by the canonical name that they belong to."""
    mains: dict[str, InventoryRow] = {}
    companions: dict[str, list[InventoryRow]] = defaultdict(list)
    for row in rows:
        if _EXCLUDED.match(row.name):
            continue
        match = _COMPANION.search(row.name)
        if match:
            companions[canonical_name(row.name[: match.start()])].append(row)
        else:
            mains[canonical_name(row.name)] = row
    return mains, companions


def _pieces(spec: TensorSpec, mains: dict[str, InventoryRow]) -> list[tuple[str, InventoryRow]]:
    """Returns the stored tensors that make up one role, with their canonical names; none if one of them is absent."""
    key = spec.name.removesuffix(".weight")
    if key in mains:
        return [(key, mains[key])]
    if spec.group != "routed":
        return []
    stem, _, leaf = key.rpartition(".experts.")
    parts = ("gate", "up") if leaf == "gate_up_proj" else ("down",)
    together = [f"{stem}.switch_mlp.{part}_proj" for part in parts]
    apart = [f"{stem}.experts.{number}.{part}_proj" for number in range(spec.shape[0]) for part in parts]
    for keys in (together, apart):
        if all(key in mains for key in keys):
            return [(key, mains[key]) for key in keys]
    return []


def _judge_geometry(
    spec: TensorSpec,
    parts: Sequence[InventoryRow],
    companions: Mapping[str, Sequence[InventoryRow]],
    keys: Sequence[str],
    block: tuple[int, int] | None,
) -> tuple[str, str]:
    """Returns the codec of a role, and what is wrong with its geometry (nothing if it can hold the logical shape)."""
    if spec.dtype not in _FLOATS:  # integers are copied or they are wrong
        row = parts[0]
        is_same = (row.dtype, row.shape) == (spec.dtype, spec.shape)
        return row.dtype, "" if is_same else f"{row.dtype} {list(row.shape)}"
    codec = ""
    for key, row in zip(keys, parts, strict=True):
        shape = _part_shape(spec, row, len(parts))
        codec, problem = _judge_part(shape, row, companions.get(key, ()), block)
        if problem:
            return codec, problem
    return codec, ""


def _part_shape(spec: TensorSpec, row: InventoryRow, parts: int) -> tuple[int, ...]:
    """Returns the logical shape of one part: a fused tensor is split by gate and up, or by expert as well."""
    if parts == 1:
        return spec.shape
    match = _SPLIT.match(canonical_name(row.name))
    experts, rows, width = spec.shape
    is_half = match is not None and match[3] in {"gate", "up"}
    inner = (rows // 2 if is_half else rows, width)
    return inner if match is not None and match[2] is not None else (experts, *inner)


def _judge_part(
    shape: tuple[int, ...],
    row: InventoryRow,
    beside: Sequence[InventoryRow],
    block: tuple[int, int] | None,
) -> tuple[str, str]:
    stored, width = row.shape, shape[-1]
    described = f"{row.dtype} {list(stored)}"
    if row.dtype in _FLOATS:
        is_moved = len(shape) == 3 and shape[1] == 1 and stored == (shape[0], shape[2], 1)
        layout = "" if stored == shape else " transposed"
        return f"{row.dtype}{layout}", "" if stored == shape or is_moved else described
    if row.dtype in _WHOLE_WIDTH and stored == shape:
        misfit = next((one for one in beside if not _covers(one, shape, block)), None)
        return row.dtype, "" if misfit is None else f"{described} with scales {list(misfit.shape)}"
    if stored[:-1] != shape[:-1] or not stored:
        return row.dtype, described
    packed_bits = stored[-1] * {"U32": 32, "I32": 32, "U8": 8, "I8": 8}.get(row.dtype, 0)
    bits, rest = divmod(packed_bits, width)
    if rest or bits not in _MLX_BITS:
        return row.dtype, f"{described}: {packed_bits} bits for {width} values"
    scales = [
        one for one in beside if one.name.endswith((".scales", "scale")) and len(one.shape) == len(stored)
    ]
    for one in scales:
        if one.shape[:-1] == stored[:-1] and (not one.shape[-1] or width % one.shape[-1]):
            return row.dtype, f"{described} with {one.shape[-1]} scales for {width} values"
    groups = {width // one.shape[-1] for one in scales if one.shape[:-1] == stored[:-1]}
    group = f" group {min(groups)}" if groups else ""
    return f"{bits}-bit in {row.dtype}{group}", ""


def _covers(scale: InventoryRow, shape: tuple[int, ...], block: tuple[int, int] | None) -> bool:
    """Says whether weight scales of this shape can cover a tensor: one, one a row, or one a block of rows and columns."""
    if not re.search(r"[._](weight_scale|weight_scale_inv|scale_inv|scales?)$", scale.name):
        return True  # of activations, or a zero point: not judged
    got = scale.shape
    if not got or got == (1,) or got in {shape[:-1], (*shape[:-1], 1)}:
        return True
    if len(shape) > 2 and got in {shape[:-2], (*shape[:-2], 1), (*shape[:-2], 1, 1)}:
        return True
    if len(got) != len(shape) or got[:-2] != shape[:-2]:
        return False
    if block is not None:
        return got[-2:] == tuple(-(-size // step) for size, step in zip(shape[-2:], block, strict=True))
    return all(0 < count <= size and -(-size // -(-size // count)) == count
               for size, count in zip(shape[-2:], got[-2:], strict=True))  # fmt: skip
