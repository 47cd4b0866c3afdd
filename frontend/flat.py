"""A jaxpr as one list of equations: calls that only group others are seen through, and splits are slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from eqsat.frontend.retracing import INLINED

SEEN_THROUGH = INLINED | {"jit", "pjit", "checkpoint", "remat", "remat2"}
"""Primitives that are what the jaxpr inside of them is."""

Value = int
"""The number of a value."""

Path = tuple[int, ...]
"""The ids of the equations of the calls that something is in, outermost first."""


class Variable(NamedTuple):
    """A variable of a jaxpr, or of one that is called there."""

    path: Path
    var: Var


@dataclass(frozen=True)
class Equation:
    """An equation.

    **Attributes:**

    - `inputs`: numbers of values, or literals.
    """

    primitive: Any
    params: Mapping[str, Any]
    inputs: tuple[Value | Literal, ...]
    outputs: tuple[Value, ...]
    effects: bool

    @property
    def name(self) -> str:
        return str(self.primitive.name)

    def bind(self, operands: Sequence[Any], **changed: Any) -> Any:
        """Its result, or results, of other operands."""
        params = self.primitive.get_bind_params({**self.params, **changed})
        return self.primitive.bind(*operands, **params)


class FlatJaxpr:
    """The equations of a jaxpr.

    **Attributes:**

    - `avals`: the types of values, by number.
    - `numbers`: the numbers of the variables of the jaxpr itself.
    - `variables`: of each value, the one that it is where it is made.
    - `constants`: what calls capture.
    - `results`: the results of the jaxpr. `made_by`: the equation of each value.
    """

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.equations: list[Equation] = []
        self.avals: list[Any] = []
        self.variables: list[Variable] = []
        self.constants: dict[Value, Any] = {}
        known: dict[Var, Value | Literal] = {}
        for var in (*jaxpr.constvars, *jaxpr.invars):
            known[var] = self._value(Variable((), var))
        self.results = self._add(jaxpr, known, ())
        self.numbers = {var: value for var, value in known.items() if not isinstance(value, Literal)}
        self.made_by = {value: one for one in self.equations for value in one.outputs}

    def _value(self, variable: Variable) -> Value:
        self.avals.append(variable.var.aval)
        self.variables.append(variable)
        return len(self.avals) - 1

    def _add(self, jaxpr: Jaxpr, numbers: dict[Var, Value | Literal], path: Path) -> list[Value | Literal]:
        def read(atom: Any) -> Value | Literal:
            return atom if isinstance(atom, Literal) else numbers[atom]

        for equation in jaxpr.eqns:
            inputs = tuple(map(read, equation.invars))
            inner = seen_through(equation)
            if inner is not None:
                inside = (*path, id(equation))
                known = dict(zip(inner.jaxpr.invars, inputs, strict=True))
                for var, constant in zip(inner.jaxpr.constvars, inner.consts, strict=True):
                    known[var] = value = self._value(Variable(inside, var))
                    self.constants[value] = constant
                results = self._add(inner.jaxpr, known, inside)
                numbers.update(zip(equation.outvars, results, strict=True))
                continue
            outputs = tuple(self._value(Variable(path, var)) for var in equation.outvars)
            numbers.update(zip(equation.outvars, outputs, strict=True))
            if equation.primitive is lax.split_p:
                self._split(equation, inputs, outputs)
                continue
            self.equations.append(
                Equation(equation.primitive, equation.params, inputs, outputs, bool(equation.effects))
            )
        return [read(atom) for atom in jaxpr.outvars]

    def _split(self, equation: Any, inputs: tuple[Value | Literal, ...], outputs: tuple[Value, ...]) -> None:
        """Several slices for a split, which has several results."""
        axis, start = equation.params["axis"], 0
        shape = equation.invars[0].aval.shape
        for output, size in zip(outputs, equation.params["sizes"], strict=True):
            starts = tuple(start if d == axis else 0 for d in range(len(shape)))
            limits = tuple(start + size if d == axis else length for d, length in enumerate(shape))
            params = {"start_indices": starts, "limit_indices": limits, "strides": None}
            self.equations.append(Equation(lax.slice_p, params, inputs, (output,), False))
            start += size


def seen_through(equation: Any) -> ClosedJaxpr | None:
    """The jaxpr that an equation is, if it is seen through."""
    if equation.primitive.name not in SEEN_THROUGH or equation.effects:
        return None
    # From JAX 0.12 on, both are one class.
    closed = [
        value if isinstance(value, ClosedJaxpr) else ClosedJaxpr(value, ())
        for value in equation.params.values()
        if isinstance(value, (ClosedJaxpr, Jaxpr))
    ]
    if len(closed) != 1 or len(closed[0].jaxpr.constvars) != len(closed[0].consts):
        return None
    return closed[0] if len(closed[0].jaxpr.invars) == len(equation.invars) else None
