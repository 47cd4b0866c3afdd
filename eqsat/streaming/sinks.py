"""Where results go that are not in the device's memory: arrays of NumPy, files, or what the caller names."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from eqsat.errors import EqsatError
from eqsat.streaming.device_parts import ONE_DEVICE, DeviceParts
from eqsat.streaming.sources import Slices, let_go, mapping_of, own_dtype, sliced, slices_text
from eqsat.streaming.written_samples import WrittenSamples

UNFINISHED = ".part"
"""What the name of a file ends in until all of it is written."""


class Sink:
    """One result.

    **Attributes:**

    - `array`: what slices are assigned to.
    - `own`: whether it is in the memory of this process.
    - `samples`: of what was written.
    """

    def __init__(self, array: Any, own: bool = False) -> None:
        self.array = array
        self.own = own
        self.samples = WrittenSamples()

    def write(self, slices: Slices, values: np.ndarray[Any, Any]) -> None:
        """Write a slice, without what is behind the end of the array.

        **Raises:** `EqsatError` that names the slice if it can't be written.
        """
        try:
            slices = self._inside(slices)
            values = values[tuple(slice(0, one.stop - one.start) for one in slices)]
            self.array[slices] = values
        except Exception as error:
            raise EqsatError(
                f"the result's slice {slices_text(slices)} could not be written: {error}"
            ) from error
        self.samples.note(slices, values)
        let_go(self.array)

    def resume(self, samples: WrittenSamples) -> None:
        """Go on where an earlier run has written what the samples are of.

        **Raises:** `EqsatError` if that was somewhere else.
        """
        try:
            slices = samples.differing(self.array)
        except Exception as error:
            raise EqsatError(f"what the checkpoint's run has written can't be read: {error}") from error
        if slices is not None:
            raise EqsatError(
                f"out is not where the checkpoint's run began to write: its slice {slices_text(slices)} is"
                " another. Name the array that it began with, or delete the checkpoint to begin anew"
            )
        self.samples = samples

    def read(
        self,
        slices: Slices,
        into: np.ndarray[Any, Any],
        arranged: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]],
    ) -> None:
        """Copy a slice of what has been written, with zeros behind the end of the array.

        **Arguments:**

        - `into`: where to.
        - `arranged`: gives the slice with the dimensions of `into`.

        **Raises:** `EqsatError` that names the slice if it can't be read.
        """
        try:
            inside = self._inside(slices)
            found = sliced(self.array, inside)
            ends = [(0, whole.stop - part.stop) for whole, part in zip(slices, inside, strict=True)]
            np.copyto(into, arranged(np.pad(found, ends) if inside != slices else found))
        except Exception as error:
            raise EqsatError(
                f"the result's slice {slices_text(slices)} could not be read: {error}"
            ) from error
        let_go(found)

    def _inside(self, slices: Slices) -> Slices:
        """A slice without what is behind the end of the array."""
        ends = zip(slices, self.array.shape, strict=True)
        return tuple(slice(min(one.start, size), min(one.stop, size)) for one, size in ends)

    def flush(self) -> None:
        """Wait until all that was written is on disk."""
        flush = getattr(self.array, "flush", None)
        if flush is not None:
            flush()

    def finished(self) -> Any:
        """The result, when all of it is written."""
        self.flush()
        return self.array

    def abandoned(self) -> None:
        """Let it go, when no more of it will be written."""


class FileSink(Sink):
    """A result in a `.npy` file, which has its name when it is complete.

    **Attributes:**

    - `path`: of the file.
    - `kept`: whether an unfinished file stays, for a run that goes on with it.
    - `temporary`: whether the result becomes an array in memory in the end, and the file goes.
    """

    def __init__(
        self,
        path: Path,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        resumed: bool,
        kept: bool,
        temporary: bool = False,
    ) -> None:
        self.path = path
        self.dtype = dtype
        self.size = math.prod(shape)
        self.kept = kept
        self.temporary = temporary
        self.unfinished = path.with_name(path.name + UNFINISHED)
        if resumed:
            try:
                array = np.load(self.unfinished, mmap_mode="r+" if self.size else None)
            except (OSError, ValueError) as error:
                raise EqsatError(
                    f"the checkpoint's result {self.unfinished} can't be opened: {error}. Move it there from"
                    " where the run began to write it, or delete the checkpoint to begin anew"
                ) from error
            if array.shape != shape or array.dtype.itemsize != dtype.itemsize:
                raise EqsatError(f"{self.unfinished} is not the result that the checkpoint is of")
        else:
            try:
                if path.is_dir():
                    raise IsADirectoryError("it is a folder")
                path.parent.mkdir(parents=True, exist_ok=True)
                array = _new_file(self.unfinished, shape, dtype)
            except OSError as error:
                raise EqsatError(f"a result can't be written to {path}: {error}") from error
        # Of dtypes that are not NumPy's own, such as bfloat16, files hold the bytes and not the name.
        super().__init__(array.view(dtype))

    def finished(self) -> Any:
        self.flush()
        self.array = None
        if self.temporary:
            found = np.load(self.unfinished).view(self.dtype)
            self.unfinished.unlink()
            return found
        try:
            os.replace(self.unfinished, self.path)
        except OSError as error:
            raise EqsatError(f"a result can't be written to {self.path}: {error}") from error
        return self.opened()

    def opened(self) -> Any:
        """The file when it is complete."""
        try:
            return np.load(self.path, mmap_mode="r+" if self.size else None).view(self.dtype)
        except OSError as error:
            raise EqsatError(f"a result can't be read from {self.path}: {error}") from error

    def abandoned(self) -> None:
        if not self.kept:
            self.array = None
            self.unfinished.unlink(missing_ok=True)


class SharedFileSink(FileSink):
    """A result in a `.npy` file that several processes write to.

    **Attributes:**

    - `parts`: how their devices share out chunks.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], parts: DeviceParts) -> None:
        self.parts = parts
        if not parts.writes_whole:
            parts.wait(f"{path} is there")
            super().__init__(path, shape, dtype, resumed=True, kept=True)
            return
        try:
            super().__init__(path, shape, dtype, resumed=False, kept=False)
        finally:
            parts.wait(f"{path} is there")

    def finished(self) -> Any:
        self.flush()
        self.parts.wait(f"{self.path} is written")
        try:
            if self.parts.writes_whole:
                os.replace(self.unfinished, self.path)
        except OSError as error:
            raise EqsatError(f"a result can't be written to {self.path}: {error}") from error
        finally:
            self.parts.wait(f"{self.path} has its name")
        return self.opened()


