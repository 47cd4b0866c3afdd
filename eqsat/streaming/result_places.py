"""Where the results of one run go, and the scratch files that it keeps values in."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from eqsat.errors import EqsatError
from eqsat.frontend.trace import Traced, as_weak
from eqsat.ir.dtypes import numpy_dtype
from eqsat.streaming.device_parts import ONE_DEVICE, DeviceParts, whole_on_host
from eqsat.streaming.execution import KeptResult
from eqsat.streaming.keys import Key
from eqsat.streaming.named_places import named_places
from eqsat.streaming.options import StreamOptions
from eqsat.streaming.places import Position
from eqsat.streaming.sinks import ScratchSink, Sink, sink
from eqsat.streaming.sources import Source
from eqsat.streaming.steps import Kept, Result, Streaming
from eqsat.streaming.written_samples import WrittenSamples


@dataclass(frozen=True)
class ResultPlaces:
    """Where outputs go.

    **Attributes:**

    - `avals`: the types of the function's results.
    - `places`: by result, where it goes; None for those that stay on the device.
    - `scratch`: where other values are that passes keep.
    - `parts`: how devices share out chunks.
    """

    avals: Sequence[Any]
    places: list[KeptResult | None]
    scratch: list[KeptResult]
    parts: DeviceParts = ONE_DEVICE

    @staticmethod
    def of(
        streaming: Streaming,
        traced: Traced,
        sources: Collection[Source],
        options: StreamOptions,
        title: str,
        resumed: bool = False,
        parts: DeviceParts = ONE_DEVICE,
    ) -> ResultPlaces:
        """The places for a run.

        **Arguments:**

        - `sources`: what is read while results are written.
        - `resumed`: whether an earlier run has begun to write.

        **Raises:** `EqsatError` if the caller names places that don't fit the results.
        """
        avals = traced.closed.out_avals
        outs = named_places(options.out, traced, sources, title)
        found = ResultPlaces(avals, [], [], parts)
        try:
            found._open(streaming, outs, options, resumed)
        except BaseException:
            found.abandoned()
            raise
        return found

    def _open(
        self,
        streaming: Streaming,
        outs: Sequence[Any],
        options: StreamOptions,
        resumed: bool,
    ) -> None:
        folder = None if options.checkpoint is None else Path(options.checkpoint)
        for number, (result, aval) in enumerate(zip(streaming.results, self.avals, strict=True)):
            out = outs[number]
            if out is None and not streaming.leaves_device(result):
                self.places.append(None)
                continue
            file = None if folder is None else folder / f"result-{number}.npy"
            dtype = numpy_dtype(str(aval.dtype))
            if out is None and result.kind == "kept" and self.parts.several_processes:
                raise EqsatError(
                    "each process has its own rows of a result that is as long as what is read: name a place"
                    " that all of them can write to, by out="
                )
            one = sink(out, tuple(aval.shape), dtype, resumed, file, self.parts)
            self.places.append(KeptResult(one, result))
        results = {result.number for result in streaming.results if result.kind == "kept"}
        for kept in streaming.kept:
            if kept.number not in results:
                assert options.scratch is not None
                file = None if folder is None else folder / f"value-{kept.number}"
                one = _scratch(file, Path(options.scratch), kept, resumed)
                self.scratch.append(KeptResult(one, Result("kept", kept.number, kept.axes)))

    @property
    def kept(self) -> Mapping[int, Sequence[KeptResult]]:
        """The places by the number of the kept result that goes there."""
        found: dict[int, list[KeptResult]] = {}
        for place in self.every:
            if place.result.kind == "kept":
                found.setdefault(place.result.number, []).append(place)
        return found

    @property
    def every(self) -> list[KeptResult]:
        """All places outside the device's memory."""
        return [*(place for place in self.places if place is not None), *self.scratch]

    def flush(self) -> None:
        """Wait until all that was written is on disk."""
        for place in self.every:
            place.sink.flush()

    @property
    def samples(self) -> list[Any]:
        """Samples of what was written to each place, as JSON has them."""
        return [None if place is None else place.sink.samples.data for place in (*self.places, *self.scratch)]

    def resume(self, samples: Sequence[Any]) -> None:
        """Go on with what an earlier run has written.

        **Raises:** `EqsatError` if it wrote to other places.
        """
        for place, data in zip((*self.places, *self.scratch), samples, strict=True):
            # A result that is on the device until the end may have got a place, or lost it.
            if place is not None and data is not None:
                place.sink.resume(WrittenSamples.of(data))

    def abandoned(self) -> None:
        """Let them go, when no more is written."""
        for place in self.every:
            place.sink.abandoned()

    def results(self, arrays: Mapping[Key, jax.Array]) -> list[Any]:
        """The function's results, when all is done. Scratch files go."""
        found: list[Any] = []
        for number, place in enumerate(self.places):
            if place is None:
                result = _inside(arrays[Key("result", number)], self.avals[number].shape)
                found.append(as_weak(result) if self.avals[number].weak_type else result)
            else:
                # An array in memory is that of a process; all others are written to by one.
                if place.result.kind == "device" and (self.parts.writes_whole or place.sink.own):
                    slices = Position().slices(place.result.layout, frozenset())
                    place.sink.write(slices, whole_on_host(arrays[Key("result", number)]))
                found.append(place.sink.finished())
        for place in self.scratch:
            place.sink.finished()
        self.parts.wait("the results are written")
        return found


def _inside(result: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """A result without rows in excess."""
    return result if result.shape == shape else result[tuple(map(slice, shape))]


def _scratch(file: Path | None, folder: Path, kept: Kept, resumed: bool) -> Sink:
    """A scratch file; one that survives the process if there are checkpoints."""
    shape = tuple(axis.size for axis in kept.axes)
    dtype = numpy_dtype(kept.dtype)
    if file is not None:
        return ScratchSink(file, shape, dtype, resumed)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="eqsat-", suffix=".scratch", delete=False) as opened:
        name = Path(opened.name)
    one = ScratchSink(name, shape, dtype, False)
    # Without a name, the file goes with the process, however that ends.
    name.unlink()
    return one
