"""E-graphs that have read rules, kept for the next program: reading rules takes longer than running them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from eqsat.engine.compiled import CompiledRule
from eqsat.engine.egraph import EGraph, EGraphError
from eqsat.errors import RuleError

MOST_KEPT = 2
"""How many e-graphs a thread keeps: those of the rules that it used last."""

FEW = 50
"""So few rules are read anew in every run, which takes less time than making another e-graph."""

_kept = threading.local()
"""An e-graph belongs to the thread that made it."""


class Library:
    """Rules, and an e-graph that has read those of them that were ever needed.

    **Attributes:**

    - `rules`: all of them.
    - `lasting`: whether it has read rules for good; if not, it forgets them after each run.
    - `graph`: empty but for rules, and for what a run puts in before it is over.
    """

    def __init__(self, rules: Sequence[CompiledRule], lasting: bool = True) -> None:
        self.rules = rules
        self.lasting = lasting
        self.graph = EGraph()
        self._read: set[int] = set()
        self._new: dict[int, CompiledRule] = {}
        self._running = False

    def begin(self, rules: Iterable[CompiledRule] = ()) -> None:
        """Begin a run; what the last one left is forgotten.

        The rules that this one is known to need, and those that the last one had to read, are read first,
        for good if it lasts.
        """
        if self._running:
            self._running = False
            self.graph.pop()
        new, self._new = self._new, {}
        known = list(rules)
        for rule in (*new.values(), *known) if self.lasting else ():
            self.need(rule)
        self.graph.push()
        self._running = True
        for rule in known:
            self.need(rule)

    def need(self, rule: CompiledRule) -> None:
        """Make sure that the e-graph has read a rule.

        **Raises:** `RuleError` if the rule can't be run.
        """
        if rule.number in self._read or rule.number in self._new:
            return
        try:
            for line in rule.text.split("\n"):
                # The engine notes for every word of a text the whole of it: short texts are read faster.
                self.graph.run_text(line)
        except EGraphError as error:
            where = f"{rule.place}: rule {rule.name}"
            raise RuleError(f"{where}: its left side leaves a name open ({error})") from error
        if self._running:
            self._new[rule.number] = rule
        else:
            self._read.add(rule.number)


@contextmanager
def loaded_rules(rules: Sequence[CompiledRule]) -> Iterator[Library]:
    """A library of these rules, for one run. Few rules share one e-graph with others."""
    if len(rules) <= FEW:
        library = _kept.__dict__.pop("of_any", None) or Library((), lasting=False)
        library.rules = rules
        yield library
        _kept.of_any = library
        return
    kept: deque[Library] = _kept.__dict__.setdefault("libraries", deque(maxlen=MOST_KEPT))
    found = next((library for library in kept if library.rules is rules), None)
    if found is not None:
        kept.remove(found)
    library = found or Library(rules)
    yield library
    # Not after an exception: nobody knows what state the e-graph is in.
    kept.append(library)
