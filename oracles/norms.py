"""RMS norms: two conventions for the stored gain, each named, never guessed.

The plain norms of this family store gains around zero and apply `1 + w`. The gated norm inside the recurrent
layers stores the gain itself. To swap them loads cleanly and yields noise (bug report A17).
"""

from typing import Final, Literal

import numpy as np
from numpy.typing import DTypeLike

from assay.oracles.arithmetic import inverse_rms, sigmoid
from assay.oracles.checks import Array, integer, positive, real, refuse, working
from assay.oracles.clauses import DOMAIN

Convention = Literal["zero-centred", "conventional"]
CONVENTIONS: Final = ("zero-centred", "conventional")


def rms(
    x: Array,
    weight: Array,
    eps: float = 1e-6,
    convention: Convention = "zero-centred",
    groups: int = 1,
    dtype: DTypeLike = np.float32,
) -> Array:
    """Returns x * rsqrt(mean(x^2) + eps) * gain, the statistics taken for each group of the last axis.

    Args:
        x: [..., width].
        weight: [width]; the gain is 1 + weight (zero-centred) or weight (conventional).
        eps: added to the mean of squares, above 0.
        convention: `zero-centred` or `conventional`.
        groups: number of equal parts of the last axis, each with its own statistics.
        dtype: float32 or float64.

    Returns:
        [..., width], in the working type.

    Raises:
        ContractError: oracle.argument.*, naming the argument.

    Order: squares, mean and inverse root in float64, rounded once; product and gain in the working type.
    Source: facts 2.1; transformers 5.24.0 `Qwen4ExpTextRMSNorm`.
    """
    kind = working(dtype)
    values = real("x", x, kind)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise refuse(DOMAIN, "x", expected="at least one value in the last axis", got=values.shape)
    width = values.shape[-1]
    gain = real("weight", weight, kind, (width,))
    positive("eps", eps)
    if convention not in CONVENTIONS:
        raise refuse(DOMAIN, "convention", expected=" or ".join(CONVENTIONS), got=convention)
    if width % integer("groups", groups, 1, width):
        raise refuse(DOMAIN, "groups", expected=f"a divisor of the width {width}", got=groups)
    grouped = values.reshape(*values.shape[:-1], groups, width // groups)
    root = inverse_rms(grouped, eps)
    if not np.isfinite(root).all():
        expected = f"a number whose inverse root {kind.name} holds, for a row of zeros"
        raise refuse(DOMAIN, "eps", expected=expected, got=eps)
    normal = grouped * root
    scale = gain + kind.type(1) if convention == "zero-centred" else gain
    return np.asarray(normal.reshape(values.shape) * scale, dtype=kind)


def gated(x: Array, weight: Array, gate: Array, eps: float = 1e-6, dtype: DTypeLike = np.float32) -> Array:
    """Returns the conventional norm of x, times the sigmoid of the gate.

    Args:
        x: [..., width].
        weight: [width], the gain itself.
        gate: [..., width], before the activation.
        eps: added to the mean of squares.
        dtype: float32 or float64.

    Returns:
        [..., width].

    Order: as `rms`; the gate is applied after the gain.
    Source: facts 2.3; the config's `output_gate_type`; bug report A16 (a SiLU here is the fault).
    """
    kind = working(dtype)
    values = real("x", x, kind)
    gates = real("gate", gate, kind, values.shape)
    return np.asarray(rms(values, weight, eps, "conventional", dtype=kind) * sigmoid(gates), dtype=kind)
