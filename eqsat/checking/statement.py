"""A rule in one direction and for certain functions: what is left to choose are axes and values.

`f(a..)` has as many operands as f takes, a class such as `elementwise` has become one of its members,
and `f in operations` is an operation with core axes of its own. So whoever draws terms meets no
function variables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from eqsat.checking.kinds import words
from eqsat.errors import RuleError
from eqsat.ir.elementwise import COMMUTATIVE, ELEMENTWISE, IDENTITIES, INCREASING, LINEAR
from eqsat.ir.numpy_functions import NUMPY_FUNCTIONS
from eqsat.ir.operations import OperationSpec, Signature, known_operation, parse_signature
from eqsat.language.functions import UNROUNDED
from eqsat.language.listed import functions_in
from eqsat.language.rewriting import rewritten
from eqsat.language.syntax import (
    Apply,
    ChunkOf,
    Expression,
    FoldOf,
    OperationOf,
    Reduction,
    RenameOf,
    Rule,
    Variable,
)
from eqsat.language.traverse import variables, walk

CORE = "_core"
"""What the names of core axes end with, of an operation that stands for a class."""

CALL = "call:"
"""What the names of calls of plain JAX primitives begin with, where an operation's name is expected."""

CALLS: dict[str, Signature] = {
    CALL + signature.name: signature
    for signature in map(
        parse_signature,
        (
            "sort[p](a: p) -> p",
            "cumsum[p](a: p) -> p",
            "triangular_solve[p, q, r](a: p q, b: p r) -> q r",
        ),
    )
}
"""Primitives that stand for the class `calls`, with their core axes."""

ACCUMULATING: dict[str, Signature] = {
    CALL + "scatter_add": parse_signature("scatter_add[p, n](x: p, index: n, updates: n) -> p")
}
"""Those that stand for calls which accumulate. They do so along the last of their core axes."""

SUMMING: dict[str, Signature] = {
    CALL + "dot_general": parse_signature("dot_general[p, q, n](a: p n, b: q n) -> p q")
}
"""Those that stand for calls which sum, over the last of their core axes."""

REDUCING = {"accumulates": ACCUMULATING, "sums": SUMMING}
"""By the guard that asks for them."""

PRIMITIVES = {**CALLS, **ACCUMULATING, **SUMMING}
"""By name, the signatures of all primitives that stand for others."""

SELECTIONS = ("argmax", "argmin", "top_k:values", "top_k:indices")
"""The selections that stand for the class: top_k with an axis of entries called `ENTRIES`."""

ENTRIES = "entries*"
"""The axis of the entries of a selection that a rule names by a variable."""

_FIRST = words("exp sub select_n tanh max neg div clamp lt square integer_pow mul log and not eq")
_OPERATIONS = words("softmax inv diagonal sort solve logsumexp reverse take cholesky")


@dataclass(frozen=True, slots=True)
class Statement:
    """A rule from left to right, without function variables.

    **Attributes:**

    - `functions`: what was chosen for each function variable.
    """

    rule: Rule
    functions: tuple[tuple[str, str], ...]


def signature_of(name: str) -> Signature:
    """The signature of an operation, or of a call that stands in an operation's place."""
    return PRIMITIVES[name] if name in PRIMITIVES else operation_called(name).signature


def operation_called(name: str) -> OperationSpec:
    """The operation of that name.

    **Raises:** `RuleError` if there is none.
    """
    spec = known_operation(name)
    if spec is None:
        raise RuleError(f"there is no operation {name!r}")
    return spec


def directions(rule: Rule) -> list[Rule]:
    """A rule, and the same from right to left if it is two-way, as one-way rules."""
    forward = replace(rule, both_ways=False)
    if not rule.both_ways:
        return [forward]
    return [forward, replace(forward, left=rule.right, right=rule.left)]


def members(family: str) -> list[str]:
    """The functions of a class that are tried, the most telling ones first."""
    known = [name for name in NUMPY_FUNCTIONS if name in ELEMENTWISE]
    if family == "reductions":
        return ["sum", "max", "mean", "prod", "min", "and", "or", "xor"]
    if family == "monoids":
        return [name for name in members("reductions") if name in IDENTITIES]
    if family == "unrounded":
        return list(UNROUNDED)
    if family == "selections":
        return list(SELECTIONS)
    if family == "calls":
        return list(CALLS)
    if family == "operations":
        return list(_OPERATIONS)
    if family == "elementwise":
        return [*_FIRST, *(name for name in known if name not in _FIRST)]
    table = {"commutative": COMMUTATIVE, "increasing": INCREASING, "linear": LINEAR}
    if functions_in(family):
        return list(functions_in(family))
    if family not in table:
        raise RuleError(f"the checker does not know the class {family!r}")
    return [name for name in members("elementwise") if name in table[family]]


