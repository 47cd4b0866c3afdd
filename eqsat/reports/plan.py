"""The plan: how a function is computed within a budget, as plain data that can be saved and shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from eqsat.errors import EqsatError
from eqsat.reports.records import PlanRecord
from eqsat.reports.showing import Report
from eqsat.support.serialisation import from_json, to_json

# The modules that show a plan are imported only when one is shown, so that other processes start faster.

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Plan(PlanRecord, Report):
    """How a function is computed within a budget.

    `print(plan)` shows a page that says what was done and why. `plan.show()` adds a picture of memory over
    time. `plan.save("plan.html")` writes both as a page. `plan.save("plan.png")` (or .svg, .pdf) writes the
    picture, "plan.txt" the text, "plan.py" the source, "plan.dot" the graph of arrays for graphviz, and
    "f.plan" what `eqsat.load` reads on another machine.

    A plan is plain data apart from `constants` and `deployment`. `plan.save("plan.json")` saves it, and
    `Plan.from_json(text)` reads it back.

    **Attributes:**

    - `budget_bytes`: the budget.
    - `peak_bytes`: arguments + outputs + temporaries - aliased + scratch of the compiled program.
    - `original_peak_bytes`: the same figure for the function as written.
    - `changed`: whether the function was rewritten at all.
    - `source`: the program as JAX source text. Its function `optimized(*leaves, *constants)` takes flat
      arguments and returns a tuple of flat results.
    - `constants`: the arrays that the function closed over, in the order in which the source takes them.
    - `rules_fired`: by name of a rule, the number of ops of the program that it made.
    - `loops`: the loops over chunks, outer before inner.
    - `stop_reason`: why the search for a program ended.
    - `banned`: the rules that were stopped because they made too many terms; they may have missed rewrites.
    - `predicted_peak_bytes`, `predicted_seconds`: the peak by simulation, the time by the machine model.
    - `original_seconds`: the time of the function as written, by the machine model.
    - `estimated`: whether these two times are by the text of the compiled programs instead.
    - `planning_seconds`: the time that planning took, by stage.
    - `title`: the name of the function.
    - `argument_bytes`, `result_bytes`, `scratch_bytes`: parts of the peak; the rest are temporaries. Scratch
      is memory that libraries and fusions take beside the buffers that XLA assigns.
    - `options`: the name of the compiler options that it is compiled with (`backend/certificate.py`).
    - `too_big`: the arrays that the function makes as written and that do not fit, largest first.
    - `before`, `after`: memory over time, as written and as planned.
    - `graph`: the arrays of the plan, and which are made from which.
    - `left_whole`: the calls that need axes of large arrays whole: each as its largest array, and those axes.
    - `guard`: the tests that run first, if any. All other attributes then describe the program for data that
      passes, except those of memory, which cover both programs, and `loops`.
    - `tuning`: the programs that were timed before the plan was chosen; None if timing was not requested.
    - `search`: the decisions of the search for a program, each with its outcome.
    - `target`: the name of the device that it is for.
    - `device_bytes`: what programs may have of that device's memory; 0 if unknown.
    - `deployment`: what carries it out, for `save` and `export`; None if it was read from a file.
    - `devices`: of a mesh, which axis each of its axes splits, and by how many devices; all other figures are
      then of one device. `communicated_bytes`: what a device gets from the others in a call, predicted.
    - `sharing`: of a mesh, how arguments and results are split, and each call by which devices talk.
    - `remedy`: what would make the function fit as written, if it does not: another device.
    """

    def __str__(self) -> str:
        from eqsat.reports.page import plan_page

        return plan_page(self)

    def figure(self, graph: bool = True) -> Figure:
        """A matplotlib figure of memory over time, as written and as planned.

        **Arguments:**

        - `graph`: whether to draw the graph of arrays below.
        """
        from eqsat.reports.pictures import plan_figure

        return plan_figure(self, graph)

    def sections(self) -> Mapping[str, str]:
        """The source, and the decisions of the search, for the HTML page."""
        found = {"The program": self.source, "The search": "\n".join(map(str, self.search))}
        return {title: text for title, text in found.items() if text}

    def texts(self) -> Mapping[str, Callable[[], str]]:
        """By file name extension, a function that returns the text of a file."""
        from eqsat.reports.dot import graph_dot

        dot = partial(graph_dot, self.graph, self.heading)
        own: dict[str, Callable[[], str]] = {"json": self.to_json, "py": lambda: self.source, "dot": dot}
        return {**super().texts(), **own, "plan": self._file}

    def _file(self) -> str:
        """The text for `eqsat.load`."""
        return str(self._deployed().text())

    def export(self) -> bytes:
        """The planned program as `jax.export` bytes, for the platform that it is planned for.

        `jax.export.deserialize(bytearray(data)).call` has the signature of the function, without its static
        arguments, and needs JAX alone. The certified peak holds if it is compiled with
        `eqsat.compiler_options()`.

        **Raises:** `EqsatError` if the plan was read from a file, or if the program calls what JAX can't
        export.
        """
        data: bytes = self._deployed().export()
        return data

    def _deployed(self) -> Any:
        if self.deployment is None:
            raise EqsatError(
                "this plan was read from a file, so there is no program to export: plan.save and plan.export"
                " are for what optimize(fn, …).plan(…) returns"
            )
        return self.deployment

    def to_json(self) -> str:
        """The plan as JSON, without `constants`."""
        return to_json(self, frozenset({"constants", "deployment"}))

    @staticmethod
    def from_json(text: str) -> Plan:
        """The plan in a text by `to_json`.

        **Raises:** `ValueError` or `TypeError` if the text is no plan, or one of another version of eqsat.
        """
        return from_json(Plan, text)
