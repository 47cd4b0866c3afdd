"""Runs with checkpoints that are killed at any moment go on, and repeat what came after the last one."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from tests.nightly import nightly_but
from tests.stages import normal

EVERY = 0.15
"""Seconds between checkpoints, in which several chunks are read."""

FINGERPRINT = 65
"""How many slices are read to tell data apart."""

SCRIPT = """
    import sys, time
    import jax.numpy as jnp, numpy as np
    import eqsat
    from eqsat.streaming import checkpoints

    folder, checkpoints.EVERY = sys.argv[1], float(sys.argv[2])


    class Slow:
        def __init__(self, array):
            self.array, self.shape, self.dtype = array, array.shape, array.dtype

        def __getitem__(self, where):
            print("read", where[0].start, where[0].stop, flush=True)
            if where[0].stop - where[0].start > 1:  # not for the fingerprint
                time.sleep(0.02)
            return self.array[where]


    write = checkpoints.Checkpoints.write


    def noted(self, saved):
        write(self, saved)
        print("checkpoint", flush=True)


    checkpoints.Checkpoints.write = noted


    def scores(x):
        centred = x - x.mean(0)
        return jnp.tanh(centred) @ jnp.ones(4), jnp.max(centred, 0)


    x = Slow(np.load(folder + "/x.npy"))
    run = eqsat.optimize(scores, budget="300kB", checkpoint=folder + "/checkpoint")
    products, most = run(x)
    np.savez(folder + "/results.npz", products, most)
"""


def lines_of(folder: Path, killed_after: float | None = None) -> list[str]:
    """What a run says; `killed_after` are the seconds from when it first reads a chunk to its end."""
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(folder), str(EVERY)]
    found = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found.append(line)
            if killed_after is not None and chunks(found):
                time.sleep(killed_after)
                process.send_signal(signal.SIGKILL)
                found += process.stdout.readlines()
    assert process.returncode == (0 if killed_after is None else -signal.SIGKILL)
    return found


def chunks(lines: list[str]) -> int:
    """How many chunks were read."""
    count = 0
    for line in lines:
        if line.startswith("read"):
            _, start, stop = line.split()
            count += int(stop) - int(start) > 1
    return count


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, float]:
    """The folder of a run that was left alone, how many chunks it read, and for how many seconds."""
    folder = tmp_path_factory.mktemp("whole")
    np.save(folder / "x.npy", normal(200_000, 4))
    began = time.monotonic()
    lines = lines_of(folder)
    return folder, chunks(lines), min(0.02 * chunks(lines), time.monotonic() - began)


@pytest.mark.parametrize("seed", nightly_but((), range(10)))
def test_it_goes_on_after_a_kill(seed: int, whole: tuple[Path, int, float], tmp_path: Path) -> None:
    """Repeated are the chunk in progress, the one read ahead, and those since the last checkpoint."""
    folder, count, seconds = whole
    (tmp_path / "x.npy").symlink_to(folder / "x.npy")
    before = lines_of(tmp_path, random.Random(seed).uniform(0, 0.9 * seconds))
    assert not (tmp_path / "results.npz").exists()
    after = lines_of(tmp_path)
    saved = max((number for number, line in enumerate(before) if line.startswith("checkpoint")), default=0)
    assert chunks(before) + chunks(after) <= count + chunks(before[saved:]) + 2
    with np.load(folder / "results.npz") as wanted, np.load(tmp_path / "results.npz") as found:
        for name in wanted:
            np.testing.assert_array_equal(found[name], wanted[name])
    assert not (tmp_path / "checkpoint").exists()
