"""Whether all processes of a mesh have made the same plan: if not, they would wait for each other."""

from __future__ import annotations

import hashlib

import jax
import numpy as np
from jax.experimental import multihost_utils

from eqsat.errors import EqsatError


def check_agreement(mesh: jax.sharding.Mesh, title: str, plan: str) -> None:
    """Compare a plan, as text that says all of it, with those of all other processes.

    Planning counts its steps, so processes that plan the same function agree. What can part them is a limit
    in seconds, or another version of eqsat or JAX.

    **Raises:** `EqsatError` in every process if the plans differ.
    """
    processes = {device.process_index for device in mesh.devices.flat}
    if len(processes) == 1:
        return
    digest = np.frombuffer(hashlib.sha256(plan.encode()).digest(), np.uint32)
    with jax.core.eval_context():
        all_digests = np.asarray(multihost_utils.process_allgather(digest))
    others = [number for number, one in enumerate(all_digests) if (one != all_digests[0]).any()]
    if others:
        named = ", ".join(map(str, others))
        raise EqsatError(
            f"{title}: the processes of the mesh have made different plans (process 0, and {named}). Leave"
            " out planning_seconds, and have the same versions of eqsat and JAX, and the same rules,"
            " everywhere"
        )
