"""Judges an inventory against the tensors that a profile expands to, and against its published totals."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from assay.impl.stores.checkpoint.inventory import STAGE, Inventory, InventoryRow
from assay.spec.clauses import Authority, declare
from assay.spec.contract import Contract, TensorSpec, expand_tensors
from assay.spec.errors import Finding

MISSING: Final = declare(
    "inventory.missing", Authority.RULE, "Every tensor that the roles expand to is in the checkpoint.",
    source="the model class of transformers 5.24.0 on the meta device",
    cause="a conversion that dropped or renamed it, or a checkpoint of another revision",
)  # fmt: skip
UNEXPECTED: Final = declare(
    "inventory.unexpected", Authority.RULE,
    "A tensor belongs to a role of the profile or to an excluded prefix that is counted.",
    source="field note AFN-001", cause="a conversion that renamed or added tensors",
)  # fmt: skip
DTYPE: Final = declare(
    "inventory.dtype", Authority.RULE, "A tensor has its role's element type, whatever its values survive.",
    source="ggml-org/llama.cpp#13557: integer arrays rewritten as 32 bits", cause="a tool that re-saved with its own types",
)  # fmt: skip
SHAPE: Final = declare(
    "inventory.shape", Authority.RULE, "A tensor has its role's shape, in source order.",
    source="the model class of transformers 5.24.0", cause="another size of the model, or a transposed re-save",
)  # fmt: skip
CLASSES: Final = declare(
    "inventory.classes", Authority.RULE, "Excluded tensors are there in their pinned number and bytes, though never run.",
    source="field note AFN-001", cause="a text-only re-save, or another revision",
)  # fmt: skip
TOTALS: Final = declare(
    "inventory.totals", Authority.PIN, "Counts and bytes of tensors, dtypes and shards are the published ones.",
    source="the published inventory of the pinned revision", cause="another revision",
)  # fmt: skip
DIGEST: Final = declare(
    "inventory.digest", Authority.PIN, "The inventory digest is the published one.",
    source="the published inventory of the pinned revision", cause="a tensor moved, even if nothing else changed",
)  # fmt: skip


def judge_inventory(inventory: Inventory, contract: Contract, *, is_complete: bool) -> list[Finding]:
    """Returns every disagreement of an inventory with a profile.

    Args:
        inventory: the owned tensors.
        contract: the profile.
        is_complete: whether every shard's header was read; otherwise absence and totals can't be judged.
    """
    findings: list[Finding] = []
    rows = {row.name: row for row in inventory.rows}
    specs = {spec.name: spec for spec in expand_tensors(contract)}
    for name, spec in specs.items():
        row = rows.get(name)
        if row is not None:
            findings += _judge_row(row, spec)
        elif is_complete:
            shape = list(spec.shape)
            findings.append(
                Finding.of(MISSING, STAGE, name, expected=f"{spec.dtype} {shape}", got="no such tensor")
            )
    prefixes = (contract.exclusions.vision_prefix, contract.exclusions.mtp_prefix)
    findings += [
        Finding.of(UNEXPECTED, STAGE, f"{row.shard}: {row.name}", expected="a role of the profile",
                   got=f"{row.dtype} {list(row.shape)}")
        for row in inventory.rows
        if row.name not in specs and not row.name.startswith(prefixes)
    ]  # fmt: skip
    if is_complete:
        findings += _judge_classes(inventory.rows, contract)
        findings += _judge_totals(inventory, contract)
    return findings


def judge_names(names: Iterable[str], contract: Contract) -> list[Finding]:
    """Returns every name that the roles expand to and that is not there, and every one that no role explains."""
    found = set(names)
    expected = {spec.name for spec in expand_tensors(contract)}
    prefixes = (contract.exclusions.vision_prefix, contract.exclusions.mtp_prefix)
    absent = [Finding.of(MISSING, STAGE, name, expected="an entry", got="no such tensor")
              for name in sorted(expected - found)]  # fmt: skip
    strange = [Finding.of(UNEXPECTED, STAGE, name, expected="a role of the profile", got="an entry")
               for name in sorted(found - expected) if not name.startswith(prefixes)]  # fmt: skip
    counts = {
        "vision": (contract.exclusions.vision_tensors, prefixes[0]),
        "mtp": (contract.exclusions.mtp_tensors, prefixes[1]),
    }
    classes = [Finding.of(CLASSES, STAGE, f"{name} ({prefix}*)", expected=f"{count} tensors", got=f"{got} tensors")
               for name, (count, prefix) in counts.items()
               if (got := sum(1 for one in found if one.startswith(prefix))) != count]  # fmt: skip
    return absent + strange + classes


def _judge_row(row: InventoryRow, spec: TensorSpec) -> list[Finding]:
    where = f"{row.shard}: {row.name}"
    findings = []
    if row.dtype != spec.dtype:
        findings.append(Finding.of(DTYPE, STAGE, where, expected=spec.dtype, got=row.dtype))
    if row.shape != spec.shape:
        findings.append(Finding.of(SHAPE, STAGE, where, expected=list(spec.shape), got=list(row.shape)))
    return findings


def _judge_classes(rows: Sequence[InventoryRow], contract: Contract) -> list[Finding]:
    pinned = contract.exclusions
    classes = {
        "vision": (pinned.vision_prefix, pinned.vision_tensors, pinned.vision_bytes),
        "mtp": (pinned.mtp_prefix, pinned.mtp_tensors, pinned.mtp_bytes),
    }
    findings = []
    for name, (prefix, tensors, size) in classes.items():
        found = [row for row in rows if row.name.startswith(prefix)]
        got = (len(found), sum(row.end - row.begin for row in found))
        if got != (tensors, size):
            findings.append(
                Finding.of(
                    CLASSES, STAGE, f"{name} ({prefix}*)",
                    expected=f"{tensors} tensors of {size} bytes", got=f"{got[0]} tensors of {got[1]} bytes",
                )
            )  # fmt: skip
    return findings


def _judge_totals(inventory: Inventory, contract: Contract) -> list[Finding]:
    pins = contract.source_pins
    if pins is None:
        return []
    by_dtype: Counter[str] = Counter()
    for row in inventory.rows:
        by_dtype[row.dtype] += row.end - row.begin
    found = [
        (TOTALS, "tensors", pins.tensor_count, len(inventory.rows)),
        (TOTALS, "bytes", pins.source_bytes, inventory.total_bytes),
        (TOTALS, "bytes by dtype", dict(sorted(pins.bytes_by_dtype.items())), dict(sorted(by_dtype.items()))),
        (TOTALS, "shards", pins.shard_count, len({row.shard for row in inventory.rows})),
        (DIGEST, "inventory", pins.inventory_sha256, inventory.digest),
    ]
    return [
        Finding.of(code, STAGE, where, expected=expected, got=got)
        for code, where, expected, got in found
        if expected != got
    ]
