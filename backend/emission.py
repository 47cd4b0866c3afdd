"""`Emission`: all that a module is emitted from but for the names of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eqsat.backend.codegen_options import CodegenOptions
from eqsat.backend.emit import emit
from eqsat.backend.module import Module
from eqsat.planning.blocks import Block, FusedProducts, Relayout, Schedule


@dataclass(frozen=True)
class Emission:
    """The input of the emitter: the arguments of `emit`, as data that can be stored.

    **Attributes:** as the arguments of `emit`.
    """

    schedule: Schedule
    makers: Mapping[int, str]
    updates: int
    codegen: CodegenOptions
    relayouts: Mapping[int, Relayout]
    fused_products: Mapping[Block, tuple[FusedProducts, ...]]
    read_repeatedly: Mapping[Block, frozenset[int]]
    comes_after: Mapping[int, tuple[int, ...]]

    def module(self, names: Sequence[str], pairs: Mapping[int, int]) -> Module:
        """The module.

        **Arguments:**

        - `names`: what to call the inputs.
        - `pairs`: by output, which input's place it may take.
        """
        return emit(
            self.schedule,
            names,
            makers=self.makers,
            pairs=pairs,
            updates=self.updates,
            codegen=self.codegen,
            relayouts=self.relayouts,
            fused_products=self.fused_products,
            read_repeatedly=self.read_repeatedly,
            comes_after=self.comes_after,
        )