def statements(rule: Rule) -> Iterator[Statement]:
    """A one-way rule for all choices of its functions, one after another."""
    if not rule.classes:
        yield Statement(rule, ())
        return
    (function, family), *rest = rule.classes
    arity = _arity(rule, function)
    along = reduced(rule, function)
    for member in REDUCING[along[0]] if along else members(family):
        if arity is not None and family not in _REDUCING and _arity_of(member) != arity:
            continue
        chosen = _substituted(rule, function, member)
        for inner in statements(replace(chosen, classes=tuple(rest))):
            yield replace(inner, functions=((function, member), *inner.functions))


def reduced(rule: Rule, function: str) -> tuple[str, str] | None:
    """What a rule's function does, and along which axis: it accumulates or sums."""
    said = ((guard.name, guard.operands) for guard in rule.guards if guard.name in REDUCING)
    return next(((what, axis) for what, (name, axis) in said if name == function), None)


_REDUCING = ("reductions", "monoids", "unrounded", "selections")


def _arity(rule: Rule, function: str) -> int | None:
    """How many operands a function variable has in a rule, None for as many as there are."""
    counts = {
        len(node.operands)
        for node in walk(rule.left)
        if isinstance(node, Apply) and node.function == function and not node.variadic
    }
    return min(counts) if counts else None


def _arity_of(member: str) -> int:
    if member in ELEMENTWISE:
        return ELEMENTWISE[member].arity
    return len(signature_of(member).operands)


def _substituted(rule: Rule, function: str, member: str) -> Rule:
    """The rule with a member in place of a function variable."""
    numbered = _numbered_variables(rule, function)
    arity = _arity_of(member) if numbered or member in ELEMENTWISE else 0
    called = member in PRIMITIVES or known_operation(member) is not None

    def replaced(node: Expression) -> Expression | None:
        match node:
            case Apply(function=name) if name == function:
                below = list(node.operands)
                if node.variadic:
                    (template,) = below
                    below = [_numbered(template, numbered, index) for index in range(arity)]
                if called and member not in ELEMENTWISE:
                    core = core_letters(signature_of(member))
                    along = reduced(rule, function)
                    core = (*core[:-1], along[1]) if along else core
                    renamed = {e.old: e.new for e in node.operands if isinstance(e, RenameOf)}
                    axes = tuple(renamed.get(letter, letter) for letter in core)
                    return OperationOf(member, axes, tuple(below), node.position)
                exponent = 3 if member == "integer_pow" else None
                return Apply(member, tuple(below), node.position, exponent=exponent)
            case Reduction(kind=name) if name == function:
                return replace(node, kind=member)
            case FoldOf(monoid=name) if name == function:
                return replace(node, monoid=member)
        return None

    guards = tuple(
        copy
        for guard in rule.guards
        for copy in (
            [
                replace(guard, operands=tuple(_name(o, numbered, index) for o in guard.operands))
                for index in range(arity)
            ]
            if numbered & set(guard.operands)
            else [guard]
        )
    )
    return replace(
        rule, left=rewritten(rule.left, replaced), right=rewritten(rule.right, replaced), guards=guards
    )


def core_letters(signature: Signature) -> tuple[str, ...]:
    """Axis names for the core axes of an operation that stands for a class; no rule has such names."""
    return tuple(f"{letter}{CORE}" for letter in signature.axes)


def _numbered_variables(rule: Rule, function: str) -> set[str]:
    """The variables that stand for all operands of a function."""
    return {
        variable.name
        for node in walk(rule.left)
        if isinstance(node, Apply) and node.function == function and node.variadic
        for variable in variables(node)
    }


def _name(name: str, numbered: set[str], index: int) -> str:
    return f"{name}_{index + 1}" if name in numbered else name


def _numbered(template: Expression, names: set[str], index: int) -> Expression:
    """What stands for all operands, for one of them."""

    def replaced(node: Expression) -> Expression | None:
        if isinstance(node, Variable) and node.name in names:
            return replace(node, name=_name(node.name, names, index))
        return None

    return rewritten(template, replaced)


def is_slow(rule: Rule) -> bool:
    """Whether a rule, without function variables, is about what JAX compiles anew for each shape."""
    names = {
        node.name for side in (rule.left, rule.right) for node in walk(side) if isinstance(node, OperationOf)
    }
    return any(name in PRIMITIVES or not operation_called(name).text for name in names)


def loops(rule: Rule) -> bool:
    """Whether a rule is about chunks."""
    return any(isinstance(node, ChunkOf) for side in (rule.left, rule.right) for node in walk(side))
