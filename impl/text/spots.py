"""Finds for every text in a template where it stands in the source, before the code is generated.

What one output or one chain of `+` and `~` puts together, stands together: its constants and operands get places in
one unit, one after the other. A constant anywhere else is a unit of its own. So two constants count as neighbours only
where the template's author put one behind the other, whatever a caller's text does when the template runs.
"""

from collections.abc import Iterator
from typing import Final

from jinja2 import nodes

from assay.impl.text.origin import Spot, Unit

SPOT: Final = "assay_spot"
"""Attribute of a constant: its spot."""
OPERAND: Final = "assay_operand"
"""Attribute of an operand that stands beside a constant: its spot."""
STEP: Final = "assay_step"
"""Attribute of a constant that stands for one step of a loop."""
COMPARED: Final = "assay_compared"
"""Attribute of an expression that is compared with another that is no constant."""


def mark(tree: nodes.Template) -> None:
    """Marks the constants, operands, loops and comparisons of a template."""
    for output in tree.find_all(nodes.Output):
        _number(output.nodes, output.lineno)
    for chain in tree.find_all((nodes.Add, nodes.Concat)):
        if not hasattr(chain, SPOT):
            _number([chain], chain.lineno)
    for constant in tree.find_all((nodes.Const, nodes.TemplateData)):
        text = _text(constant)
        if text is not None and not hasattr(constant, SPOT):
            setattr(constant, SPOT, Spot(Unit(constant.lineno), 0, len(text)))
    for compare in list(tree.find_all(nodes.Compare)):
        if not any(isinstance(one, nodes.Const) for one in (compare.expr, *(op.expr for op in compare.ops))):
            for one in (compare.expr, *(op.expr for op in compare.ops)):
                setattr(one, COMPARED, True)
    for loop in list(tree.find_all(nodes.For)):
        loop.body.insert(0, nodes.ExprStmt(_step(loop.lineno), lineno=loop.lineno))
        if loop.test is not None:
            loop.test = nodes.And(_step(loop.lineno), loop.test, lineno=loop.test.lineno)


def _number(parts: list[nodes.Expr], line: int) -> None:
    """Gives the leaves of one concatenation their places in it."""
    unit, at = Unit(line), 0
    leaves = list(_leaves(parts))
    texts = [_text(leaf) for leaf in leaves]
    for index, (leaf, text) in enumerate(zip(leaves, texts, strict=True)):
        length = 1 if text is None else len(text)
        spot = Spot(Unit(leaf.lineno) if len(leaves) == 1 else unit, at, at + length)
        at += length
        if text is not None:
            setattr(leaf, SPOT, spot)
        elif any(texts[beside] for beside in (index - 1, index + 1) if 0 <= beside < len(texts)):
            setattr(leaf, OPERAND, spot)


def _leaves(parts: list[nodes.Expr]) -> Iterator[nodes.Expr]:
    stack = list(reversed(parts))
    while stack:
        node = stack.pop()
        if isinstance(node, nodes.Add):
            setattr(node, SPOT, None)  # numbered with the chain that it is a part of
            stack += [node.right, node.left]
        elif isinstance(node, nodes.Concat):
            setattr(node, SPOT, None)
            stack += reversed(node.nodes)
        else:
            yield node


def _text(node: nodes.Node) -> str | None:
    if isinstance(node, nodes.TemplateData):
        return node.data
    return node.value if isinstance(node, nodes.Const) and isinstance(node.value, str) else None


def _step(line: int) -> nodes.Const:
    step = nodes.Const(None, lineno=line)
    setattr(step, STEP, True)
    return step
