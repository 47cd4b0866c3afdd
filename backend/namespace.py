"""The names of an emitted module: its imports, and the objects it is given."""

from __future__ import annotations

import builtins
import keyword
import re
import sys
from collections.abc import Iterable
from typing import Any

LOCAL = re.compile(r"[a-z][0-9]*")
"""Short names, which are for inputs alone."""


class Namespace:
    """Collects what an emitted module needs besides its own text.

    **Attributes:**

    - `imports`: import lines other than those of `jax`, `jnp` and `lax`.
    - `objects`: what cannot be written as text, by the global name that the text uses.
    """

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self.imports: list[str] = []
        self.objects: dict[str, Any] = {}
        self._taken = {
            *keyword.kwlist,
            *keyword.softkwlist,
            *dir(builtins),
            "jax",
            "jnp",
            "lax",
            *reserved,
        }
        self._bound: dict[int, str] = {}
        self._imported: dict[tuple[str, str], str] = {}

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
        """The global name of a function, which the emitted module imports if it can, or else is given.

        An import may also find a wrapper whose `__operation__` is the function.
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
