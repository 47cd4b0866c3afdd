"""What identifies a program in every process: a digest of its jaxpr, free of names and addresses.

It is also free of weak types, of which only tracing takes notice: once traced, a weakly typed number is
computed with like any other. So a step of training on parameters that are still weakly typed has the plan of
the next one.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import sys
import types
from collections.abc import Mapping, Sequence
from functools import singledispatchmethod
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from eqsat.frontend.foreign import implementation_of
from eqsat.ir.dtypes import is_extended

CODE_BYTES = 1 << 16
"""Constant arrays of at most so many bytes are identified by their elements. Of larger ones, which are data,
plans depend on the shapes and dtypes only: they are arguments of planned programs."""

DERIVATIVES: Mapping[str, frozenset[str]] = {
    "custom_jvp_call": frozenset({"jvp_jaxpr_fun"}),
    "custom_vjp_call": frozenset({"fwd_jaxpr_thunk", "bwd", "out_trees"}),
    "custom_vmap_call": frozenset({"rule"}),
}
"""By primitive: parameters that say what transformations make of it, and nothing of what it computes."""


class Unidentified(Exception):
    """A program holds something that can't be told from something else in another process: a function..."""


class Fingerprint:
    """Collects what identifies something, and gives a digest of it.

    Every value is written with its type and its length, so that no two different sequences of values
    are written alike.

    **Attributes:**

    - `arrays`: the constant arrays that were met, scalars aside. Equal programs have them in the same order.
    """

    def __init__(self, programs: dict[int, tuple[str, list[Any], Any]] | None = None) -> None:
        self.arrays: list[Any] = []
        # By id: digests, arrays, and the programs themselves, so that their ids stay theirs.
        self._programs = {} if programs is None else programs
        self._hash = hashlib.blake2b(digest_size=20)
        self._variables: dict[Any, int] = {}
        self._others: dict[Any, Any] = {}  # by variable: what it is but for the weak type
        self._avals: dict[Any, str] = {}

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def _say(self, kind: str, text: str = "") -> None:
        self._hash.update(f"{kind} {len(text)} {text}\n".encode())

    def add(self, value: Any) -> None:
        """Add a value to what is identified.

        **Raises:** `Unidentified` for what has no identity outside of this process.
        """
        self._add(value)

    @singledispatchmethod
    def _add(self, value: Any) -> None:
        if isinstance(value, type):
            self._say("type", f"{value.__module__}.{value.__qualname__}")
        elif dataclasses.is_dataclass(value):
            self._say("dataclass", type(value).__qualname__)
            for field in dataclasses.fields(value):
                if not field.compare:
                    continue  # it is no part of what the value is
                self._say("field", field.name)
                self.add(getattr(value, field.name))
        else:
            self._object(value)

    def _object(self, value: Any) -> None:
        """An object of JAX's own: dimension numbers, shardings, meshes... by its text, if it has one."""
        text = repr(value)
        if type(value).__module__.split(".")[0] not in ("jax", "jaxlib", "numpy") or " at 0x" in text:
            raise Unidentified(f"{type(value).__module__}.{type(value).__qualname__}")
        self._say(type(value).__qualname__, text)

    @_add.register(types.FunctionType)
    @_add.register(types.BuiltinFunctionType)
    @_add.register(types.MethodType)
    def _function(self, value: Any) -> None:
        """A function of JAX's own is what its name says, in one version of JAX."""
        module, name = getattr(value, "__module__", None) or "", getattr(value, "__qualname__", "")
        if module.split(".")[0] != "jax" or getattr(sys.modules.get(module), name, None) is not value:
            raise Unidentified(f"the function {value!r}")
        self._say("function", f"{module}.{name}")

    @_add.register(types.NoneType)
    @_add.register(bool)
    @_add.register(int)
    @_add.register(float)
    @_add.register(complex)
    @_add.register(str)
    @_add.register(bytes)
    @_add.register(slice)
    @_add.register(range)
    @_add.register(np.dtype)
    def _plain(self, value: Any) -> None:
        self._say(type(value).__qualname__, repr(value))

    @_add.register(enum.Enum)
    def _enum(self, value: enum.Enum) -> None:
        self._say(type(value).__qualname__, value.name)

    @_add.register(tuple)
    @_add.register(list)
    def _sequence(self, value: Sequence[Any]) -> None:
        self._say(type(value).__qualname__, str(len(value)))
        for part in value:
            self.add(part)

    @_add.register(Mapping)
    def _mapping(self, value: Mapping[Any, Any]) -> None:
        self._say("mapping", str(len(value)))
        for key in sorted(value, key=str):
            self.add(key)
            self.add(value[key])

    @_add.register(frozenset)
    @_add.register(set)
    def _set(self, value: frozenset[Any]) -> None:
        """Its elements, each by a digest of its own, as they have no order."""
        digests = []
        for part in value:
            alone = Fingerprint()
            alone.add(part)
            digests.append(alone.hexdigest())
        self._say("set", " ".join(sorted(digests)))

    @_add.register(np.ndarray)
    @_add.register(np.generic)
    @_add.register(jax.Array)
    def _array(self, value: Any) -> None:
        if isinstance(value, jax.core.Tracer):
            raise Unidentified(f"the tracer {value}")
        if value.shape:
            self.arrays.append(value)
        self._say("array", f"{value.dtype} {value.shape}")
        if is_code(value):
            self._hash.update(np.ascontiguousarray(_elements(value)).tobytes())

    # Jaxprs.

    @_add.register(ClosedJaxpr)
    @_add.register(Jaxpr)
    def _program(self, value: Any) -> None:
        """A jaxpr, and its constants if it has got them, by a digest of its own: many calls share one."""
        known = self._programs.get(id(value))
        if known is None:
            alone = Fingerprint(self._programs)
            alone._jaxpr(value.jaxpr if isinstance(value, ClosedJaxpr) else value)
            alone._sequence(list(getattr(value, "consts", ())))
            known = self._programs[id(value)] = (alone.hexdigest(), alone.arrays, value)
        digest, arrays, _ = known
        self._say("program", digest)
        self.arrays += arrays

    def _jaxpr(self, value: Jaxpr) -> None:
        self._say("jaxpr", f"{len(value.constvars)} {len(value.invars)}")
        for variable in (*value.constvars, *value.invars):
            self._define(variable)
        for equation in equations(value):
            self._equation(equation)
        self._say("returns", str(len(value.outvars)))
        for atom in value.outvars:
            self._atom(atom)

    def _equation(self, equation: Any) -> None:
        if is_weak_conversion(equation):
            self._others[equation.outvars[0]] = equation.invars[0]
            return
        name = equation.primitive.name
        self._say("equation", f"{name} {len(equation.invars)} {len(equation.outvars)}")
        for atom in equation.invars:
            self._atom(atom)
        implementation = implementation_of(equation)
        if implementation is None:
            self._parameters(equation)
        else:
            self._implementation(implementation)
        for setting in ("compute_type", "xla_metadata"):
            self.add(getattr(equation.ctx, setting, None))
        for variable in equation.outvars:
            self._define(variable)

    def _parameters(self, equation: Any) -> None:
        derivatives = DERIVATIVES.get(equation.primitive.name, frozenset())
        for key in sorted(equation.params):
            if key not in derivatives and key != "weak_type":
                self._say("parameter", key)
                self.add(equation.params[key])

    def _implementation(self, program: ClosedJaxpr) -> None:
        """What another library's primitive does. It is traced anew each time: so are its constants."""
        alone = Fingerprint()
        alone.add(program)
        if not all(map(is_code, alone.arrays)):
            raise Unidentified("a primitive of another library, which closes over data")
        self._say("implementation", alone.hexdigest())

    def _atom(self, atom: Any) -> None:
        while not isinstance(atom, Literal) and atom in self._others:
            atom = self._others[atom]
        if isinstance(atom, Literal):
            self._aval(atom.aval)
            self._literal(atom.val, atom.aval)
        else:
            self._say("variable", str(self._variables[atom]))

    def _literal(self, value: Any, aval: Any) -> None:
        """A number is what it is in its dtype, be it one of Python's, which are weakly typed, or an array."""
        if np.ndim(value) == 0 and isinstance(aval.dtype, np.dtype) and aval.dtype != jax.dtypes.float0:
            self._say("literal", np.asarray(value, aval.dtype).tobytes().hex())
        else:
            self.add(value)

    def _define(self, variable: Var) -> None:
        self._variables[variable] = len(self._variables)
        self._aval(variable.aval)

    def _aval(self, aval: Any) -> None:
        text = self._avals.get(aval)
        if text is None:
            text = self._avals[aval] = f"{aval.str_short()} {getattr(aval, 'sharding', None)}"
        self._say("aval", text)


