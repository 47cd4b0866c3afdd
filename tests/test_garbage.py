"""Garbage is collected again afterwards."""

from __future__ import annotations

import gc

import pytest

from eqsat.garbage import uncollected


def test_collecting_goes_on_after_an_error() -> None:
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
        raise ZeroDivisionError
    assert gc.isenabled()
