"""Compilation with XLA and the memory certificate. No other module compiles.

Programs are compiled with options under which the compiler's memory analysis tells the truth, or with XLA's
own options and a bound on what they hide; and run as compiled. The target's compiler profile has the options
(`eqsat.targets`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend.core import Jaxpr

from eqsat.backend.fusion_depth import fusion_depth
from eqsat.backend.vectors import has_wide, saved
from eqsat.errors import EqsatError
from eqsat.targets.calibration import default_target
from eqsat.targets.compiler_profile import HONEST, OWN, Flags
from eqsat.targets.libraries import HostLibraries, NvidiaLibraries
from eqsat.targets.target import Target

DOUBT = 0.05
"""Without emitters, gathers and scatters become other loops, whose memory a draft may miss: half of it for a
graph attention. A draft is in doubt if their results exceed this part of the temporaries."""

PRODUCT = "stablehlo.dot_general"

INDEXED = re.compile(r'"stablehlo\.(?:gather|scatter)"(?:.|\n)*?-> tensor<((?:\d+x)*)[a-z]+(\d+)>')


@dataclass(frozen=True)
class Certified:
    """A compiled program and its memory, in bytes.

    **Attributes:**

    - `scratch`: what it takes beside the buffers that XLA counts: workspaces of libraries, and values
      that are hidden in fusions.
    - `options`: the name of the options that it was compiled with.
    - `executable`: None if it is a draft, whose machine code takes memory for nothing, or if the compiler
      refused it, since it exceeds the memory of the device.
    - `draft`: whether its machine code was made in a hurry: it is there to be looked at, not to be run.
    - `doubt`: by how many bytes its temporaries may be off then.
    - `seconds`: the time of a call by its compiled text, if that is how the target's programs are compared.
    """

    executable: Any
    arguments: int
    outputs: int
    temporaries: int
    aliased: int
    scratch: int = 0
    options: str = HONEST
    draft: bool = False
    doubt: int = 0
    seconds: float | None = None

    @property
    def peak(self) -> int:
        """Arguments + outputs + temporaries - aliased, as XLA assigned buffers, + scratch."""
        return self.arguments + self.outputs + self.temporaries - self.aliased + self.scratch

    @property
    def fixed(self) -> int:
        """Arguments + outputs - aliased: what no rewriting can avoid."""
        return self.arguments + self.outputs - self.aliased

    @property
    def in_doubt(self) -> bool:
        """Whether it may need something else than it says."""
        return self.doubt > DOUBT * self.temporaries

    @property
    def taken(self) -> int:
        """Bytes that a call should take from the system: fusions seldom hold all that they may."""
        return self.temporaries + (0 if self.options == OWN else self.scratch)

    def __call__(self, *args: Any) -> list[Any]:
        return list(self.executable(*args))


def compiler_options() -> Flags:
    """The options that programs for the default device are compiled with.

    A `jit` of one's own around optimised functions takes them too; then its figure is as true as a plan's.

    >>> import jax, jax.numpy as jnp
    >>> jax.jit(jnp.sin, compiler_options=compiler_options())(0.0).item()
    0.0
    """
    return dict(default_target().compiler.options[HONEST])


_UNKNOWN: set[tuple[str, int]] = set()
"""By platform, the numbers of the ways to draft whose options the compiler does not know."""


def _drafted(lowered: Any, options: Flags, closely: bool, target: Target) -> tuple[Any, Flags]:
    """A program compiled in the first way to draft that the compiler knows, and the options of that."""
    platform = target.platform
    known = [
        (number, flags)
        for number, flags in enumerate(target.compiler.drafts)
        if (platform, number) not in _UNKNOWN and not (closely and _inexact(flags, target))
    ]
    for place, (_, flags) in enumerate(known):
        try:
            executable = lowered.compile(compiler_options=options | flags)
        except jax.errors.JaxRuntimeError:
            continue  # There is no such option, or else whatever this is comes again.
        _UNKNOWN.update((platform, number) for number, _ in known[:place])
        return executable, flags
    executable = lowered.compile(compiler_options=options)
    _UNKNOWN.update((platform, number) for number, _ in known)
    return executable, {}


def _inexact(flags: Flags, target: Target) -> bool:
    """Whether drafts with these options may differ from programs in full by more than a little."""
    return target.compiler.inexact_draft in flags or target.machine.product_workspace > 0


def indexed_bytes(text: str) -> int:
    """Bytes of all results of gathers and scatters in a lowered program.

    >>> indexed_bytes('%1 = "stablehlo.gather"(%0, %2) : (tensor<9x2xf32>, tensor<3xi32>) -> tensor<3x2xf32>')
    24
    """
    sizes = (map(int, shape.split("x")[:-1]) for shape, _ in INDEXED.findall(text))
    widths = (max(int(bits) // 8, 1) for _, bits in INDEXED.findall(text))
    return sum(math.prod(size) * width for size, width in zip(sizes, widths, strict=True))


def certify(
    function: Callable[..., Sequence[Any]],
    avals: Sequence[Any],
    options: str = HONEST,
    captured: int = 0,
    donated: Sequence[int] = (),
    draft: bool = False,
    closely: bool = False,
    expected: int = 0,
    target: Target | None = None,
) -> Certified:
    """Compile a function of flat arguments and read off what it needs.

    **Arguments:**

    - `avals`: the arguments' shapes and dtypes.
    - `options`: the name of the options to compile it with.
    - `captured`: bytes of the arrays that the function closes over, which XLA does not count.
    - `donated`: the numbers of the arguments whose memory results may take; a call deletes them.
    - `draft`: whether only what it needs is wanted, as soon as can be. Where the compiler has no faster way,
      the program may be run all the same.
    - `closely`: whether a draft is to leave no doubt, which takes it three times as long.
    - `expected`: bytes of temporaries that the program should need; a draft that would be in doubt with these
      is made closely at once. 0 if nobody knows.
    - `target`: the device to compile for, and its compiler; None for the default device.
    """
    target = target or default_target()
    place: dict[str, Any] = {}
    spread = any(map(_spread, avals))
    if target.sharding is not None and not spread:
        place = {"out_shardings": target.sharding}
        avals = [jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=target.sharding) for aval in avals]
    with nullcontext() if spread else _mesh(target):
        traced = jax.jit(function, keep_unused=True, donate_argnums=donated, **place).trace(*avals)
        lowered = _lowered(traced, target)
    if draft and expected and target.compiler.inexact_draft:
        closely = closely or indexed_bytes(lowered.as_text()) > DOUBT * expected
    if draft and target.compiler.deepest_draft:
        closely = closely or fusion_depth(traced.jaxpr.jaxpr) > target.compiler.deepest_draft
    flags, hurry = target.compiler.options[options], Flags()
    if target.absent is not None:
        flags = flags | target.compiler.absent
    try:
        if draft and target.absent is None:
            executable, hurry = _drafted(lowered, flags, closely, target)
        else:
            executable = _compiled(lowered, flags, _wide(traced.jaxpr.jaxpr, target))
    except jax.errors.JaxRuntimeError as error:
        temporaries = _refused_bytes(str(error), target)
        if temporaries is None:
            raise
        closed = traced.jaxpr
        sizes = [sum(map(_bytes, avals)) for avals in (closed.in_avals, closed.out_avals)]
        return Certified(None, sizes[0] + captured, sizes[1], temporaries, 0, 0, options)
    memory = executable.memory_analysis()
    if memory is None:
        raise EqsatError(f"the compiler for {target} does not say what its programs need")
    scratch, seconds = _read(executable, target)
    return Certified(
        None if hurry else executable,
        int(memory.argument_size_in_bytes) + captured,
        int(memory.output_size_in_bytes),
        int(memory.temp_size_in_bytes),
        int(memory.alias_size_in_bytes),
        scratch,
        options,
        bool(hurry),
        _doubt(lowered, hurry, target),
        seconds,
    )


def _doubt(lowered: Any, hurry: Flags, target: Target) -> int:
    """By how many bytes a program that was drafted with these options may differ from one in full."""
    if target.compiler.inexact_draft in hurry:
        return indexed_bytes(lowered.as_text())
    workspace = target.machine.product_workspace if hurry else 0
    return workspace if workspace and PRODUCT in lowered.as_text() else 0


def _mesh(target: Target) -> AbstractContextManager[Any]:
    """The mesh of one device that the caller is on, with an absent device in its place."""
    if target.absent is None:
        return nullcontext()
    mesh = jax.sharding.get_mesh()
    if mesh.empty or mesh.size != 1:
        return nullcontext()
    devices = np.array([target.absent.device()]).reshape(mesh.devices.shape)
    return jax.set_mesh(jax.sharding.Mesh(devices, mesh.axis_names, axis_types=mesh.axis_types))


def _lowered(traced: Any, target: Target) -> Any:
    """A traced program, lowered for a target."""
    try:
        return traced.lower()
    except RuntimeError as error:
        if target.absent is None or "Unknown backend" not in str(error):
            raise
        raise EqsatError(
            f"the function calls back into Python (jax.pure_callback, or equinox's error_if, which"
            f" EQX_ON_ERROR=nan turns off), and JAX lowers that only where the device is: {target} is absent"
        ) from error


def _refused_bytes(message: str, target: Target) -> int | None:
    """The temporaries of a program that the compiler refused for its size; None for any other error."""
    found = target.compiler.refusal and re.search(target.compiler.refusal, message)
    if not found:
        return None
    unit: float = 1024.0 ** "_KMGT".index(found[2] or "_")
    # It keeps some of the memory for itself: what it refuses fits no budget.
    return max(int(float(found[1]) * unit), target.memory or 0)


def _spread(aval: Any) -> bool:
    """Whether it says of an argument that it is on several devices."""
    sharding = getattr(aval, "sharding", None)
    if isinstance(getattr(sharding, "mesh", None), jax.sharding.AbstractMesh):
        return False
    return isinstance(sharding, jax.sharding.Sharding) and len(sharding.device_set) > 1


def _bytes(aval: Any) -> int:
    return int(math.prod(aval.shape) * aval.dtype.itemsize)


def peak_of(executable: Any) -> int | None:
    """Bytes that a program needs which `jax.jit` has compiled under honest options; None if nobody knows."""
    memory = executable.memory_analysis()
    if memory is None:
        return None
    assigned = (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        + memory.temp_size_in_bytes
        - memory.alias_size_in_bytes
    )
    return int(assigned) + _read(executable, default_target())[0]


def _compiled(lowered: Any, options: Flags, wide: Flags) -> Any:
    """A program compiled, for wide vectors if that is asked for and the compiler knows how."""
    if wide:
        try:
            return lowered.compile(compiler_options=options | wide)
        except jax.errors.JaxRuntimeError:
            pass  # There is no such option, or else whatever this is comes again.
    return lowered.compile(compiler_options=options)


def _wide(jaxpr: Jaxpr, target: Target) -> Flags:
    """The options for wide vectors, if there are some and they make the program faster."""
    flags = target.compiler.wide
    return flags if flags and has_wide() and saved(jaxpr) > 0 else {}


def _read(executable: Any, target: Target) -> tuple[int, float | None]:
    """What the text of a program says: the bytes that it takes beside XLA's buffers, and its seconds."""
    profile = target.compiler
    text = executable.as_text() if profile.libraries or profile.estimates else ""
    if not text:
        return 0, None
    # Imported late: a second start compiles nothing.
    from eqsat.backend.cuda_scratch import cuda_scratch_bytes
    from eqsat.backend.hlo import parse
    from eqsat.backend.module_time import estimated_seconds
    from eqsat.backend.scratch import scratch_bytes

    module = parse(text)
    scratch = 0
    if isinstance(profile.libraries, HostLibraries):
        scratch = scratch_bytes(module, profile.libraries)
    elif isinstance(profile.libraries, NvidiaLibraries):
        scratch = cuda_scratch_bytes(module, profile.libraries)
    return scratch, estimated_seconds(module, target.machine) if profile.estimates else None
