"""The shipped rules: `.rules` files, one topic each. `README.md` beside them says how to write rules."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

FOR_TARGETS = frozenset({"fused_products", "lapack"})
"""The files, without their suffix, whose rules are only for targets that name the file. They gain nothing
elsewhere, or are not right there."""


def shipped() -> tuple[Path, ...]:
    """The paths of all shipped `.rules` files, by name."""
    folder = Path(str(files(__name__)))
    return tuple(sorted(folder.glob("*.rules")))
