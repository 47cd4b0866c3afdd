"""What is known of a compiler: which options tell the truth about memory, and which are fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eqsat.targets.libraries import HostLibraries, NvidiaLibraries

Flags = dict[str, str | bool | int]
"""XLA options by name."""

HONEST = "honest"
"""No values are hidden, and buffers are shared."""

UNORDERED = "honest, in XLA's order"
"""No values are hidden, and ops are in the order of XLA's default scheduler, which at times needs less."""

OWN = "XLA's own"
"""Values may be hidden in fusions: the largest that these can hold is counted."""


@dataclass(frozen=True, eq=False)
class CompilerProfile:
    """A compiler of XLA for one platform.

    **Attributes:**

    - `options`: sets of options by name. There is always the set `HONEST`, under which the compiler's figures
      are true, or exceeded by no more than the scratch memory that is counted beside them.
    - `drafts`: options under which the same buffers are assigned but machine code is made in less time, best
      first. Not every version of the compiler knows all of them. They are for devices that are present.
    - `absent`: options besides, with which the compiler for an absent device counts what it would where the
      device is present.
    - `inexact_draft`: an option of drafts that gathers and scatters differ under.
    - `deepest_draft`: the most operations in one fusion that may be compiled with that option. Beyond, the
      compiler's recursion may overflow the stack, which ends the process. 0: it does not recurse.
    - `wide`: options for programs that are faster with the widest vectors of the processor.
    - `libraries`: those that programs call, if these take memory besides the buffers that the compiler
      counts. On CPU, hidden fusions do too.
    - `reduces_precision`: whether a product computes in less than single precision unless the program asks
      for more.
    - `rules`: the names of shipped files of rules that are for this compiler.
    - `memory_share`: the share of a device's memory that JAX makes available to programs.
    - `refusal`: a pattern of the error by which the compiler refuses a program that exceeds the device's
      memory. Its groups are the size of the temporaries and the unit of that: "37.29", "G". "" if it refuses
      none.
    - `packages`: the extra of eqsat with which this compiler runs where the device is absent.
    - `estimates`: whether the time of a program is better estimated from its compiled text than from what
      planning predicts.
    """

    options: Mapping[str, Flags] = field(default_factory=lambda: {HONEST: {}})
    drafts: tuple[Flags, ...] = ()
    absent: Flags = field(default_factory=dict)
    inexact_draft: str = ""
    deepest_draft: int = 0
    wide: Flags = field(default_factory=dict)
    libraries: HostLibraries | NvidiaLibraries | None = None
    reduces_precision: bool = True
    rules: frozenset[str] = frozenset()
    memory_share: float = 1.0
    refusal: str = ""
    packages: str = ""
    estimates: bool = False
