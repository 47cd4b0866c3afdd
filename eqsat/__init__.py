"""Any JAX function, rewritten to fit a memory budget.

>>> import eqsat
>>> eqsat.optimize(lambda x: x + 1, budget="1MB")(1.0)
Array(2., dtype=float32, weak_type=True)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eqsat.support.gc_pause import uncollected

if TYPE_CHECKING:
    from eqsat.annotations import assume, operation
    from eqsat.api import optimize
    from eqsat.backend.certificate import compiler_options
    from eqsat.dispatch.budget_scope import budget
    from eqsat.errors import BudgetError, EqsatError, RuleError, RuleSyntaxError
    from eqsat.loading import load
    from eqsat.optimized import Optimized
    from eqsat.questions import compare_accuracies, explain, minimum_budget
    from eqsat.reports.comparison import AccuracyComparison
    from eqsat.reports.explanation import Explanation
    from eqsat.reports.plan import Plan
    from eqsat.reports.stream_explanation import StreamExplanation
    from eqsat.reports.stream_plan import StreamPlan
    from eqsat.streaming.sources import on_host
    from eqsat.targets.calibration import calibrate
    from eqsat.targets.catalogue import target_names

__all__ = [
    "AccuracyComparison",
    "BudgetError",
    "EqsatError",
    "Explanation",
    "Optimized",
    "Plan",
    "RuleError",
    "RuleSyntaxError",
    "StreamExplanation",
    "StreamPlan",
    "assume",
    "budget",
    "calibrate",
    "compare_accuracies",
    "compiler_options",
    "explain",
    "load",
    "minimum_budget",
    "on_host",
    "operation",
    "optimize",
    "target_names",
]

HOMES = {
    "eqsat.annotations": "assume operation",
    "eqsat.api": "optimize",
    "eqsat.optimized": "Optimized",
    "eqsat.backend.certificate": "compiler_options",
    "eqsat.dispatch.budget_scope": "budget",
    "eqsat.targets.calibration": "calibrate",
    "eqsat.targets.catalogue": "target_names",
    "eqsat.errors": "BudgetError EqsatError RuleError RuleSyntaxError",
    "eqsat.loading": "load",
    "eqsat.questions": "compare_accuracies explain minimum_budget",
    "eqsat.reports.comparison": "AccuracyComparison",
    "eqsat.reports.explanation": "Explanation",
    "eqsat.reports.plan": "Plan",
    "eqsat.reports.stream_explanation": "StreamExplanation",
    "eqsat.reports.stream_plan": "StreamPlan",
    "eqsat.streaming.sources": "on_host",
}
"""Maps each module to the public names that are imported from it on first use.

Hence `import eqsat` is quick and does not import JAX. A script under `eqsat run` can still configure JAX
before it imports it, for example by `os.environ["JAX_ENABLE_X64"] = "1"`.
"""


def __getattr__(name: str) -> Any:
    for module, names in HOMES.items():
        if name in names.split():
            with uncollected():
                value = globals()[name] = getattr(import_module(module), name)
            return value
    raise AttributeError(f"module 'eqsat' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
