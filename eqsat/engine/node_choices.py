"""What extraction chooses: a node for each class, and what is known of the nodes and of calls' programs."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.engine.snapshot import ENode


@dataclass(frozen=True, slots=True)
class Selection:
    """One node for each class that the roots need, and the predicted time of all of them.

    **Attributes:**

    - `one_pass`: whether no loop in it needs the result of another one over the same axis.
    """

    nodes: dict[int, ENode]
    seconds: float
    one_pass: bool


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """A node that its class may be computed by.

    **Attributes:**

    - `number`: of its class.
    - `cost`: predicted seconds.
    - `largest`: bytes of the largest buffer that choosing it brings about.
    - `stored`: the classes that get a buffer by it.
    - `loop`: the axis that it loops over, as a bit; 0 if none.
    """

    number: int
    node: ENode
    cost: float
    largest: int
    stored: tuple[int, ...]
    loop: int


@dataclass(frozen=True, slots=True)
class Inside:
    """The time and memory of the programs inside a call.

    **Attributes:**

    - `seconds`: their time in all iterations.
    - `largest`: bytes of the largest value that they store, results excluded.
    """

    seconds: float
    largest: int


NOTHING = Inside(0.0, 0)
