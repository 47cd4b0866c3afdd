"""How defects of eqsat are handled, and the report that users can send in."""

from __future__ import annotations

import platform
import tempfile
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

from jax.extend.core import ClosedJaxpr

from eqsat.engine.egraph import EGraphError
from eqsat.errors import EqsatError
from eqsat.reports.refusal import Refusal
from eqsat.support.units import UNLIMITED

R = TypeVar("R")

PACKAGES = ("eqsat", "egglog", "jax", "jaxlib", "numpy")
"""Packages whose versions the report names."""


def is_defect(error: BaseException) -> bool:
    """Whether an error is a defect, rather than one that eqsat raises on purpose.

    >>> is_defect(AssertionError()), is_defect(EqsatError())
    (True, False)
    """
    return isinstance(error, EGraphError) or not isinstance(error, (Refusal, EqsatError))


def despite_defects(
    action: Callable[[], R], instead: Callable[[], R], failed: str, program: ClosedJaxpr, budget: int
) -> R:
    """The result of an action; if that fails by a defect, a warning and the result of another action.

    **Arguments:**

    - `failed`: the beginning of the warning: "the memory of f was not looked at".
    """
    try:
        return action()
    except Exception as error:
        if not is_defect(error):
            raise
        written = reported(error, program, budget)
        message = f"{failed}. This is a defect of eqsat, please report it: {error!r}; {written}"
        warnings.warn(f"eqsat: {message}", stacklevel=2)
        return instead()


def reported(error: BaseException, program: ClosedJaxpr, budget: int) -> str:
    """Write a report of the failure to a file: where it is, or the text itself if that is impossible."""
    text = report(error, program, budget)
    with suppress(OSError):
        with tempfile.NamedTemporaryFile(
            "w", prefix="eqsat-report-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
        return f"what to send in is in {Path(file.name)}"
    return f"what to send in:\n{text}"


def report(error: BaseException, program: ClosedJaxpr, budget: int) -> str:
    """The report: versions, traceback and program, but no values of arrays."""
    amount = "unlimited" if budget == UNLIMITED else f"{budget} bytes"
    lines = [f"eqsat failed to plan a function within a budget of {amount}.", ""]
    lines += [f"{name} {_version(name)}" for name in PACKAGES]
    lines += [f"Python {platform.python_version()}, {platform.platform()}", ""]
    lines += ["".join(traceback.format_exception(error)), "The program:", _text(program)]
    return "\n".join(lines) + "\n"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(not installed)"


def _text(program: ClosedJaxpr) -> str:
    """A program as text, even if it is malformed."""
    try:
        return str(program.jaxpr.pretty_print(source_info=True, name_stack=False))
    except Exception as error:
        return f"(it can't be printed: {error!r})"
