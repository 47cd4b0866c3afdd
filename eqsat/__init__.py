"""Any JAX function, rewritten to fit a memory budget.

>>> import eqsat
>>> eqsat.optimize(lambda x: x + 1, budget="1MB")(1.0)
Array(2., dtype=float32, weak_type=True)
"""

from eqsat.annotations import assume, operation
from eqsat.api import Optimized, optimize
from eqsat.backend.certificate import compiler_options
from eqsat.budgets import budget
from eqsat.errors import BudgetError, EqsatError, RuleError, RuleSyntaxError
from eqsat.reports.plan import Plan

__all__ = [
    "BudgetError",
    "EqsatError",
    "Optimized",
    "Plan",
    "RuleError",
    "RuleSyntaxError",
    "assume",
    "budget",
    "compiler_options",
    "operation",
    "optimize",
]
