"""The plan: how a function is computed within a budget, as plain data that can be kept and shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from eqsat.reports.records import PlanRecord
from eqsat.reports.showing import Report
from eqsat.support.serialisation import from_json, to_json

# What shows a plan is imported when one is shown: a process that only runs one starts sooner.

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Plan(PlanRecord, Report):
    """How a function is computed within a budget.

    `print(plan)` is a page that says what was done and why, `plan.show()` a picture of memory over time; both
    are in the page that `plan.save("plan.html")` writes. `plan.save("plan.png")` (or .svg, .pdf) writes the
    picture, "plan.txt" the text, "plan.py" the source, "plan.dot" the graph of arrays for graphviz.

    It is plain data but for `constants`, and can be kept: `plan.save("plan.json")`, and to have it back,
    `Plan.from_json(text)`.

    **Attributes:**

    - `budget_bytes`: the budget.
    - `peak_bytes`: arguments + outputs + temporaries - aliased + scratch of the compiled program.
    - `original_peak_bytes`: the same figure for the function as written.
    - `changed`: whether the function was rewritten at all.
    - `source`: the program as JAX source text; its function is `optimized(*leaves, *constants)`, on
      flat arguments, and returns a tuple of flat results.
    - `constants`: the arrays that the function closed over, in the order in which the source takes them.
    - `rules_fired`: by name, how many ops of the program a rule made.
    - `loops`: the loops over chunks, outer before inner.
    - `stop_reason`: why the search for a program ended.
    - `banned`: the rules that were stopped because they exploded: they may have missed something.
    - `predicted_peak_bytes`, `predicted_seconds`: by simulation and by the machine model.
    - `original_seconds`: of the function as written, by the machine model.
    - `planning_seconds`: by stage.
    - `title`: what the function is called.
    - `argument_bytes`, `result_bytes`, `scratch_bytes`: parts of the peak; the rest are temporaries. Scratch
      is what libraries and fusions take beside the buffers that XLA assigns.
    - `options`: the name of the compiler options that it is compiled with (`backend/certificate.py`).
    - `too_big`: the arrays that the function as written makes, and for which there is no room, largest first.
    - `before`, `after`: memory over time, as written and as planned.
    - `graph`: the arrays of the plan, and which are made of which.
    - `left_whole`: the calls that need axes of large arrays whole: each as its largest array, and those axes.
    - `guard`: what is tested when it runs. Then all else is about the program for data that passes, but for
      the memory, which is that of both, and for `loops`.
    - `tuning`: what was timed before the plan was chosen; None if nothing was to be.
    - `search`: the decisions of the search for a program, and what came of each.
    """

    def __str__(self) -> str:
        from eqsat.reports.page import plan_page

        return plan_page(self)

    def figure(self, graph: bool = True) -> Figure:
        """Memory over time as written and as planned, by matplotlib.

        **Arguments:**

        - `graph`: whether the graph of arrays is below.
        """
        from eqsat.reports.pictures import plan_figure

        return plan_figure(self, graph)

    def sections(self) -> Mapping[str, str]:
        """The source and the decisions of the search, for the page."""
        found = {"The program": self.source, "The search": "\n".join(map(str, self.search))}
        return {title: text for title, text in found.items() if text}

    def texts(self) -> Mapping[str, Callable[[], str]]:
        """By the ending of a file's name, how to make its text."""
        from eqsat.reports.dot import graph_dot

        dot = partial(graph_dot, self.graph, self.heading)
        return {**super().texts(), "json": self.to_json, "py": lambda: self.source, "dot": dot}

    def to_json(self) -> str:
        """The plan as JSON, without `constants`."""
        return to_json(self, frozenset({"constants"}))

    @staticmethod
    def from_json(text: str) -> Plan:
        """The plan that `to_json` made the text of.

        **Raises:** `ValueError` or `TypeError` for a text that is none, or one of another version of eqsat.
        """
        return from_json(Plan, text)
