"""The texts of `.rules` files, read without parsing them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

INCLUDE = re.compile(r'^\s*include\s+"([^"\n]+)"', re.MULTILINE)
"""An include of another file in a `.rules` file."""


def rule_texts(path: Path, seen: frozenset[Path] = frozenset()) -> Iterator[str]:
    """The names and texts of a `.rules` file and of those that it includes."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError):
        return  # the parser will report what is wrong with it
    yield path.name
    yield text
    for name in INCLUDE.findall(text):
        included = Path(os.path.normpath(path.parent / name))
        if included not in seen:
            yield from rule_texts(included, seen | {path})