class ScratchSink(Sink):
    """What a run keeps for itself in a file.

    **Attributes:**

    - `path`: of the file.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], resumed: bool) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        array = np.memmap(path, dtype, "r+" if resumed else "w+", shape=shape)
        super().__init__(array)

    def finished(self) -> Any:
        del self.array
        self.path.unlink(missing_ok=True)


def _new_file(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if math.prod(shape):
        return np.lib.format.open_memmap(path, mode="w+", shape=shape, dtype=dtype)
    empty = np.empty(shape, dtype)  # of which there is no mapping
    with path.open("wb") as file:
        np.lib.format.write_array(file, empty)
    return empty


def sink(
    out: Any,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    resumed: bool = False,
    scratch: Path | None = None,
    parts: DeviceParts = ONE_DEVICE,
) -> Sink:
    """Where a result goes.

    **Arguments:**

    - `out`: None for an array of NumPy; the path of a `.npy` file; or an array with `shape`, `dtype` and
      assignment to slices.
    - `resumed`: whether part of it was written before.
    - `scratch`: a file for an array of NumPy whose parts have to survive the process.
    - `parts`: how devices share out chunks; a file may be that of several processes.

    **Raises:** `EqsatError` if `out` is none of these, or of another shape or dtype.
    """
    if out is None and scratch is None:
        return Sink(np.empty(shape, dtype), own=True)
    if out is None:
        assert scratch is not None
        return FileSink(scratch, shape, dtype, resumed, kept=True, temporary=True)
    if isinstance(out, (str, os.PathLike)):
        path = Path(out)
        if path.suffix != ".npy":
            raise EqsatError(
                f"out={str(out)!r} is not the path of a .npy file; for other files, pass what opens them: an"
                " array of zarr, a dataset of h5py, an np.memmap"
            )
        if parts.several_processes:
            return SharedFileSink(path, shape, dtype, parts)
        return FileSink(path, shape, dtype, resumed, scratch is not None)
    if not hasattr(out, "__setitem__") or not hasattr(out, "shape") or isinstance(out, jax.Array):
        raise EqsatError(f"out is the path of a .npy file, or an array to write to, not {out!r:.60}")
    if tuple(out.shape) != shape:
        raise EqsatError(f"out has the shape {tuple(out.shape)}, and the result has {shape}")
    if own_dtype(out) != dtype:
        raise EqsatError(f"out has entries of {own_dtype(out)}, and the result has entries of {dtype}")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise EqsatError("out is an array that can't be written to")
    if parts.several_processes and isinstance(out, np.ndarray) and mapping_of(out) is None:
        raise EqsatError("out is an array in memory, which other processes can't write to: name a file")
    if scratch is not None and isinstance(out, np.ndarray) and mapping_of(out) is None:
        raise EqsatError(
            "out is an array in memory, which a run that goes on from a checkpoint would not find: name a"
            " file, or an array that is in one, or leave it to the checkpoint by out=None"
        )
    return Sink(out)


def parts_of(shape: Sequence[int]) -> Slices:
    """The slices of all of an array."""
    return tuple(slice(0, length) for length in shape)
