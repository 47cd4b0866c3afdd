"""`Module`: an emitted program, as text, and as the function that executing it gives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

NUMBERED = re.compile(r"(?<![.\w])([A-Za-z]\w*_)(\d+)\b")
"""A name of the module's own with a term's number at its end; what belongs to a library follows a dot."""


@dataclass(frozen=True)
class Module:
    """An emitted module.

    **Attributes:**

    - `source`: its text.
    - `objects`: the Python objects that its text refers to but cannot contain, by name.
    """

    source: str
    objects: Mapping[str, Any]

    @cached_property
    def computation(self) -> str:
        """The text with the numbers of its names counted from the first one on.

        Modules with the same text do the same, from whichever e-graph they come. Objects have their names:
        with any, it is the text as it is.
        """
        if self.objects:
            return self.source
        numbers: dict[str, int] = {}
        return NUMBERED.sub(lambda name: f"{name[1]}{numbers.setdefault(name[2], len(numbers))}", self.source)

    def function(self) -> Any:
        """The module's function, by executing its text."""
        namespace: dict[str, Any] = dict(self.objects)
        exec(compile(self.source, "<eqsat>", "exec"), namespace)
        return namespace["optimized"]
