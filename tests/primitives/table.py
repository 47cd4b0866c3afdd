"""The table of all example calls, with which lowering, emitting and calling by chunks are tested."""

from __future__ import annotations

# These modules enter their cases when they are imported.
from tests.primitives import arrays as arrays
from tests.primitives import calls as calls
from tests.primitives import elementwise as elementwise
from tests.primitives import linalg as linalg
from tests.primitives import reductions as reductions
from tests.primitives.case import CASES, Case, equations

__all__ = ["CASES", "Case", "equations"]
