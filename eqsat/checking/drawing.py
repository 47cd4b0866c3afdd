"""Draws random instances of a statement."""

from __future__ import annotations

import random

import numpy as np

from eqsat.checking.building import IllFormed, NoSuchNumber
from eqsat.checking.conditions import Condition
from eqsat.checking.dtypes import Dtypes, standing
from eqsat.checking.instance import Instance
from eqsat.checking.memberships import constant_names, variable_names
from eqsat.checking.operand_constraints import OperandConstraints
from eqsat.checking.placement import Placement, Placements
from eqsat.checking.sizes import SizeRules, Sizes
from eqsat.checking.statement import Statement, is_slow
from eqsat.checking.typing import Kinds
from eqsat.checking.values import Style, Values

MOST_TRIES = 12


class Drawer:
    """Draws instances of one statement.

    **Arguments:**

    - `violated`: a condition that the statement's rule does not have, and that every instance violates.
    """

    def __init__(self, statement: Statement, violated: Condition | None = None) -> None:
        self.statement = statement
        self.violated = violated
        self.placements = Placements(statement, violated)
        self.constants = constant_names(statement.rule)
        self.slow = is_slow(statement.rule)

    @property
    def possible(self) -> bool:
        """Whether the axes of the statement can be placed at all."""
        return self.placements.possible

    def draw(
        self,
        rng: random.Random,
        kinds: Kinds,
        style: Style,
        special: int | None = None,
        dtypes: Dtypes | None = None,
    ) -> Instance | None:
        """Draws an instance whose left side is well-formed, or returns None if it finds none.

        **Arguments:**

        - `special`: a length that one axis has to have.
        - `dtypes`: the dtypes of the terms; by default, the standard dtype of each kind.
        """
        for attempt in range(MOST_TRIES):
            extra = rng.choice((0, 1) if self.slow else (0, 1, 1, 2))
            placement = self.placements.draw(rng, extra if attempt < 6 else 0)
            if placement is None:
                continue
            # JAX compiles slow statements for each shape, so those draw the same lengths again.
            lengths_rng = random.Random(len(placement.columns)) if self.slow else rng
            # A user's operation may need equal lengths, which its signature can't state.
            rules = SizeRules(self.statement, tuple(sorted(placement.columns)), square=attempt % 2 == 1)
            narrow = "".join(kinds.variables[name] for name in self.constants)
            sizes = rules.draw(lengths_rng, placement, special, self.violated, narrow, tuple(self.constants))
            if sizes is None:
                continue
            instance = self.instance(rng.randrange(2**32), kinds, style, placement, sizes, dtypes)
            try:
                _ = instance.sides
            except NoSuchNumber:
                continue
            except IllFormed as error:
                if not error.of_right:
                    continue
            return instance
        return None

    def instance(
        self,
        seed: int,
        kinds: Kinds,
        style: Style,
        placement: Placement,
        sizes: Sizes,
        dtypes: Dtypes | None = None,
    ) -> Instance:
        """Returns an instance with these axes and lengths, and with values drawn from a seed."""
        dtypes = dtypes or standing(kinds)
        constraints = OperandConstraints(self.statement, placement).by_name
        names = variable_names(self.statement.rule)
        having = [placement.of(name) for name in names if placement.of(name)]
        shared = frozenset.intersection(*having) if having else frozenset()
        values = Values(seed, style, sizes.lengths, dtypes.of_variables, constraints, shared)
        # A right-hand side of `solve` may depend on the matrix, so it is drawn later.
        ordered = sorted(names, key=lambda name: name in constraints and constraints[name].solved is not None)
        drawn = {name: values.draw(name, sorted(placement.of(name))) for name in ordered}
        for name, value in sizes.constants.items():
            drawn[name] = np.asarray(value).astype(drawn[name].dtype)
        return Instance(
            self.statement,
            placement,
            dtypes,
            sizes.lengths,
            drawn,
            frozenset(sizes.constants),
            str(style),
        )
