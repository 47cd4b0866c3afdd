"""The examples in docstrings run, and give what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {"eqsat": "eqsat", "frontend": "eqsat.frontend", "backend": "eqsat.backend"}
"""By folder, the name of the package."""

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def modules() -> list[str]:
    """Returns the names of all modules with examples."""
    found = []
    for folder, package in PACKAGES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            if ">>> " in path.read_text():
                inside = path.relative_to(ROOT / folder).with_suffix("").parts
                found.append(".".join([package, *(part for part in inside if part != "__init__")]))
    return found


@pytest.mark.parametrize("name", modules())
def test_examples_give_what_they_say(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
    assert result.attempted
    assert not result.failed
