"""Where in the user's source an equation is from. The only module that asks JAX for that."""

from __future__ import annotations

import functools
import linecache
import os
import re
from pathlib import Path
from typing import Any

from jax.extend import source_info_util

from eqsat import errors
from eqsat.support.records import Place

FRAME = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?::[\d:-]+)? \((?P<function>.*)\)")
"""A line of `source_info_util.summarize`."""

for folder in (Path(__file__).parent, Path(errors.__file__).parent):
    # Calls that go through eqsat are made by whoever calls eqsat.
    source_info_util.register_exclusion(str(folder) + os.sep)


MOST_FRAMES = 50
"""How far out of a library to look for a line that is not in one."""

INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]")
"""The parts of a path that mark an installed library."""


def place_of(equation: Any) -> Place | None:
    """The innermost line of an equation's traceback that is neither JAX's nor eqsat's, if there is one.

    Where a library was called, it is the line that called it.
    """
    info = equation.source_info
    return _place(info.traceback, "transpose(" in str(info.name_stack))


@functools.lru_cache(maxsize=4096)
def _place(traceback: Any, gradient: bool) -> Place | None:
    info = source_info_util.new_source_info().replace(traceback=traceback)
    summary = source_info_util.summarize(info, num_frames=MOST_FRAMES)
    frames = [found for line in summary.splitlines() if (found := FRAME.fullmatch(line))]
    if not frames:
        return None
    innermost = ([frame for frame in frames if not INSTALLED.search(frame["file"])] or frames)[-1]
    file, line = innermost["file"], int(innermost["line"])
    return Place(file, line, innermost["function"], linecache.getline(file, line).strip(), gradient)
