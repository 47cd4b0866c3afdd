"""One of several processes that share out a function: `python -m tests.several_processes 0 2 1234`."""

from __future__ import annotations

import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import eqsat
from eqsat.compiler.agreement import check_agreement
from tests.kernels import kernel
from tests.stages import normal


def main() -> None:
    number, count, port = sys.argv[1:]
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", int(count), int(number), initialization_timeout=60)
    mesh = jax.make_mesh((len(jax.devices()),), ("data",), axis_types=(AxisType.Auto,))
    args = [np.asarray(normal(*shape)) for shape in ((1600, 3), (800, 3), (800,))]
    wanted = np.asarray(jax.jit(kernel)(*args))
    shared = eqsat.optimize(lambda *xs: (kernel(*xs), jnp.sum(kernel(*xs))), budget=150_000, mesh=mesh)
    split = NamedSharding(mesh, PartitionSpec("data"))
    x = jax.make_array_from_callback(args[0].shape, split, lambda index: args[0][index])
    for first in (args[0], x):
        rows, total = shared(first, *args[1:])
        for shard in rows.addressable_shards:
            np.testing.assert_allclose(shard.data, wanted[shard.index], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(np.asarray(total), wanted.sum(), rtol=1e-4, atol=1e-4)
    assert shared.plan(*args).peak_bytes <= 150_000
    with pytest.raises(eqsat.EqsatError, match="different plans"):
        check_agreement(mesh, "kernel", f"the plan of process {number}")
    print("agreed")


if __name__ == "__main__":
    main()
