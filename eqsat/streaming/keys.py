"""The names of arrays while a program runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Key:
    """The name of an array while a program runs.

    **Attributes:**

    - `kind`: "argument", "value" of a term, "index" of a term that indices pick, "state" of a fold, "start"
      of a chunk, "result" of the program; and of control flow, "operand", "output" of a body, or "flow" for a
      result.
    - `number`: of the argument, term, fold's term, axis, result or control flow.
    - `part`: of the state, or which operand, output and so on.
    - `scope`: the `Scope.id` of the body of control flow that it is of.
    """

    kind: str
    number: int
    part: int = 0
    scope: int = 0
