"""Type inference: the kinds of the terms that the left side of a rule matches.

The operands of elementwise functions, reductions and contractions have one dtype, as in JAX. So the
variables of a rule fall into a few classes, each of one kind. The check tests a rule for the kinds that its
left side and its guards allow, since the engine would match terms of these kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice, product

from eqsat.checking.kinds import (
    CONTRACTION_KINDS,
    ELEMENTWISE_KINDS,
    GUARDED,
    IOTA_KINDS,
    KINDS,
    ORDERED_KINDS,
    PARTS,
    REDUCTION_KINDS,
    operation_kinds,
)
from eqsat.checking.memberships import constant_names
from eqsat.checking.statement import ACCUMULATING, PRIMITIVES, Statement, operation_called
from eqsat.ir.elementwise import ELEMENTWISE
from eqsat.language.syntax import (
    Apply,
    ChunkOf,
    ConcatOf,
    Contraction,
    DeltaOf,
    Expression,
    FoldOf,
    IotaOf,
    Number,
    OperationOf,
    Reduction,
    RenameOf,
    SelectionOf,
    Variable,
)
from eqsat.language.traverse import operands

MOST_ASSIGNMENTS = 12
"""How many ways to choose kinds are tried in turn at most. Each further one is tried once."""

MOST_CONSIDERED = 20_000
"""How many ways to choose kinds are enumerated at most."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """One way to choose kinds.

    **Attributes:**

    - `variables`: the kind of each variable.
    - `nodes`: the kind of each node of the left side, by its `id`.
    - `variable_classes`, `classes`: for each variable and for each node, a number. Variables and nodes with
      the same number must have the same dtype.
    """

    variables: Mapping[str, str]
    nodes: Mapping[int, str]
    variable_classes: Mapping[str, int]
    classes: Mapping[int, int]

    def __str__(self) -> str:
        return "".join(sorted(set(self.variables.values()) or set(self.nodes.values())))


@dataclass
class _Inference:
    """Union-find over the terms of a left side: those of one class have one kind.

    **Attributes:**

    - `allowed`: for each class, the kinds that it may have.
    - `parts`: for each application of a function of `PARTS`, the classes of its operand and its result.
    - `variables`, `nodes`: a number in the class of each variable, and of each node by its `id`.
    """

    statement: Statement
    parent: list[int] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)
    parts: list[tuple[int, int]] = field(default_factory=list)
    variables: dict[str, int] = field(default_factory=dict)
    nodes: dict[int, int] = field(default_factory=dict)

    def new(self, allowed: str = KINDS) -> int:
        self.parent.append(len(self.parent))
        self.allowed.append(allowed)
        return len(self.parent) - 1

    def find(self, number: int) -> int:
        while self.parent[number] != number:
            number = self.parent[number]
        return number

    def unite(self, numbers: list[int]) -> int:
        first, *rest = (self.find(number) for number in numbers)
        for number in rest:
            if number != first:
                self.parent[number] = first
                self.restrict(first, self.allowed[number])
        return first

    def restrict(self, number: int, allowed: str) -> int:
        root = self.find(number)
        self.allowed[root] = "".join(kind for kind in self.allowed[root] if kind in allowed)
        return root

    def node(self, node: Expression) -> int:
        below = [self.node(operand) for operand in operands(node)]
        found = self.nodes[id(node)] = self.result(node, below)
        return found

    def result(self, node: Expression, below: list[int]) -> int:
        match node:
            case Variable(name=name):
                if name not in self.variables:
                    self.variables[name] = self.new()
                return self.variables[name]
            case Number(text=text):
                return self.new("fiuc" if float(text).is_integer() else "fc")
            case Apply():
                return self.application(node, below)
            case Reduction(kind=kind):
                if kind in REDUCTION_KINDS:
                    return self.restrict(below[0], REDUCTION_KINDS[kind])
                self.restrict(below[0], ORDERED_KINDS)
                return below[0] if kind.endswith("values") else self.new("i")
            case Contraction():
                return self.restrict(self.unite(below), CONTRACTION_KINDS)
            case IotaOf():
                return self.new(IOTA_KINDS)
            case DeltaOf():
                return self.new("b")
            case OperationOf():
                return self.operation(node, below)
            case SelectionOf(result=result):
                self.restrict(below[0], ORDERED_KINDS)
                return below[0] if result == "values" else self.new("i")
            case FoldOf(monoid=monoid):
                if monoid in REDUCTION_KINDS:
                    return self.restrict(below[0], REDUCTION_KINDS[monoid])
                return below[-1]
            case RenameOf() | ChunkOf() | ConcatOf():
                return below[0]

    def application(self, node: Apply, below: list[int]) -> int:
        name = node.function
        allowed = ELEMENTWISE_KINDS[name]
        if name == "integer_pow" and (node.exponent or 0) < 0:
            allowed = "fc"
        if name == "convert":
            return self.new("fiuc")
        if name == "select_n":
            self.restrict(below[0], "b")
            return self.unite(below[1:])
        united = self.restrict(self.unite(below), allowed)
        if ELEMENTWISE[name].boolean:
            return self.new("b")
        if name in PARTS:
            self.parts.append((united, result := self.new("fiu")))
            return result
        return self.new("c") if name == "complex" else united

    def operation(self, node: OperationOf, below: list[int]) -> int:
        allowed = "f" if node.name in PRIMITIVES else operation_kinds(node.name)
        if node.name == "take" or node.name in ACCUMULATING:
            self.restrict(below[1], "i")
            return self.restrict(self.unite([below[0], *below[2:]]), allowed)
        united = self.restrict(self.unite(below), allowed)
        if node.name not in PRIMITIVES:
            dtype = operation_called(node.name).dtype
            if dtype:
                return self.new("i" if "int" in dtype else "b" if dtype == "bool" else "f")
        return united

    def guards(self) -> None:
        rule = self.statement.rule
        for guard in rule.guards:
            if guard.name in GUARDED and guard.operands[0] in self.variables:
                self.restrict(self.variables[guard.operands[0]], GUARDED[guard.name])
        for known in rule.properties:
            self.restrict(self.variables[known.term], "f" if known.axes else "fi")
        for name in constant_names(rule):
            self.restrict(self.variables[name], "fiu")


def kinds_of(statement: Statement) -> list[Kinds]:
    """Returns the ways to choose kinds, those with the fewest different kinds first.

    There are at most `MOST_ASSIGNMENTS`.
    """
    return all_kinds_of(statement)[:MOST_ASSIGNMENTS]


def all_kinds_of(statement: Statement) -> list[Kinds]:
    """Returns all ways to choose kinds, as far as they are enumerated, in the same order."""
    inference = _Inference(statement)
    inference.node(statement.rule.left)
    inference.guards()
    roots = sorted({inference.find(number) for number in inference.nodes.values()})
    found: list[Kinds] = []
    variable_classes = {name: inference.find(number) for name, number in inference.variables.items()}
    classes = {node: inference.find(number) for node, number in inference.nodes.items()}
    for chosen in islice(product(*(inference.allowed[root] for root in roots)), MOST_CONSIDERED):
        kind = dict(zip(roots, chosen, strict=True))
        of = {number: kind[inference.find(number)] for number in inference.nodes.values()}
        if all(of[part] == ("f" if of[whole] == "c" else of[whole]) for whole, part in inference.parts):
            found.append(
                Kinds(
                    {name: of[number] for name, number in inference.variables.items()},
                    {node: of[number] for node, number in inference.nodes.items()},
                    variable_classes,
                    classes,
                )
            )
    # In most programs, most terms have one dtype.
    found.sort(key=lambda kinds: len(set(kinds.variables.values())))
    return found
