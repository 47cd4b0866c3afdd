"""Fingerprints: digests of jaxprs, without names and addresses, that identify programs across processes.

They also ignore weak types, which matter only for tracing: once traced, a weakly typed number is computed
with like any other. So a training step on parameters that are still weakly typed has the same plan as the
next one.
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
"""Constant arrays of at most this many bytes are identified by their elements.

Larger arrays are data: they are arguments of planned programs, so plans depend only on their shapes and
dtypes.
"""

DERIVATIVES: Mapping[str, frozenset[str]] = {
    "custom_jvp_call": frozenset({"jvp_jaxpr_fun"}),
    "custom_vjp_call": frozenset({"fwd_jaxpr_thunk", "bwd", "out_trees"}),
    "custom_vmap_call": frozenset({"rule"}),
}
"""By primitive, the parameters that say how it is transformed, and do not affect what it computes."""


class Unidentified(Exception):
    """A program contains a value that cannot be identified in another process, such as a function."""


class Fingerprint:
    """A digest of the values that are added to it.

    Every value is hashed with its type and its length, so that different sequences of values are hashed
    differently.

    **Attributes:**

    - `arrays`: the constant arrays found, except scalars. Equal programs have them in the same order.
    """

    def __init__(self, programs: dict[int, tuple[str, list[Any], Any]] | None = None) -> None:
        self.arrays: list[Any] = []
        # By id: digests, arrays, and the programs themselves, which keeps their ids from being reused.
        self._programs = {} if programs is None else programs
        self._hash = hashlib.blake2b(digest_size=20)
        self._variables: dict[Any, int] = {}
        self._others: dict[Any, Any] = {}  # by variable: the atom that differs from it only in weak type
        self._avals: dict[Any, str] = {}

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def _say(self, kind: str, text: str = "") -> None:
        self._hash.update(f"{kind} {len(text)} {text}\n".encode())

    def add(self, value: Any) -> None:
        """Add a value to the digest.

        **Raises:** `Unidentified` if the value has no identity outside this process.
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
                    continue  # the field is not part of the value's identity
                self._say("field", field.name)
                self.add(getattr(value, field.name))
        else:
            self._object(value)

    def _object(self, value: Any) -> None:
        """Add an object of JAX's own, such as a sharding or a mesh, by its text, if that has no address."""
        text = repr(value)
        if type(value).__module__.split(".")[0] not in ("jax", "jaxlib", "numpy") or " at 0x" in text:
            raise Unidentified(f"{type(value).__module__}.{type(value).__qualname__}")
        self._say(type(value).__qualname__, text)

    @_add.register(types.FunctionType)
    @_add.register(types.BuiltinFunctionType)
    @_add.register(types.MethodType)
    def _function(self, value: Any) -> None:
        """Add a function of JAX's own by its name, which identifies it in one version of JAX."""
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
        """Add the elements of a set by their own digests, sorted, as they have no order."""
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
        """Add a jaxpr, with its constants if any, by a digest of its own, since many calls share one."""
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
        """Add the implementation of another library's primitive.

        It is traced anew each time, with its constants, which must therefore be identified by their elements.
        """
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
        """Add a number by its bytes in its dtype, whether it is a weakly typed Python number or an array."""
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
    """The equations that results depend on, in an order that follows from the dependencies alone.

    The order of tracing may vary. If any equation has effects, all equations are returned in their own order.
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
    """Whether an equation converts to the same dtype, and so changes at most the weak type."""
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
