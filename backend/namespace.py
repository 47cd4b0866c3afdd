"""The global names of an emitted module: its imports, its helper functions, the objects it is given."""

from __future__ import annotations

import builtins
import keyword
import re
import sys
from collections.abc import Hashable, Iterable
from typing import Any

LOCAL = re.compile(r"[a-z][0-9]*")
"""What variables inside helper functions are called; no global name is of this form."""

LOCALS = ("body", "carry", "condition", "slices")
"""More names that helper functions use inside."""


class Namespace:
    """Collects what an emitted module needs besides its own text.

    **Attributes:**

    - `imports`: import lines other than those of `jax`, `jnp` and `lax`.
    - `objects`: what cannot be written as text, by the global name that the text uses.
    - `helpers`: the source of helper functions by name, in an order in which they may be defined.
    """

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self.imports: list[str] = []
        self.objects: dict[str, Any] = {}
        self.helpers: dict[str, str] = {}
        self._taken = {
            *keyword.kwlist,
            *keyword.softkwlist,
            *dir(builtins),
            *LOCALS,
            "jax",
            "jnp",
            "lax",
            *reserved,
        }
        self._bound: dict[int, str] = {}
        self._imported: dict[tuple[str, str], str] = {}
        self._defined: dict[Hashable, tuple[str, Any]] = {}

    def fresh(self, hint: str) -> str:
        """A global name that nobody else has, close to `hint`."""
        base = re.sub(r"\W+", "_", hint, flags=re.ASCII).strip("_") or "value"
        if base[0].isdigit() or LOCAL.fullmatch(base):
            base = f"value_{base}"
        name, count = base, 1
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name

    def imported(self, line: str) -> None:
        """Asks for an import line."""
        if line not in self.imports:
            self.imports.append(line)

    def bind(self, value: Any, hint: str) -> str:
        """The global name under which the module will find `value`; one name per object."""
        name = self._bound.get(id(value))
        if name is None:
            name = self._bound[id(value)] = self.fresh(hint)
            self.objects[name] = value  # keeps it alive, so that its id stays its own
        return name

    def function(self, value: Any, hint: str) -> str:
        """The global name of a function: it is imported from where it was defined, or else given.

        What is found there may also be a wrapper that says that it calls just this `__operation__`.
        """
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        found = getattr(sys.modules.get(module or ""), name, None)
        same = found is value or getattr(found, "__operation__", None) is value
        if module in (None, "__main__") or not same:
            return self.bind(value, hint)
        alias = self._imported.get((str(module), name))
        if alias is None:
            alias = self._imported[str(module), name] = self.fresh(name)
            self.imported(f"from {module} import {name}" + ("" if alias == name else f" as {alias}"))
        return alias

    def helper(self, key: Hashable) -> str | None:
        """The helper that was defined for `key`, if any."""
        return self._defined[key][0] if key in self._defined else None

    def define(self, name: str, source: str, key: Hashable, alive: Any) -> None:
        """Adds a helper function. `alive` is kept, where `key` identifies objects by their id."""
        self.helpers[name] = source
        self._defined[key] = (name, alive)
