"""The package's names are there when asked for, and JAX is not imported before."""

from __future__ import annotations

import subprocess
import sys

import pytest

import eqsat


def test_every_public_name_has_a_home() -> None:
    homes = [name for names in eqsat.HOMES.values() for name in names.split()]
    assert sorted(homes) == eqsat.__all__ == sorted(eqsat.__all__)
    for name in eqsat.__all__:
        assert getattr(eqsat, name).__module__.startswith("eqsat.")
    assert set(eqsat.__all__) <= set(dir(eqsat))


def test_there_are_no_others() -> None:
    with pytest.raises(AttributeError, match="no attribute 'optimise'"):
        eqsat.optimise  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_package_does_not_import_jax() -> None:
    code = "import eqsat, sys; print('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_the_engine_is_loaded_without_the_package_around_it() -> None:
    """That imports formatters of Python code, which takes as long as planning a small program."""
    code = """
import sys
from eqsat.engine import egraph
print("egglog" in sys.modules)
import egglog
print(egglog.bindings is egraph.bindings)
egglog.EGraph(), egraph.EGraph()
print("done")
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert out.split() == ["False", "True", "done"]
