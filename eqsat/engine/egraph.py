"""The e-graph. The only module that imports egglog."""

from __future__ import annotations

import itertools
import json
import logging
import sys
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, TypeVar

from eqsat.engine.schema import CONSTRUCTORS, READING, SCHEMA
from eqsat.errors import EqsatError

# egglog tells at INFO of every command that it runs: thousands of lines for every plan.
logging.getLogger("egglog").setLevel(logging.WARNING)

Row = tuple[Any, ...]
T = TypeVar("T")


def _engine() -> Any:
    """egglog's engine without the package around it, which imports formatters of Python code.

    The package can still be imported later, by whoever wants it, and then has the same engine.
    """
    if "egglog" not in sys.modules:
        package = find_spec("egglog")
        folders = package.submodule_search_locations if package else None
        found = PathFinder.find_spec("bindings", folders) if folders else None
        origin = found.origin if found else None
        spec = spec_from_file_location(f"{__package__}.bindings", origin) if origin else None
        if spec and spec.loader:
            engine = module_from_spec(spec)
            spec.loader.exec_module(engine)
            return engine
    from egglog import bindings

    return bindings


bindings = _engine()


class EGraphError(EqsatError):
    """The e-graph engine refused a command. That is a defect of eqsat or of a rule, never of the input."""


class _Owned(threading.local):
    """The engine's e-graphs of a thread, by number: each may only be used, and only be freed, by that thread.

    **Attributes:**

    - `dropped`: the numbers of those that other threads have let go of.
    """

    def __init__(self) -> None:
        self.graphs: dict[int, Any] = {}
        self.dropped: deque[int] = deque()

    def add(self, graph: Any) -> int:
        """Keep an e-graph until it is let go of."""
        while self.dropped:
            self.graphs.pop(self.dropped.popleft(), None)
        number = next(_numbers)
        self.graphs[number] = graph
        return number


_owned = _Owned()
_numbers = itertools.count()


def _let_go(number: int, owner: int, dropped: deque[int]) -> None:
    """Free an e-graph, or have the thread that owns it do so: objects in cycles are freed by any thread."""
    if threading.get_ident() == owner:
        _owned.graphs.pop(number, None)
    else:
        dropped.append(number)


class EGraph:
    """An e-graph with the schema of `encode`, driven by text; for the thread that makes it."""

    def __init__(self) -> None:
        self._number = _owned.add(bindings.EGraph())
        weakref.finalize(self, _let_go, self._number, threading.get_ident(), _owned.dropped).atexit = False
        self._texts: dict[str, Any] = {}
        self.run_text(SCHEMA)

    @property
    def _graph(self) -> Any:
        """The engine's e-graph. Nothing else refers to it for longer than a call."""
        return _owned.graphs[self._number]

    def run_text(self, text: str) -> None:
        """Run egglog commands."""
        self._guard(lambda: self._graph.run_program(*self._graph.parse_program(text)))

    def fill(self, table: str, rows: Iterable[Iterable[int | str | float]]) -> None:
        """Enter rows into a relation of numbers and texts without tabs; by a file, which is fastest."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.tsv"
            text = "".join("\t".join(map(str, row)) + "\n" for row in rows)
            path.write_text(text, encoding="utf-8")
            self.run_text(f"(input {table} {json.dumps(str(path))})")

    def push(self) -> None:
        """Remember what there is, for `pop` to go back to."""
        self.run_text("(push)")

    def pop(self) -> None:
        """Forget everything since the last `push`."""
        self.run_text("(pop)")

    def run_ruleset(self, name: str) -> tuple[bool, int]:
        """Run a ruleset once; whether the e-graph changed, and how many matches there were.

        A rule whose name ends in a question mark only asks for something: its matches are not counted.
        """
        (output,) = self._guard(
            lambda: self._graph.run_program(*self._graph.parse_program(f"(run {name} 1)"))
        )
        assert isinstance(output, bindings.RunScheduleOutput)
        report = output.report
        counts = report.num_matches_per_rule.items()
        return bool(report.updated), sum(count for name, count in counts if not name.endswith("?"))

    def size(self) -> int:
        """Number of e-nodes."""
        value = self._guard(lambda: self._graph.eval_expr(_SIZE))
        return int(self._graph.value_to_i64(value[1]))

    def holds(self, relation: str, texts: Iterable[str]) -> bool:
        """Whether a relation of texts holds of these."""
        return self._graph.lookup_function(relation, [self._text(text) for text in texts]) is not None

    def _text(self, text: str) -> Any:
        """The e-graph's handle of a text; it keeps them for good."""
        found = self._texts.get(text)
        if found is None:
            literal = bindings.Lit(_span("text"), bindings.String(text))
            found = self._texts[text] = self._graph.eval_expr(literal)[1]
        return found

    def dump(self) -> Dump:
        """Everything in the e-graph, as Python values; one snapshot."""
        self.run_ruleset(READING)
        return Dump(self)

    @staticmethod
    def _guard(action: Callable[[], T]) -> T:
        """egglog's errors and panics, as ours. Its panics don't derive from Exception."""
        try:
            return action()
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            raise EGraphError(f"egglog: {error}") from error


class Dump:
    """A snapshot of an e-graph's tables."""

    def __init__(self, graph: EGraph) -> None:
        self._of = graph
        self._functions: dict[str, Any] = graph._graph.freeze().functions
        self._sets: dict[Any, frozenset[int]] = {}
        self._strings: dict[Any, str] = {}
        self._numbers: dict[Any, int] = {}
        self._decoders: dict[str, Callable[[Any], Any]] = {
            "i64": self._number,
            "String": self._string,
            "Axes": self._set,
        }

    def rows(self, name: str) -> Iterator[tuple[Row, Any]]:
        """The inputs and the output of every row of a table. Classes come as hashable handles."""
        function = self._functions[name]
        decoders = [self._decoders.get(sort) for sort in function.input_sorts]
        decode_output = self._decoders.get(function.output_sort)
        for row in function.rows:
            inputs = tuple(
                value if decode is None else decode(value)
                for decode, value in zip(decoders, row.inputs, strict=True)
            )
            output = row.output if decode_output is None else decode_output(row.output)
            yield inputs, output

    @property
    def _graph(self) -> Any:
        return self._of._graph

    def _number(self, value: Any) -> int:
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = int(self._graph.value_to_i64(value))
        return found

    def _string(self, value: Any) -> str:
        found = self._strings.get(value)
        if found is None:
            found = self._strings[value] = str(self._graph.value_to_string(value))
        return found

    def _set(self, value: Any) -> frozenset[int]:
        found = self._sets.get(value)
        if found is None:
            members = self._graph.value_to_set(value)
            found = self._sets[value] = frozenset(self._number(member) for member in members)
        return found


def _span(name: str) -> Any:
    """Where an expression is from that is in no file."""
    return bindings.EgglogSpan(bindings.SrcFile(name, ""), 0, 0)


_SIZE = bindings.Call(
    _span("size"),
    "get-size!",
    [bindings.Lit(_span("size"), bindings.String(name)) for name in CONSTRUCTORS],
)
