"""The options of `optimize` about arguments that are not in memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

StreamedCall = tuple[Callable[..., Any], Hashable, Sequence[Any], Sequence[int], Sequence[str]]
"""A call: the function of the leaves of its arguments, what it depends on besides their types, the leaves,
the positions of those that are read by chunks, and the names of all."""


@dataclass(frozen=True)
class StreamOptions:
    """Where things go, and how much of the host's memory they may take.

    **Attributes:**

    - `host_budget`: bytes of the host's memory for what is read and written, and for results in arrays of
      NumPy; None for an eighth of what is free.
    - `checkpoint`: the folder that keeps how far a run has come; None for none.
    - `out`: where results go (`eqsat.streaming.sinks`).
    - `scratch`: the folder for values that several passes need; None if they are computed again.
    """

    host_budget: int | None = None
    checkpoint: str | PathLike[str] | None = None
    out: Any = None
    scratch: str | PathLike[str] | None = None


IN_MEMORY = StreamOptions()
