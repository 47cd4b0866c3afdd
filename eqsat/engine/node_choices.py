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

    That a call runs is a class of its own, which all results of the call need.

    **Attributes:**

    - `number`: of its class.
    - `cost`: predicted seconds.
    - `largest`: bytes of the largest buffer that choosing it brings about.
    - `stored`: the classes that get a buffer by it.
    - `loop`: the axis that it loops over, as a bit; 0 if none.
    - `shared`: how many results of a call the run of it is shared by; 1 for anything else.
    """

    number: int
    node: ENode
    cost: float
    largest: int
    stored: tuple[int, ...]
    loop: int
    shared: int = 1


@dataclass(frozen=True, slots=True)
class Inside:
    """The time and memory of the programs inside a call.

    **Attributes:**

    - `seconds`: their time in all iterations.
    - `largest`: bytes of the largest value that they store, results excluded.
    """

    seconds: float
    largest: int
