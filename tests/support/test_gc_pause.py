"""Garbage is collected again afterwards."""

from __future__ import annotations

import gc

import pytest

from eqsat.support.gc_pause import uncollected


@uncollected()
def fail() -> None:
    assert not gc.isenabled()
    with uncollected():
        pass
    assert not gc.isenabled(), "the inner stretch was over, not the outer one"
    raise ZeroDivisionError


def test_collecting_goes_on_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        fail()
    assert gc.isenabled()