def equations(jaxpr: Jaxpr) -> Sequence[Any]:
    """The equations that results depend on, each after those that it depends on, in an order that follows
    from that alone: tracing may take them in another one. All of them, if any does more than to compute.
    """
    if any(equation.effects for equation in jaxpr.eqns):
        return jaxpr.eqns
    makers = {variable: equation for equation in jaxpr.eqns for variable in equation.outvars}
    found: list[Any] = []
    seen: set[int] = set()
    for result in jaxpr.outvars:
        waiting = [(result, False)]
        while waiting:
            atom, entered = waiting.pop()
            equation = None if isinstance(atom, Literal) else makers.get(atom)
            if equation is None:
                continue
            if entered:
                found.append(equation)
            elif id(equation) not in seen:
                seen.add(id(equation))
                waiting.append((atom, True))
                waiting += [(operand, False) for operand in reversed(equation.invars)]
    return found


def is_weak_conversion(equation: Any) -> bool:
    """Whether an equation converts to the dtype that there was, and so no more than to another weak type."""
    if equation.primitive.name != "convert_element_type":
        return False
    (before,), (after,) = equation.invars, equation.outvars
    sharding = equation.params.get("sharding")
    there = sharding is None or sharding == getattr(before.aval, "sharding", None)
    return bool(there and before.aval.dtype == after.aval.dtype)


def is_code(array: Any) -> bool:
    """Whether a constant array is identified by its elements."""
    return int(array.nbytes) <= CODE_BYTES


def _elements(array: Any) -> np.ndarray[Any, Any]:
    if is_extended(str(array.dtype)):
        return np.asarray(jax.random.key_data(array))
    return np.asarray(array)
