"""Turns an `example` or a `reject` into programs: a rule's left side on variables with the given axes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations, product
from typing import Any

import numpy as np

from eqsat.checking.building import Builder, IllFormed, NoSuchNumber
from eqsat.checking.drawing import Drawer
from eqsat.checking.dtypes import standing
from eqsat.checking.instance import Instance
from eqsat.checking.memberships import ANY, Column, columns, single_axes, variable_names
from eqsat.checking.placement import Placement, required_sets
from eqsat.checking.renaming import renamed
from eqsat.checking.sizes import SizeRules
from eqsat.checking.statement import CORE, Statement
from eqsat.checking.typing import Kinds, kinds_of
from eqsat.checking.values import Style
from eqsat.ir.axis import Axis
from eqsat.ir.operations import OPERATIONS
from eqsat.ir.ops import Const, Leaf, Operation
from eqsat.ir.program import KnownFact, Output, Program
from eqsat.ir.term import Term, Terms
from eqsat.language.rewriting import rewritten
from eqsat.language.syntax import ChunkOf, Comparison, Example, Expression, Rule
from eqsat.language.traverse import walk

Array = np.ndarray[Any, np.dtype[Any]]

MOST_NAMINGS = 60
"""At most this many ways to match the axes of an example with those of the rule are tried."""

MOST_PROGRAMS = 4
"""At most this many programs are made of one example, which may fit the rule in several ways."""


@dataclass(frozen=True)
class Loaded:
    """An example as a program.

    **Attributes:**

    - `arrays`: the values of the program's inputs.
    - `large`: the axes that the rule's guards require to be large or tiled, and those that it chunks.
    - `instance`: the instance that the program was made of.
    """

    program: Program
    arrays: tuple[Array, ...]
    large: tuple[Axis, ...]
    instance: Instance


def programs_of(
    statement: Statement, example: Example, violated: Comparison | None = None
) -> Iterator[Loaded]:
    """Yields the programs that an example may stand for, with the largest sets of axes first.

    **Arguments:**

    - `violated`: a comparison that the statement does not have, and that the programs violate.
    """
    count = 0
    for naming in _namings(statement, example):
        named = replace(statement, rule=renamed(statement.rule, naming))
        broken = None
        if violated is not None:
            (broken,) = renamed(replace(statement.rule, comparisons=(violated,)), naming).comparisons
        for placement in _placements(named, example):
            kinds = kinds_of(named)
            if not kinds:
                continue
            loaded = _loaded(named, placement, kinds[0], broken)
            if loaded is not None:
                yield loaded
                count += 1
            if count == MOST_PROGRAMS:
                return


def drawn_program(statement: Statement) -> Loaded | None:
    """Returns the left side of a statement as a program on axes that are drawn, or None if none is found."""
    kinds = kinds_of(statement)
    instance = Drawer(statement).draw(random.Random(0), kinds[0], Style("normal")) if kinds else None
    return _program(instance) if instance is not None else None


def schema_of(example: Example, variable: str) -> tuple[str, ...]:
    """Returns the axes that an example gives a variable. `a_2` is one of those that `a..` stands for."""
    schemas = dict(example.schemas)
    if variable in schemas:
        return schemas[variable]
    return schemas[variable.rpartition("_")[0]]


def _namings(statement: Statement, example: Example) -> Iterator[dict[str, str]]:
    """Yields the ways to name single axes of a statement after axes of an example."""
    letters = sorted({axis for _, axes in example.schemas for axis in axes})
    rule = statement.rule
    unnamed = [axis for axis in single_axes(rule) if axis not in letters]
    free = [letter for letter in letters if letter not in single_axes(rule)]
    seen = set()
    for count in range(min(len(unnamed), len(free)) + 1):
        for places, chosen in product(permutations(unnamed, count), permutations(free, count)):
            naming = tuple(sorted(zip(places, chosen, strict=True)))
            if naming in seen:
                continue
            seen.add(naming)
            if len(seen) > MOST_NAMINGS:
                return
            yield dict(naming)


def _placements(statement: Statement, example: Example) -> Iterator[Placement]:
    """Yields the placements of the axes that agree with the example.

    The example says which variables have an axis. The sets may have it wherever the left side allows that.
    Placements that fulfil the rule's conditions come first.
    """
    rule = statement.rule
    letters = sorted({axis for _, axes in example.schemas for axis in axes} | set(single_axes(rule)))
    terms = variable_names(rule)
    options: list[list[Column]] = []
    for letter in letters:
        given = _given(rule, example, letter, terms)
        axis = letter if letter in single_axes(rule) else ANY
        found = columns(statement, axis, conditions=False, given=given)
        agreeing = columns(statement, axis, conditions=True, given=given)
        found = [*agreeing, *(column for column in found if column not in agreeing)]
        found.sort(key=lambda column: (column not in agreeing, -sum(column.values())))
        options.append(found)
    # Sets that are reduced over can't be empty. The engine checks `nonempty` itself.
    needed = required_sets(replace(rule, guards=()))
    for chosen in islice(product(*options), MOST_NAMINGS):
        placement = Placement(dict(zip(letters, chosen, strict=True)))
        if all(placement.of(name) for name in needed):
            yield placement


def _given(rule: Rule, example: Example, letter: str, terms: Sequence[str]) -> dict[str, bool]:
    """Returns which variables have an axis according to an example."""
    if letter.endswith(CORE):
        return {}  # examples don't mention core axes
    given = {name: letter in schema_of(example, name) for name in terms}
    if any(guard.name == "accumulates" and guard.operands[1] == letter for guard in rule.guards):
        given[terms[0]] = False  # the array that is accumulated into lacks the axis
    return given


def _loaded(
    statement: Statement, placement: Placement, kinds: Kinds, violated: Comparison | None
) -> Loaded | None:
    drawer = Drawer(statement)
    rng = random.Random(0)
    axes = tuple(sorted(placement.columns))
    constants = tuple(drawer.constants)
    kinds_of_constants = "".join(kinds.variables[name] for name in constants)
    sizes = SizeRules(statement, axes).draw(rng, placement, None, violated, kinds_of_constants, constants)
    if sizes is None and violated is None:
        # No lengths fulfil the comparisons. A `reject` may not depend on them, so draw any lengths.
        free = replace(statement, rule=replace(statement.rule, comparisons=()))
        sizes = SizeRules(free, axes).draw(rng, placement, None, None, kinds_of_constants, constants)
    if sizes is None:
        return None
    try:
        instance = drawer.instance(0, kinds, Style("normal"), placement, sizes)
        return _program(instance)
    except (IllFormed, NoSuchNumber):
        return None


def _program(instance: Instance) -> Loaded:
    """Returns the left side of an instance without its chunks, with the known properties of its variables."""
    statement = instance.statement
    rule = statement.rule
    left = rewritten(rule.left, _whole)
    # Kinds belong to nodes by identity, so they are inferred again for the new left side.
    bare = replace(statement, rule=replace(rule, left=left))
    kinds = next(k for k in kinds_of(bare) if dict(k.variables) == dict(instance.kinds.variables))
    dtypes = standing(kinds)
    terms = Terms()
    leaves: dict[str, Term] = {}
    inputs: list[Term] = []
    arrays: list[Array] = []
    called = {guard.operands[0] for guard in rule.guards if guard.name == "called"}
    for name in variable_names(rule):
        value, dtype = instance.values[name], dtypes.of_variable(name)
        if name in instance.constants:
            leaves[name] = terms.make(Const(repr(value.item()), dtype))
            continue
        layout = tuple(instance.axes[axis] for axis in instance.axes_of(name))
        dtype = str(value.dtype) if value.dtype.kind == "i" and dtype == "int8" else dtype
        leaves[name] = terms.make(Leaf(len(arrays), layout, dtype))
        inputs.append(leaves[name])
        arrays.append(value)
        if name in called and layout:  # has to be the result of an operation
            reverse = Operation(OPERATIONS["reverse"], layout[:1], dtype)
            leaves[name] = terms.make(reverse, [leaves[name]])
    builder = Builder(bare, instance.placement, instance.axes, leaves, dtypes, terms)
    root = builder.build(left, dtypes.of(left), matching=True)
    facts = tuple(
        KnownFact(known.name, leaves[known.term], tuple(instance.axes[axis] for axis in known.axes))
        for known in rule.properties
        if set(known.axes) <= instance.placement.of(known.term)
    )
    output = Output(root, tuple(sorted(root.axes)))
    program = Program(tuple(inputs), (output,), terms, facts=facts)
    names = {guard.operands[0] for guard in rule.guards if guard.name in ("large", "tiled")}
    names |= {node.axis for node in walk(rule.left) if isinstance(node, ChunkOf)}
    large = tuple(
        instance.axes[axis] for name in sorted(names) for axis in sorted(instance.placement.of(name))
    )
    return Loaded(program, tuple(arrays), large, instance)


def _whole(node: Expression) -> Expression | None:
    return _stripped(node.operand) if isinstance(node, ChunkOf) else None


def _stripped(node: Expression) -> Expression:
    return _stripped(node.operand) if isinstance(node, ChunkOf) else node
