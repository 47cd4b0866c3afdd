"""A rule in one direction and for given functions; only axes and values are left to choose.

A function chosen from a class such as `elementwise` replaces each function variable. A variadic `f(a..)`
gets as many operands as the function takes, and a member of `operations` gets core axes of its own. So the
code that draws terms never meets function variables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from eqsat.checking.kinds import words
from eqsat.errors import RuleError
from eqsat.ir.elementwise import COMMUTATIVE, ELEMENTWISE, IDENTITIES, INCREASING, LINEAR
from eqsat.ir.numpy_functions import NUMPY_FUNCTIONS
from eqsat.ir.numpy_operations import IN_DOUBLE
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
"""The suffix of the names of core axes, for an operation that stands for a class."""

CALL = "call:"
"""The prefix of the names of JAX primitives where an operation's name is expected."""

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
"""Primitives that stand for calls which accumulate, as they do along the last of their core axes."""

SUMMING: dict[str, Signature] = {
    CALL + "dot_general": parse_signature("dot_general[p, q, n](a: p n, b: q n) -> p q")
}
"""Primitives that stand for calls which sum, as they do over the last of their core axes."""

REDUCING = {"accumulates": ACCUMULATING, "sums": SUMMING}
"""The primitives that stand for calls, by the guard that asks for them."""

PRIMITIVES = {**CALLS, **ACCUMULATING, **SUMMING}
"""By name, the signatures of all primitives that stand for others."""

SELECTIONS = ("argmax", "argmin", "top_k:values", "top_k:indices")
"""The selections that stand for their class. The entries of a top_k have the axis `ENTRIES`."""

ENTRIES = "entries*"
"""The axis of the entries of a selection that was chosen for a function variable."""

_FIRST = words("exp sub select_n tanh max neg div clamp lt square integer_pow mul log and not eq")
_OPERATIONS = words("softmax inv diagonal sort solve logsumexp reverse take cholesky")


@dataclass(frozen=True, slots=True)
class Statement:
    """A rule from left to right, without function variables.

    **Attributes:**

    - `functions`: each function variable, and the function that was chosen for it.
    """

    rule: Rule
    functions: tuple[tuple[str, str], ...]


def signature_of(name: str) -> Signature:
    """Returns the signature of an operation, or of a primitive of `PRIMITIVES`.

    **Raises:** `RuleError` if there is no such operation.
    """
    return PRIMITIVES[name] if name in PRIMITIVES else operation_called(name).signature


def operation_called(name: str) -> OperationSpec:
    """Returns the operation of that name.

    **Raises:** `RuleError` if there is none.
    """
    spec = known_operation(name)
    if spec is None:
        raise RuleError(f"there is no operation {name!r}")
    return spec


def directions(rule: Rule) -> list[Rule]:
    """Returns the one-way rules that a rule consists of: two if it is two-way, else one."""
    forward = replace(rule, both_ways=False)
    if not rule.both_ways:
        return [forward]
    return [forward, replace(forward, left=rule.right, right=rule.left)]


def members(family: str) -> list[str]:
    """Returns the functions of a class that are tried; those that show most mistakes come first.

    **Raises:** `RuleError` if there is no such class.
    """
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
        raise RuleError(f"unknown class of functions {family!r}")
    return [name for name in members("elementwise") if name in table[family]]


def statements(rule: Rule) -> Iterator[Statement]:
    """Yields a one-way rule for all choices of its functions, one after another."""
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
    """Returns "accumulates" or "sums", and the axis, if a guard says that of a function; else None."""
    said = ((guard.name, guard.operands) for guard in rule.guards if guard.name in REDUCING)
    return next(((what, axis) for what, (name, axis) in said if name == function), None)


_REDUCING = ("reductions", "monoids", "unrounded", "selections")


def _arity(rule: Rule, function: str) -> int | None:
    """Returns how many operands a rule gives to a function variable; None if it does not say."""
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
    """Returns the rule with a member of a class in place of a function variable."""
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
    """Returns names for the core axes of an operation that stands for a class. No rule has such names."""
    return tuple(f"{letter}{CORE}" for letter in signature.axes)


def _numbered_variables(rule: Rule, function: str) -> set[str]:
    """Returns the variables that stand for all operands of a variadic function."""
    return {
        variable.name
        for node in walk(rule.left)
        if isinstance(node, Apply) and node.function == function and node.variadic
        for variable in variables(node)
    }


def _name(name: str, numbered: set[str], index: int) -> str:
    return f"{name}_{index + 1}" if name in numbered else name


def _numbered(template: Expression, names: set[str], index: int) -> Expression:
    """Returns the pattern that stands for all operands, with its variables numbered for one of them."""

    def replaced(node: Expression) -> Expression | None:
        if isinstance(node, Variable) and node.name in names:
            return replace(node, name=_name(node.name, names, index))
        return None

    return rewritten(template, replaced)


def is_slow(rule: Rule) -> bool:
    """Returns whether a rule, without function variables, has something that JAX compiles for each shape."""
    names = {
        node.name for side in (rule.left, rule.right) for node in walk(side) if isinstance(node, OperationOf)
    }
    compiled = IN_DOUBLE | PRIMITIVES.keys()
    return any(name in compiled or not operation_called(name).text for name in names)


def loops(rule: Rule) -> bool:
    """Returns whether a rule has chunks."""
    return any(isinstance(node, ChunkOf) for side in (rule.left, rule.right) for node in walk(side))
