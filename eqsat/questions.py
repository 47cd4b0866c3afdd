"""What can be asked of a function before a budget, or an accuracy class, is chosen for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

from eqsat.api import Optimized, optimize
from eqsat.errors import BudgetError
from eqsat.language.accuracies import ACCURACIES, MEANINGS, Accuracy
from eqsat.reports.comparison import AccuracyComparison, ClassPrice
from eqsat.reports.explanation import Explanation
from eqsat.reports.plan import Plan
from eqsat.rulesets.options import check_accuracy
from eqsat.rulesets.selection import rules_for

P = ParamSpec("P")
R = TypeVar("R")

OPTIONS = frozenset(inspect.signature(optimize).parameters) - {"fn"}
BUDGETLESS = OPTIONS - {"budget"}


def minimum_budget(fn: Callable[P, R], *wrong: Any, **options: Any) -> Callable[..., int]:
    """The smallest budget within which `optimize` computes a function, however long that takes.

    **Arguments:**

    - `fn`: any function that `jax.jit` takes.
    - `options`: those of `optimize`, but for the budget. With other rules or another accuracy, the smallest
      budget is another one.

    **Returns:** a function that takes the arguments of `fn`, or `jax.ShapeDtypeStruct`s, and returns bytes.

    **Raises:** `TypeError` if it is given arguments of `fn`, or options that `optimize` does not have.

    >>> import jax.numpy as jnp
    >>> def f(x, v):
    ...     return jnp.exp(-((x[:, None] - x[None]) ** 2)) @ v
    >>> x = jnp.linspace(0.0, 1.0, 2000)
    >>> least = minimum_budget(f)(x, x)
    >>> least < 50_000, optimize(f, budget=least).plan(x, x).peak_bytes <= least
    (True, True)
    """
    _check_call("minimum_budget", wrong, options, BUDGETLESS)
    optimized: Optimized[P, R] = optimize(fn, **options)
    return optimized.minimum_bytes


def explain(
    fn: Callable[..., Any], *wrong: Any, budgets: int = 10, **options: Any
) -> Callable[..., Explanation]:
    """Where the memory of a function goes, the smallest budget for it, and what budgets would cost in time.

    **Arguments:**

    - `fn`: any function that `jax.jit` takes.
    - `budgets`: how many budgets to price, from the smallest to what the function needs as written.
    - `options`: those of `optimize`, but for the budget.

    **Returns:** a function that takes the arguments of `fn`, or `jax.ShapeDtypeStruct`s, and returns what can
    be printed, shown and saved. Every price is that of a plan, so it takes as long as a few plans do.

    **Raises:** `TypeError` if it is given arguments of `fn`, or options that `optimize` does not have.

    >>> import jax.numpy as jnp
    >>> def f(x, v):
    ...     return jnp.exp(-((x[:, None] - x[None]) ** 2)) @ v
    >>> x = jnp.linspace(0.0, 1.0, 2000)
    >>> explanation = explain(f, budgets=3)(x, x)
    >>> explanation.minimum_bytes < 100_000 < explanation.original_peak_bytes
    True
    """
    _check_call("explain", wrong, options, BUDGETLESS | {"budgets"})
    optimized = optimize(fn, **options)

    def explanation(*args: Any, **kwargs: Any) -> Explanation:
        return optimized.explained(budgets, args, kwargs)

    return explanation


def compare_accuracies(
    fn: Callable[..., Any], *wrong: Any, **options: Any
) -> Callable[..., AccuracyComparison]:
    """What wider accuracy classes than the one that is asked for would gain within the same budget.

    **Arguments:**

    - `fn`: any function that `jax.jit` takes.
    - `options`: those of `optimize`.

    **Returns:** a function that takes the arguments of `fn`, or `jax.ShapeDtypeStruct`s, and returns the
    predicted time of the class that is asked for, and of each wider one that is predicted to be faster, or
    has a plan where there was none. Every class takes as long as a plan does.

    **Raises:** `TypeError` if it is given arguments of `fn`, or options that `optimize` does not have.

    >>> import jax.numpy as jnp
    >>> def f(x):
    ...     return jnp.exp(-jnp.sum(((x[:, None] - x) / 3) ** 2, axis=-1)).sum(1)
    >>> compared = compare_accuracies(f, budget="400kB")(jnp.ones((400, 100)))
    >>> [price.accuracy for price in compared.prices]
    ['reassociates', 'rescales', 'cancels']
    """
    _check_call("compare_accuracies", wrong, options, OPTIONS)
    optimized = optimize(fn, **options)

    def comparison(*args: Any, **kwargs: Any) -> AccuracyComparison:
        return compared(optimized, args, kwargs)

    return comparison


def _check_call(name: str, wrong: Sequence[Any], options: Iterable[str], known: Collection[str]) -> None:
    """Refuse arguments of the function that a question is about, and options that there are not."""
    if wrong:
        raise TypeError(
            f"{name} takes a function, and options by name. The function's own arguments go to what it"
            f" returns: eqsat.{name}(fn, …)(x, …)"
        )
    for option in options:
        if option == "budget" and option not in known:
            raise TypeError(f"{name} tells what budgets there are; it takes none")
        if option not in known:
            raise TypeError(
                f"{name} has no option {option!r}; its options are {', '.join(sorted(known))}. The function's"
                f" own arguments go to what it returns: eqsat.{name}(fn, …)({option}=…)"
            )


def compared(
    optimized: Optimized[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> AccuracyComparison:
    """The same of an optimised function."""
    own = check_accuracy(optimized.accuracy)
    plan = _plan(optimized, args, kwargs)
    budget = None if plan is None else plan.budget_bytes
    prices = [_price(own, plan)]

    def price(accuracy: Accuracy) -> ClassPrice:
        beyond = {rule.name for rule in rules_for(optimized.rules, accuracy) if _wider(rule.accuracy, own)}
        return _price(accuracy, _plan(optimized.with_accuracy(accuracy, budget), args, kwargs), beyond)

    *between, widest = (accuracy for accuracy in ACCURACIES if _wider(accuracy, own) or accuracy == own)
    # Where the widest class gains nothing, none does.
    least = prices[0] if widest == own else price(widest)
    for accuracy in between[1:]:
        if not least.is_better_than(prices[-1]):
            break
        found = price(accuracy)
        if found.is_better_than(prices[-1]):
            prices.append(found)
    if least.is_better_than(prices[-1]):
        prices.append(least)
    title = str(getattr(optimized, "__name__", "a function"))
    return AccuracyComparison(title, budget, tuple(prices))


def _wider(one: Accuracy, other: Accuracy) -> bool:
    return ACCURACIES.index(one) > ACCURACIES.index(other)


def _plan(optimized: Optimized[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Plan | None:
    """The plan, if there is one within the budget."""
    try:
        return optimized.plan(*args, **kwargs)
    except BudgetError:
        return None


def _price(accuracy: Accuracy, plan: Plan | None, beyond: Collection[str] = ()) -> ClassPrice:
    """What a class costs by whose rules this is the plan; some are beyond the class that is asked for."""
    meaning = MEANINGS[accuracy]
    if plan is None:
        return ClassPrice(accuracy, meaning)
    seconds = plan.predicted_seconds if plan.changed else plan.original_seconds
    rules = tuple(sorted(name for name in plan.rules_fired if name in beyond))
    return ClassPrice(accuracy, meaning, plan.peak_bytes, seconds, rules)
