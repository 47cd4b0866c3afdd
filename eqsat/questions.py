"""Functions that help users choose a budget or an accuracy class."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

from eqsat.api import optimize
from eqsat.errors import BudgetError
from eqsat.language.accuracies import ACCURACIES, MEANINGS, Accuracy
from eqsat.optimized import Optimized
from eqsat.reports.comparison import AccuracyComparison, ClassPrice
from eqsat.reports.explanation import Explanation
from eqsat.reports.plan import Plan
from eqsat.reports.stream_explanation import StreamExplanation
from eqsat.reports.stream_plan import StreamPlan
from eqsat.rulesets.options import check_accuracy
from eqsat.rulesets.selection import rules_for

P = ParamSpec("P")
R = TypeVar("R")

OPTIONS = frozenset(inspect.signature(optimize).parameters) - {"fn"}
BUDGETLESS = OPTIONS - {"budget"}


def minimum_budget(fn: Callable[P, R], *wrong: Any, **options: Any) -> Callable[..., int]:
    """Returns a function that finds the smallest budget within which `optimize` can compute `fn`.

    The smallest budget does not take time into account: the program that fits it may be slower than
    `max_slowdown` allows, and then `optimize` refuses it unless `max_slowdown` is None.

    **Arguments:**

    - `fn`: any function that `jax.jit` takes.
    - `options`: the options of `optimize`, except for `budget`. The smallest budget depends on the rules and
      on the accuracy.

    **Returns:** a function that takes the arguments of `fn`, or `jax.ShapeDtypeStruct`s, and returns the
    smallest budget in bytes. If some are not in memory, that is of the device's memory, and at most a
    twentieth more than a budget within which no program was found.

    **Raises:** `TypeError` if it is given arguments of `fn`, or options that `optimize` does not have.

    >>> import jax.numpy as jnp
    >>> def f(x, v):
    ...     return jnp.exp(-((x[:, None] - x[None]) ** 2)) @ v
    >>> x = jnp.linspace(0.0, 1.0, 2000)
    >>> least = minimum_budget(f)(x, x)
    >>> least < 50_000, optimize(f, budget=least, max_slowdown=None).plan(x, x).peak_bytes <= least
    (True, True)
    """
    _check_call("minimum_budget", wrong, options, BUDGETLESS)
    optimized: Optimized[P, R] = optimize(fn, **options)
    return optimized.minimum_bytes


def explain(
    fn: Callable[..., Any], *wrong: Any, budgets: int = 10, **options: Any
) -> Callable[..., Explanation | StreamExplanation]:
    """Returns a function that explains where the memory of `fn` goes, and what budgets would cost in time.

    **Arguments:**

    - `fn`: any function that `jax.jit` takes.
    - `budgets`: how many budgets to price, from the smallest to what the function needs as written.
    - `options`: the options of `optimize`, except for `budget`.

    **Returns:** a function that takes the arguments of `fn`, or `jax.ShapeDtypeStruct`s, and returns an
    `Explanation`, which can be printed, shown and saved. Each price comes from a plan, so an explanation
    takes as long as several plans do. For arguments that are not in memory, it is a `StreamExplanation`.

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

    def explanation(*args: Any, **kwargs: Any) -> Explanation | StreamExplanation:
        return optimized.explained(budgets, args, kwargs)

    return explanation


def compare_accuracies(
    fn: Callable[..., Any], *wrong: Any, **options: Any
) -> Callable[..., AccuracyComparison]:
    """Returns a function that tells what wider accuracy classes would gain within the same budget.

    **Arguments:**

    - `fn`: any function that `jax.jit` takes.
    - `options`: the options of `optimize`. `accuracy` is the class that wider ones are compared with.

    **Returns:** a function that takes the arguments of `fn`, or `jax.ShapeDtypeStruct`s, and returns an
    `AccuracyComparison`. It has the predicted time of the given class, and of each wider class that is
    predicted to be clearly faster than those before it, or that has a plan where those before it have none.
    It makes a plan for each class that it tries.

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
    """Raises a `TypeError` if there are arguments of the user's function, or options that are not known."""
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
    """Returns what `compare_accuracies` does, for an optimised function and its arguments."""
    own = check_accuracy(optimized.accuracy)
    plan = _plan(optimized, args, kwargs)
    budget = None if plan is None else plan.budget_bytes
    prices = [_price(own, plan)]

    def price(accuracy: Accuracy) -> ClassPrice:
        beyond = {rule.name for rule in rules_for(optimized.rules, accuracy) if _wider(rule.accuracy, own)}
        return _price(accuracy, _plan(optimized.with_accuracy(accuracy, budget), args, kwargs), beyond)

    *between, widest = (accuracy for accuracy in ACCURACIES if _wider(accuracy, own) or accuracy == own)
    # The widest class allows all rules, so narrower ones are tried only if that one gains something.
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


def _plan(
    optimized: Optimized[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Plan | StreamPlan | None:
    """Returns the plan within the budget, or None if there is none."""
    try:
        return optimized.plan(*args, **kwargs)
    except BudgetError:
        return None


def _price(accuracy: Accuracy, plan: Plan | StreamPlan | None, beyond: Collection[str] = ()) -> ClassPrice:
    """Returns the memory and the predicted time of a class, of which this is the plan.

    `beyond` are the names of the rules that the class allows and the user's own class does not.
    """
    meaning = MEANINGS[accuracy]
    if plan is None:
        return ClassPrice(accuracy, meaning)
    seconds = plan.predicted_seconds
    if isinstance(plan, Plan) and not plan.changed:
        seconds = plan.original_seconds
    rules = tuple(sorted(name for name in plan.rules_fired if name in beyond))
    return ClassPrice(accuracy, meaning, plan.peak_bytes, seconds, rules)
