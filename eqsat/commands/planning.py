"""The arguments and the steps that the commands which plan a function share."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from eqsat.commands.shapes import parse_arguments
from eqsat.commands.target import as_called, find_function, told
from eqsat.errors import EqsatError

if TYPE_CHECKING:
    from eqsat.optimized import Optimized
    from eqsat.reports.comparison import AccuracyComparison
    from eqsat.reports.explanation import Explanation
    from eqsat.reports.plan import Plan
    from eqsat.reports.stream_explanation import StreamExplanation
    from eqsat.reports.stream_plan import StreamPlan

R = TypeVar("R")

BUDGETS = 10
"""The number of budgets that an explanation prices."""

EPILOG = """
shapes:
  f32[1000,3], i32[1000]           two arrays; bool, i8 ... i64, u8 ... u64, f16, bf16, f32, f64, c64, c128
  {w: f32[3,3], b: f32[3]}, f32[]  a dict of two arrays, and a scalar; tuples and lists are in () and []
  f32[1000,3], power=2             an argument by name; arguments that are not arrays are static

examples:
"""


def declare(parser: argparse.ArgumentParser, examples: str, without: str = "the free memory") -> None:
    """Adds the arguments of a command that plans a function to its parser.

    **Arguments:**

    - `examples`: the lines that end the command's help.
    - `without`: the help's words for the budget that applies if none is given.
    """
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG + examples
    parser.add_argument("function", metavar="FUNCTION", help="package.module:function, or script.py:function")
    parser.add_argument(
        "--shapes", default="", metavar="SHAPES", help="the shapes of its arguments, see below"
    )
    parser.add_argument(
        "--budget", metavar="AMOUNT", help=f"the memory budget: 2GB, 512MiB... (default: {without})"
    )
    parser.add_argument(
        "--accuracy", default="reassociates", help="what rewriting may do to rounding (default: %(default)s)"
    )
    parser.add_argument(
        "--target", metavar="DEVICE", help="h100, a100, tpu-v5e, ... or a description (default: this device)"
    )
    parser.add_argument(
        "--mesh",
        metavar="AXES",
        help="the devices that share it out, as data=8 or data=4,model=2 (default: one device)",
    )
    parser.add_argument(
        "--stream",
        action="append",
        default=[],
        metavar="ARGUMENT",
        help="the name of an argument that is not in memory, and read by chunks",
    )
    parser.add_argument(
        "--host-budget",
        metavar="AMOUNT",
        help="the host's memory for chunks of these, and for results with their axes (default: an eighth of"
        " what is free)",
    )
    parser.add_argument(
        "--rules", action="append", default=[], metavar="FILE", help="a .rules file to use as well"
    )


def planned(arguments: argparse.Namespace) -> Plan | StreamPlan:
    """Returns the plan that a command line asks for.

    **Raises:** `BudgetError` if no plan fits the budget; `EqsatError` if the shapes are malformed, or if the
    function can't be found or traced.
    """
    return _asked(arguments, lambda optimized, args, kwargs: optimized.plan(*args, **kwargs))


def compared(arguments: argparse.Namespace) -> tuple[Plan | StreamPlan, AccuracyComparison]:
    """Returns the plan that a command line asks for, and what wider accuracy classes would gain.

    **Raises:** the same errors as `planned`.
    """
    from eqsat.questions import compared

    def asks(
        optimized: Optimized[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Plan | StreamPlan, AccuracyComparison]:
        plan = optimized.plan(*args, **kwargs)
        return plan, compared(optimized, args, kwargs)

    return _asked(arguments, asks)


def explained(arguments: argparse.Namespace) -> Explanation | StreamExplanation:
    """Returns the memory use of the function that a command line names, and the price of several budgets.

    **Raises:** `EqsatError` if the shapes are malformed, or if the function can't be found or traced.
    """
    return _asked(arguments, lambda optimized, args, kwargs: optimized.explained(BUDGETS, args, kwargs))


def _asked(
    arguments: argparse.Namespace, asks: Callable[[Optimized[..., Any], tuple[Any, ...], dict[str, Any]], R]
) -> R:
    """Optimises the function that a command line names, and returns what `asks` returns for it."""
    shapes = parse_arguments(arguments.shapes)
    args, kwargs = as_called(shapes)
    # JAX logs a traceback for every plugin of a device that is absent, which is no error here.
    logging.getLogger("jax._src.xla_bridge").setLevel(logging.CRITICAL)
    function = find_function(arguments.function)
    from eqsat.api import optimize

    try:
        optimized = optimize(
            function,
            budget=arguments.budget,
            rules=arguments.rules,
            accuracy=arguments.accuracy,
            target=arguments.target,
            mesh=arguments.mesh,
            static_argnums=tuple(n for n in shapes.static if isinstance(n, int)),
            static_argnames=tuple(name for name in shapes.static if isinstance(name, str)),
            stream_argnames=tuple(arguments.stream),
            host_budget=arguments.host_budget,
        )
    except ValueError as error:
        raise EqsatError(str(error)) from None
    try:
        return asks(optimized, args, kwargs)
    except EqsatError:
        raise
    except Exception as error:
        given = arguments.shapes or "no arguments"
        raise EqsatError(f"{arguments.function} can't be traced with {given}: {told(error)}") from None
