"""The formulas that stand beside the derived constants, evaluated as arithmetic on names of the contract."""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from assay.spec.contract.contract import Contract
from assay.spec.rules.base import Check, Judge, rule

FORMULA: Final = rule(
    "derived.formula",
    "The recorded formula of a derived constant, evaluated on the contract's own names, gives its value.",
    cause="A formula was reworded, or belongs to another constant; who ports by it gets another model.",
)

IN_WORDS: Final = frozenset({"attention_output_gate", "gdn_head_states", "shared_expert_gate_outputs"})
"""Constants that follow from names or shapes of roles; their formula is a sentence."""

_OPERATORS: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_LONGEST: Final = 200


def evaluate(formula: str, names: Mapping[str, Any]) -> Any:
    """Returns the value of an arithmetic formula over `names`: + - * / //, integers, brackets and 2**n, n <= 64.

    Raises:
        ValueError: for anything else, and for a formula of more than 200 characters.
        SyntaxError: when the text is no expression.
        KeyError: for a name that is not known.
    """
    if len(formula) > _LONGEST:
        raise ValueError("a formula has at most 200 characters")
    return _value(ast.parse(formula, mode="eval").body, names)


def formulas(contract: Contract, judge: Judge) -> None:
    """Every formula gives the constant beside it."""
    names = {
        **contract.config.text.model_dump(exclude={"layer_types", "mtp", "rope_parameters", "ple_layer_ids"}),
        "padded_rows": contract.ple_hash.padded_rows,
        **{name: constant.value for name, constant in contract.derived_constants.items()},
    }
    for name, constant in contract.derived_constants.items():
        where = f"derived_constants.{name}.formula"
        if name in IN_WORDS:
            continue
        try:
            value = evaluate(constant.formula, names)
        except (ArithmeticError, KeyError, SyntaxError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__} in {constant.formula}"
            judge.holds(
                FORMULA, where, claim=False, expected="arithmetic on names of the contract", got=reason
            )
            continue
        judge.holds(FORMULA, where, value == constant.value, constant.value, f"{constant.formula} = {value}")


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, names), _value(node.right, names)
        if isinstance(node.op, ast.Pow) and left == 2 and type(right) is int and 0 <= right <= 64:
            return 2**right
        if (function := _OPERATORS.get(type(node.op))) is not None:
            return function(left, right)
    raise ValueError(f"{type(node).__name__} is not arithmetic")


CHECKS: Final[tuple[Check, ...]] = (formulas,)
