"""One of several processes that read one file: python -m tests.streaming.several_readers 0 2 1234 FOLDER."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.streaming.sinks import Sink
from eqsat.streaming.sources import Source

BUDGET = 100_000
ROWS = 16_003


def main() -> None:
    number, count, port, folder = sys.argv[1:]
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", int(count), int(number), initialization_timeout=60)
    mesh = {"data": len(jax.devices())}
    x = np.load(Path(folder) / "x.npy", mmap_mode="r")
    whole = np.array(x)
    read: list[int] = []
    before = Source.read

    def counted(self: Source, slices: tuple[slice, ...], into: np.ndarray) -> None:
        read.append(slices[0].stop - slices[0].start)
        before(self, slices, into)

    Source.read = counted  # type: ignore[method-assign]

    # Each process reads its own rows, but for the few that are left over.
    mean, sums = eqsat.optimize(lambda x: (x.mean(0), jnp.exp(x).sum(0)), budget=BUDGET, mesh=mesh)(x)
    np.testing.assert_allclose(np.asarray(mean), whole.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.asarray(sums), np.exp(whole).sum(0), rtol=1e-4)
    assert sum(read) < 1.1 * ROWS / int(count), read

    # They write their rows to one file.
    out = Path(folder) / f"out-{count}.npy"
    read.clear()
    got = eqsat.optimize(lambda x: x - x.mean(0), budget=BUDGET, mesh=mesh, out=str(out))(x)
    np.testing.assert_allclose(got, whole - whole.mean(0), rtol=1e-4, atol=1e-5)
    assert sum(read) < 2.2 * ROWS / int(count), read
    opened = np.lib.format.open_memmap(Path(folder) / "opened.npy", mode="r+")
    eqsat.optimize(lambda x: (2 * x)[::-1], budget=BUDGET, mesh=mesh, out=opened)(x)
    jax.experimental.multihost_utils.sync_global_devices("written")
    np.testing.assert_array_equal(opened, 2 * whole[::-1])

    # A loop around passes, a scan over rows, and rows by indices.
    def steps(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 3, lambda _, w: w - 1e-5 * x.T @ (x @ w), w)

    w = np.ones(8, np.float32)
    got = eqsat.optimize(steps, budget=BUDGET, mesh=mesh)(x, w)
    np.testing.assert_allclose(np.asarray(got), np.asarray(jax.jit(steps)(whole, w)), rtol=1e-3)

    def averaged(x: jax.Array) -> jax.Array:
        return lax.scan(lambda c, r: (0.5 * c + r, None), jnp.zeros(8), x)[0]

    got = eqsat.optimize(averaged, budget=BUDGET, mesh=mesh)(x)
    np.testing.assert_allclose(np.asarray(got), np.asarray(jax.jit(averaged)(whole)), rtol=1e-3)

    def both(x: jax.Array) -> jax.Array:
        bits = jnp.round(x).astype(int)
        return (jnp.cumsum(bits, 0) * 3 - lax.cumsum(bits, 0, reverse=True)).max(0)

    got = eqsat.optimize(both, budget=BUDGET, mesh=mesh)(x)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(jax.jit(both)(whole)))
    rows = (np.arange(4000) * 7919) % ROWS
    got = eqsat.optimize(lambda x, i: jnp.tanh(x[i]).sum(0), budget=BUDGET, mesh=mesh)(x, rows)
    np.testing.assert_allclose(np.asarray(got), np.tanh(whole[rows]).sum(0), rtol=1e-3, atol=1e-3)

    with pytest.raises(eqsat.EqsatError, match="out="):
        eqsat.optimize(lambda x: 2 * x, budget=BUDGET, mesh=mesh)(x)
    with pytest.raises(eqsat.EqsatError, match="checkpoint"):
        eqsat.optimize(lambda x: x.sum(0), budget=BUDGET, mesh=mesh, checkpoint=f"{folder}/c")(x)

    # What one of them can't read, all of them fail at, instead of waiting for it.
    def gone(*_: Any) -> None:
        raise eqsat.EqsatError("the disk is gone")

    def gone_later(self: Source, slices: tuple[slice, ...], into: np.ndarray) -> None:
        (gone if slices[0].start > ROWS // 2 else before)(self, slices, into)

    if number == "1":
        Source.read = gone_later  # type: ignore[method-assign]
        Source.read_points = gone  # type: ignore[method-assign]
    for function in (lambda x: jnp.exp(x).sum(0), lambda x, i: jnp.tanh(x[i]).sum(0)):
        given = (x,) if function.__code__.co_argcount == 1 else (x, rows)
        with pytest.raises(eqsat.EqsatError, match="gone" if number == "1" else "another process"):
            eqsat.optimize(function, budget=BUDGET, mesh=mesh)(*given)
    # Nor do they wait for one that can't write.
    Source.read = before  # type: ignore[method-assign]
    if number == "1":
        Sink.write = gone  # type: ignore[method-assign]
    with pytest.raises(eqsat.EqsatError, match="gone" if number == "1" else "another process"):
        eqsat.optimize(lambda x: 2 * x, budget=BUDGET, mesh=mesh, out=opened)(x)
    print("agreed")


if __name__ == "__main__":
    main()
