"""Runs a module in several processes that know of each other, as `jax.distributed` wants it."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path


def check_processes(module: str, count: int, *arguments: str) -> None:
    """Checks that all of them end well and say that they agreed.

    They are given their number, how many there are, a port, and the arguments.
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", module, str(number), str(count), str(port), *arguments],
            cwd=Path(__file__).parents[1],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(count)
    ]
    told = [process.communicate(timeout=300)[0] for process in processes]
    assert all(process.returncode == 0 for process in processes), "\n".join(text[-2000:] for text in told)
    assert all("agreed" in text for text in told)
