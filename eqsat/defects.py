"""What users can send in when planning fails by a defect of eqsat."""

from __future__ import annotations

import platform
import tempfile
import traceback
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from jax.extend.core import ClosedJaxpr

from eqsat.amounts import UNLIMITED

PACKAGES = ("eqsat", "egglog", "jax", "jaxlib", "numpy")
"""Those whose versions matter."""


def reported(error: BaseException, program: ClosedJaxpr, budget: int) -> str:
    """Write down what failed, and on which program; where, or the text itself if that is impossible."""
    text = report(error, program, budget)
    with suppress(OSError):
        with tempfile.NamedTemporaryFile(
            "w", prefix="eqsat-report-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
        return f"what to send in is in {Path(file.name)}"
    return f"what to send in:\n{text}"


def report(error: BaseException, program: ClosedJaxpr, budget: int) -> str:
    """What failed: the versions, the traceback and the program. It says nothing of the values of arrays."""
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
    """A program as text, whatever is wrong with it."""
    try:
        return str(program.jaxpr.pretty_print(source_info=True, name_stack=False))
    except Exception as error:
        return f"(it can't be printed: {error!r})"
