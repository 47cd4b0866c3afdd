"""Tests facts: draws terms that a fact matches, and tests whether they have its property."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.checking.arithmetic import DtypeArithmetic
from eqsat.checking.conditions import Condition
from eqsat.checking.instance import Instance
from eqsat.checking.matrices import has_property
from eqsat.checking.oracle import PROMISES, Criterion, Failure
from eqsat.checking.regimes import EXAMPLES, Regime, Trial
from eqsat.language.syntax import Fact

Array = np.ndarray[Any, np.dtype[Any]]


class FactTrial(Trial):
    """The trial of a fact: its terms are drawn and judged."""

    def __init__(
        self,
        fact: Fact,
        examples: int = EXAMPLES,
        violated: Condition | None = None,
        seen: frozenset[tuple[tuple[str, str], ...]] = frozenset(),
    ) -> None:
        super().__init__(fact.as_rule(), examples, violated, seen)
        self.fact = fact

    def regimes(self) -> list[Regime]:
        # Matrices whose numbers overflow or underflow don't keep their properties.
        unfit = ("masked", "huge", "hostile") if self.fact.axes else ("masked",)
        return [regime for regime in super().regimes() if regime.style.name not in unfit]

    def judge(self, instance: Instance, criterion: Criterion) -> Failure | None:
        computed = criterion in PROMISES
        value = instance.sides.run(DtypeArithmetic())[0] if computed else instance.sides.evaluate_left()
        axes = sorted(instance.sides.left.axes)
        core = [axes.index(instance.axes[name]) for name in self.fact.axes]
        stacked = np.moveaxis(value, core, range(-len(core), 0)) if core else value
        if core:
            if not np.isfinite(stacked).all():
                return None
        else:
            # A NaN is neither negative nor nonnegative.
            stacked = stacked[~np.isnan(stacked)] if stacked.dtype.kind in "fc" else stacked
        if stacked.dtype.kind == "b":
            stacked = stacked.astype(np.int8)
        if has_property(stacked, self.fact.property) and not (computed and self.negative_zero(stacked)):
            return None
        brackets = f"[{', '.join(self.fact.axes)}]" if core else ""
        return Failure(instance, criterion, f"the term is not `{self.fact.property}{brackets}`", value)

    def negative_zero(self, value: Array) -> bool:
        """Returns whether a value has a -0, which is not nonnegative because its reciprocal isn't."""
        return (
            value.dtype.kind == "f" and not self.fact.axes and bool(np.any(np.signbit(value) & (value == 0)))
        )
