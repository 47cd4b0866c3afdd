"""`Module`: an emitted program, as text, and as the function that executing it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Module:
    """An emitted module.

    **Attributes:**

    - `source`: its text.
    - `objects`: the Python objects that its text refers to but cannot contain, by name.
    """

    source: str
    objects: Mapping[str, Any]

    def function(self) -> Any:
        """The module's function, by executing its text."""
        namespace: dict[str, Any] = dict(self.objects)
        exec(compile(self.source, "<eqsat>", "exec"), namespace)
        return namespace["optimized"]
