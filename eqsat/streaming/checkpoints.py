"""Long runs on disk: how far a run has come, and what the device held, in a file that is written whole."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from eqsat.errors import EqsatError
from eqsat.ir.dtypes import numpy_dtype
from eqsat.streaming.keys import Key

EVERY = 60.0
"""Seconds between checkpoints."""

NAME = "checkpoint"
"""The name of the file."""

MAGIC = b"eqsat checkpoint 3\n"
"""What the file begins with."""


@dataclass(frozen=True)
class Saved:
    """How far a run had come.

    **Attributes:**

    - `budget`: bytes of the device's memory that it was planned for.
    - `steps`: the digest of its steps.
    - `lengths`: of its chunks, by pass.
    - `path`: by loop that was running, the numbers of its step and of its chunk.
    - `read_bytes`: how much it had read.
    - `written`: samples of what it had written, by place.
    """

    budget: int
    steps: str
    lengths: Mapping[int, int]
    path: tuple[tuple[int, int], ...]
    arrays: Mapping[Key, np.ndarray]
    read_bytes: int
    written: Sequence[Any] = ()


@dataclass
class Checkpoints:
    """The checkpoints of one run, of which the last one is kept.

    **Attributes:**

    - `folder`: where it is, which is made if there is none.
    - `digest`: of the function and of its arguments: a checkpoint of others is refused.
    """

    folder: Path
    digest: str
    _last: float = field(default_factory=time.monotonic)

    @property
    def file(self) -> Path:
        return self.folder / NAME

    @property
    def due(self) -> bool:
        """Whether the last one is long enough ago."""
        return time.monotonic() - self._last >= EVERY

    def read(self) -> Saved | None:
        """The last checkpoint; None if there is none.

        **Raises:** `EqsatError` if it is of another function or of other data, or is damaged.
        """
        try:
            content = self.file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise EqsatError(f"the checkpoint {self.file} can't be read: {error}") from error
        try:
            if not content.startswith(MAGIC):
                raise ValueError("it does not begin as one")
            size = int.from_bytes(content[len(MAGIC) : len(MAGIC) + 8], "little")
            begin = len(MAGIC) + 8
            head = json.loads(content[begin : begin + size])
            place = begin + size
            arrays = {}
            for kind, number, part, scope, dtype, shape in head["arrays"]:
                count = int(np.prod(shape, dtype=np.int64)) * numpy_dtype(dtype).itemsize
                raw = content[place : place + count]
                if len(raw) != count:
                    raise ValueError("it ends too early")
                arrays[Key(kind, number, part, scope)] = np.frombuffer(raw, numpy_dtype(dtype)).reshape(shape)
                place += count
            lengths = {int(number): length for number, length in head["lengths"].items()}
            budget, steps = int(head["budget"]), str(head["steps"])
            path = tuple((step, chunk) for step, chunk in head["path"])
        except (ValueError, KeyError, TypeError) as error:
            raise EqsatError(
                f"{self.file} is no checkpoint that can be read ({error}): delete it to begin anew"
            ) from error
        if head["digest"] != self.digest:
            raise EqsatError(
                f"the checkpoint in {self.folder} is of another function, or of other arguments: delete the"
                " folder to begin anew, or call the function that it is of with the same arguments"
            )
        return Saved(budget, steps, lengths, path, arrays, head["read_bytes"], head["written"])

    def write(self, saved: Saved) -> None:
        """Write a checkpoint in the place of the last one. A crash leaves one of the two.

        **Raises:** `EqsatError` if it can't be written.
        """
        try:
            self._write(saved)
        except OSError as error:
            raise EqsatError(f"the checkpoint {self.file} can't be written: {error}") from error

    def _write(self, saved: Saved) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        listed = [
            (key.kind, key.number, key.part, key.scope, str(array.dtype), list(array.shape))
            for key, array in saved.arrays.items()
        ]
        head = json.dumps(
            {
                "digest": self.digest,
                "budget": saved.budget,
                "steps": saved.steps,
                "lengths": dict(saved.lengths),
                "path": list(saved.path),
                "read_bytes": saved.read_bytes,
                "written": saved.written,
                "arrays": listed,
            }
        ).encode()
        unfinished = self.file.with_suffix(".part")
        with unfinished.open("wb") as file:
            file.write(MAGIC + len(head).to_bytes(8, "little") + head)
            for array in saved.arrays.values():
                file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, self.file)
        self._last = time.monotonic()

    def remove(self) -> None:
        """Remove it, since the run is done; and the folder, if nothing else is in it."""
        self.file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def on_disk(arrays: Mapping[Key, jax.Array]) -> dict[Key, np.ndarray]:
    """What of the device's arrays goes into a checkpoint: arguments are given again."""
    return {key: np.asarray(array) for key, array in arrays.items() if key.kind != "argument"}
