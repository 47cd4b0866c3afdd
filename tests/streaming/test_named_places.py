"""The places that the caller names for results: one for each, and none that is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest
import zarr

from eqsat.errors import EqsatError
from eqsat.frontend.trace import trace
from eqsat.streaming.named_places import named_places
from eqsat.streaming.sources import Source

DATA = np.arange(12, dtype=np.float32).reshape(6, 2)
TRACED = trace(lambda x: {"b": (x, None), "a": x + 1}, (jax.ShapeDtypeStruct((6, 2), np.float32),), {})


def places(out: Any, *read: Any) -> list[Any]:
    return named_places(out, TRACED, [Source(one, "x") for one in read], "f")


def test_places_are_in_the_order_of_results(tmp_path: Path) -> None:
    assert places(None) == [None, None]
    assert places({"b": (tmp_path, None), "a": None}) == [None, tmp_path]
    assert places({"b": (None, None), "a": "x.npy"}) == ["x.npy", None]


@pytest.mark.parametrize(
    "out", ["x.npy", {"a": None}, {"b": "x.npy", "c": None}, {"a": "x.npy", "b": "y.npy"}]
)
def test_another_structure_is_an_error(out: Any) -> None:
    with pytest.raises(EqsatError, match="does not match the results of f"):
        places(out)


def test_a_place_for_two_results_is_an_error() -> None:
    both = np.zeros((7, 2), np.float32)
    for a, b in (("x.npy", "./x.npy"), (both[1:], both[:-1])):
        with pytest.raises(EqsatError, match="one place for two results"):
            places({"b": (b, None), "a": a})
    both = np.zeros((12, 2), np.float32)
    assert len(places({"b": (both[:6], None), "a": both[6:]})) == 2


@pytest.mark.parametrize("kind", ["array", "memmap", "h5py", "zarr"])
def test_a_place_that_is_read_is_an_error(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    match kind:
        case "array":
            out: Any = DATA.copy()
            read = out[::-1]
        case "memmap":
            DATA.tofile(path)
            out, read = (np.memmap(path, np.float32, mode, shape=DATA.shape) for mode in ("r+", "r"))
        case "h5py":
            file = h5py.File(path, "w")
            out, read = file.create_dataset("x", data=DATA), file["x"]
        case _:
            out = zarr.create_array(store=path, shape=DATA.shape, chunks=(3, 2), dtype="float32")
            read = zarr.open_array(store=path, mode="r")
    with pytest.raises(EqsatError, match="reads as x while it writes"):
        places({"b": (None, None), "a": out}, read)
    assert places({"b": (None, None), "a": out}, DATA)[0] is out
