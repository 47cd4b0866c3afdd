"""The constraints that the operations of a left side put on the values of variables.

`inv[i, j] A` needs an invertible matrix, `cholesky[i, j] A` a positive definite one, `take` an index. Such
a need is passed on through sums, products and renamings to the variables that the operand is computed from.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from eqsat.checking.kinds import words
from eqsat.checking.placement import Placement
from eqsat.checking.statement import Statement
from eqsat.ir.properties import PROPERTIES
from eqsat.language.syntax import (
    Apply,
    DeltaOf,
    Expression,
    OperationOf,
    Reduction,
    RenameOf,
    Rule,
    SelectionOf,
    Variable,
)
from eqsat.language.traverse import operands, variables, walk

MATRIX_NEEDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(words("inv solve det logdet"), ("regular",)),
    "cholesky": ("symmetric part",),
    "solve_lower": ("lower part",),
    "solve_upper": ("upper part",),
    "qr_q": ("regular",),
    "call:triangular_solve": ("lower part",),
}
"""By operation, the properties that its first operand needs along the first two core axes."""

SOLVES = frozenset({"solve", "solve_lower", "solve_upper"})

_PASSING = frozenset({"add", "sub", "neg", "select_n"})

_EXPONENTIAL = frozenset(
    words(
        "exp exp2 expm1 logistic tanh max min clamp softmax logsumexp sort argsort argmax argmin"
        " top_k:values top_k:indices"
    )
)
"""Functions whose operand may be minus infinity in places, as in a mask."""


@dataclass
class OperandConstraint:
    """The constraints on the values of one variable.

    **Attributes:**

    - `matrix`: properties along pairs of axes; "regular" means well-conditioned.
    - `scalar`: properties of the single numbers.
    - `index_along`: the axis along which the values are indices, if they are.
    - `away`: whether the values must be away from 0, because a regular matrix is computed from them.
    - `spread`: whether the values make up a matrix that may be ill-conditioned, as a diagonal does.
    - `maskable`: whether the values may be minus infinity in places.
    - `solved`: of a right-hand side, the variable that it is solved with, and the axes of that matrix.
    """

    matrix: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    scalar: set[str] = field(default_factory=set)
    index_along: str | None = None
    away: bool = False
    spread: bool = False
    maskable: bool = False
    solved: tuple[str, tuple[str, str]] | None = None

    @property
    def conditioned(self) -> bool:
        """Whether the values determine a condition number, which can be chosen."""
        return bool(self.matrix) or self.spread


def has_matrices(rule: Rule) -> bool:
    """Returns whether the left side of a rule has an operation that constrains a matrix, as `inv`."""
    return any(isinstance(node, OperationOf) and node.name in MATRIX_NEEDS for node in walk(rule.left))


class OperandConstraints:
    """The constraints on the variables of a statement; `by_name` has those that are constrained."""

    def __init__(self, statement: Statement, placement: Placement) -> None:
        self.placement = placement
        self.by_name: dict[str, OperandConstraint] = {}
        rule = statement.rule
        for known in rule.properties:
            constraint = self.of(known.term)
            if PROPERTIES[known.name] == 2 and set(known.axes) <= placement.of(known.term):
                first, second = known.axes
                constraint.matrix.setdefault((first, second), set()).add(known.name)
            elif not known.axes:
                constraint.scalar.add(known.name)
        for node in walk(rule.left):
            if isinstance(node, OperationOf):
                self.operation(node)
            below: tuple[Expression, ...] = ()
            match node:
                case Apply(function=name) | Reduction(kind=name) | OperationOf(name=name):
                    below = operands(node) if name in _EXPONENTIAL else ()
                case SelectionOf():
                    below = operands(node)
            for operand in below:
                self.mask(operand)

    def of(self, name: str) -> OperandConstraint:
        return self.by_name.setdefault(name, OperandConstraint())

    def operation(self, node: OperationOf) -> None:
        needs = set(MATRIX_NEEDS.get(node.name, ()))
        if needs:
            self.need(node.operands[0], (node.axes[0], node.axes[1]), needs)
        if node.name in SOLVES:
            matrix, solved = node.operands
            if isinstance(matrix, Variable) and isinstance(solved, Variable) and matrix.name != solved.name:
                self.of(solved.name).solved = (matrix.name, (node.axes[0], node.axes[1]))
        if node.name == "take" and isinstance(node.operands[1], Variable):
            self.of(node.operands[1].name).index_along = node.axes[0]

    def need(self, node: Expression, axes: tuple[str, str], needs: set[str]) -> None:
        """Passes a need on to the variables that an expression is computed from."""
        match node:
            case Variable(name=name) if set(axes) <= self.placement.of(name):
                constraint = self.of(name)
                if not constraint.matrix.get(axes) and not constraint.matrix.get(axes[::-1]):
                    constraint.matrix[axes] = set(needs)
            case Variable(name=name):
                if needs == {"symmetric part"}:
                    self.of(name).scalar.add("positive")
                self.of(name).away = True
            case RenameOf(old=old, new=new, operand=operand):
                renamed = tuple(old if axis == new else axis for axis in axes)
                self.need(operand, (renamed[0], renamed[1]), needs)
            case Apply(function="select_n", operands=(DeltaOf(), _, entries)):
                self.need(entries, axes, needs)
                for variable in variables(entries):
                    self.of(variable.name).spread = not set(axes) <= self.placement.of(variable.name)
            case Apply(function="mul" | "div", operands=operands):
                # A product has low rank if none of its factors is a matrix; then it can't be made regular.
                if any(set(axes) <= self.placement.of(v.name) for one in operands for v in variables(one)):
                    for operand in operands:
                        self.need(operand, axes, needs)
            case Apply(function=name) if name in _PASSING:
                for operand in node.operands:
                    self.need(operand, axes, needs)

    def mask(self, node: Expression) -> None:
        """Marks the variable that may hold a mask: the expression itself, or the first term of a sum."""
        match node:
            case Variable(name=name):
                self.of(name).maskable = True
            case Apply(function="add" | "sub", operands=(first, *_)):
                self.mask(first)
