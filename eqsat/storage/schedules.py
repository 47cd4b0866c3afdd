"""Writes and reads emissions (schedules from which modules are emitted) as JSON data.

A schedule refers to the primitives that its function calls, which are objects of JAX. Each is written as the
position of a call in the lowered function. The reader lowers the function again and finds the same call.

Data that is read is checked: the program must be well-formed (`eqsat.ir.spec`), its texts must be single
words, and its chunk lengths must be valid. So whatever a file says, the source emitted from it can call only
what a program of the IR can call.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import jax

from eqsat.backend.emission import Emission
from eqsat.ir.axis import Axis, Layout
from eqsat.ir.control import Body, Control, Switch
from eqsat.ir.magnitudes import MAGNITUDES, magnitude
from eqsat.ir.operations import OperationSpec, Signature, known_operation
from eqsat.ir.ops import Call, Op, Opaque
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program
from eqsat.ir.term import Term, Terms, reachable
from eqsat.planning.blocks import Block, Compute, Loop
from eqsat.support.serialisation import Codec, Plain, Special

WORD = re.compile(r"\(?[\w.<>+-]*\)?", re.ASCII)
"""The texts allowed in a schedule: a name, a dtype, a number, or a complex number in parentheses."""


class Unstorable(Exception):
    """A schedule contains a value that cannot be written as data, such as a function or an object of JAX."""


@dataclass(frozen=True)
class StoredTerm:
    """A term, with its operands by number."""

    number: int
    op: Op
    args: tuple[int, ...]


@dataclass(frozen=True)
class StoredCall:
    """A call.

    **Attributes:**

    - `origin`: the position of the function's call that it is or derives from; None for the choice between
      branches of a program that tests its data.
    """

    origin: int | None
    id: int
    arg_layouts: tuple[Layout, ...]
    out_layouts: tuple[Layout, ...]
    out_dtypes: tuple[str, ...]
    passing: frozenset[Axis]
    accumulates: frozenset[Axis]
    sums: frozenset[Axis]
    control: Control | None
    bodies: tuple[Body, ...]


@dataclass(frozen=True)
class StoredProgram:
    """A program, or the body of a call."""

    inputs: tuple[Term, ...]
    outputs: tuple[Output, ...]
    aliased: int
    alike: tuple[Term, ...]


@dataclass(frozen=True)
class StoredBlock:
    """A block."""

    steps: tuple[Compute | Loop, ...]
    needs: tuple[Term, ...]
    apart: frozenset[int]


StoredPart = StoredTerm | StoredCall | StoredProgram | StoredBlock


def written(emission: Emission, program: Program) -> Plain:
    """An emission as data.

    **Arguments:**

    - `program`: the function as it was lowered.

    **Raises:** `Unstorable` if the emission contains a value that cannot be written as data.
    """
    try:
        return _Writer(program).stored(emission)
    except TypeError as error:
        raise Unstorable(str(error)) from error


def read(plain: Plain, program: Program) -> Emission:
    """The emission in data by `written`, for the same function, lowered again.

    **Raises:** `ValueError`, `TypeError`, `LookupError` or `EqsatError` for any other data.
    """
    return _Reader(program).emission(plain)


def _calls_of(program: Program) -> list[Call]:
    """The calls of a function, in an order fixed by the function."""
    found: dict[int, Call] = {}
    seen: set[Program] = set()
    stack = [program]
    while stack:
        inner = stack.pop(0)
        if inner not in seen:
            seen.add(inner)
            for term in inner.known():
                if isinstance(term.op, Opaque) and id(term.op.call.params) not in found:
                    found[id(term.op.call.params)] = term.op.call
                    stack += [body.program for body in term.op.call.bodies]
    return list(found.values())


class _Writer:
    """Writes the parts of a schedule, each before its first use."""

    def __init__(self, program: Program) -> None:
        self.origins = {id(call.params): place for place, call in enumerate(_calls_of(program))}
        self.parts: list[Plain] = []
        self.terms: Terms | None = None
        self.numbers: set[int] = set()
        self.places: dict[int, int] = {}  # by the id of a call, a program or a block
        self.kept: list[Any] = []  # keeps the ids of these objects from being reused
        self.counts = {"call": 0, "program": 0, "block": 0}
        special = {
            Axis: Special(lambda axis: f"{axis.id}:{axis.size}", _nothing),
            Term: Special(self.term, _nothing),
            Call: Special(self.call, _nothing),
            Program: Special(self.program, _nothing),
            Block: Special(self.block, _nothing),
            OperationSpec: Special(lambda spec: self.codec.write(Signature, spec.signature), _nothing),
        }
        self.codec = Codec(special, {"Program": Program})

    def stored(self, emission: Emission) -> Plain:
        main = self.codec.write(Emission, emission)
        return {"parts": self.parts, "emission": main}

    def term(self, term: Term) -> Plain:
        for one in reachable([term]):
            if one.number not in self.numbers:
                self.numbers.add(one.number)
                self._add(StoredTerm(one.number, one.op, tuple(arg.number for arg in one.args)))
        return term.number

    def call(self, call: Call) -> Plain:
        def stored() -> StoredCall:
            origin = self.origins.get(id(call.params))
            if origin is None and not (call.primitive is jax.lax.cond_p and not call.params):
                raise Unstorable(f"{call.primitive} with parameters of its own")
            names = [field.name for field in fields(StoredCall)][1:]
            return StoredCall(origin, *(getattr(call, name) for name in names))

        return self._once("call", call, stored)

    def program(self, program: Program) -> Plain:
        if self.terms is None:
            self.terms = program.terms
        if program.terms is not self.terms:
            raise Unstorable("terms of several tables")
        return self._once(
            "program",
            program,
            lambda: StoredProgram(program.inputs, program.outputs, program.aliased, program.alike),
        )

    def block(self, block: Block) -> Plain:
        return self._once("block", block, lambda: StoredBlock(block.steps, block.needs, block.apart))

    def _once(self, kind: str, value: Any, stored: Callable[[], StoredPart]) -> int:
        if id(value) not in self.places:
            self.kept.append(value)
            self._add(stored())
            self.places[id(value)] = self.counts[kind]
            self.counts[kind] += 1
        return self.places[id(value)]

    def _add(self, part: StoredPart) -> None:
        # Writing a part adds the parts that it refers to first.
        self.parts.append(self.codec.write(StoredPart, part))


class _Reader:
    """Reads the parts of a schedule, in order."""

    def __init__(self, program: Program) -> None:
        self.calls_of_function = _calls_of(program)
        self.table = Terms()
        self.terms: dict[int, Term] = {}
        self.calls: list[Call] = []
        self.programs: list[Program] = []
        self.blocks: list[Block] = []
        self.bodies: dict[tuple[int, ...], tuple[Block, ...]] = {}
        special = {
            str: Special(_nothing, _word),
            Axis: Special(_nothing, _axis),
            Term: Special(_nothing, lambda number: self.terms[_number(number)]),
            Call: Special(_nothing, lambda place: self.calls[_number(place)]),
            Program: Special(_nothing, lambda place: self.programs[_number(place)]),
            Block: Special(_nothing, lambda place: self.blocks[_number(place)]),
            tuple[Block, ...]: Special(_nothing, self._bodies),
            OperationSpec: Special(_nothing, lambda plain: _operation(self.codec.read(Signature, plain))),
        }
        self.codec = Codec(special, {"Program": Program})

    def emission(self, plain: Plain) -> Emission:
        if not isinstance(plain, dict) or not isinstance(plain["parts"], list):
            raise ValueError("no schedule")
        for part in plain["parts"]:
            self._add(self.codec.read(StoredPart, part))
        emission: Emission = self.codec.read(Emission, plain["emission"])
        schedule = emission.schedule
        check_program(schedule.program)
        for loop in schedule.block.loops:
            if not loop.shortest <= schedule.chunks[loop.id] <= loop.axis.size:
                raise ValueError(f"{schedule.chunks[loop.id]} is no length of chunks of {loop.axis}")
        return emission

    def _add(self, part: StoredPart) -> None:
        match part:
            case StoredTerm(number=number, op=op, args=args):
                if number in self.terms:
                    raise ValueError(f"two terms have the number {number}")
                self.terms[number] = self.table.restore(number, op, [self.terms[arg] for arg in args])
            case StoredCall(origin=origin):
                self.calls.append(self._call(part, origin))
            case StoredProgram():
                program = Program(
                    part.inputs, part.outputs, self.table, aliased=part.aliased, alike=part.alike
                )
                self.programs.append(program)
            case StoredBlock():
                self.blocks.append(Block(part.steps, part.needs, part.apart))

    def _call(self, part: StoredCall, origin: int | None) -> Call:
        rest = [getattr(part, field.name) for field in fields(StoredCall)][2:]
        if origin is None:
            if not isinstance(part.control, Switch):
                raise ValueError("a call of nothing")
            return Call(part.id, jax.lax.cond_p, {}, *rest)
        was = self.calls_of_function[_number(origin)]
        return Call(part.id, was.primitive, was.params, *rest)

    def _bodies(self, plain: Plain) -> tuple[Block, ...]:
        """The blocks of a call's bodies, as one tuple shared by all of its results."""
        if not isinstance(plain, list):
            raise ValueError(f"{plain!r} are no blocks")
        places = tuple(map(_number, plain))
        return self.bodies.setdefault(places, tuple(self.blocks[place] for place in places))


def _operation(signature: Signature) -> OperationSpec:
    if signature.name in MAGNITUDES:
        return magnitude(signature)
    spec = known_operation(signature.name)
    if spec is None or spec.signature != signature:
        raise ValueError(f"there is no operation {signature}")
    return spec


def _word(plain: Plain) -> str:
    if not isinstance(plain, str) or not WORD.fullmatch(plain):
        raise ValueError(f"{plain!r} is no word")
    return plain


def _axis(plain: Plain) -> Axis:
    if not isinstance(plain, str):
        raise ValueError(f"{plain!r} is no axis")
    number, size = map(int, plain.split(":"))
    if number < 0 or size < 0:
        raise ValueError(f"{plain!r} is no axis")
    return Axis(number, size)


def _number(plain: Plain) -> int:
    """The number of a term, or a nonnegative position in a list."""
    if type(plain) is not int or plain < 0:
        raise ValueError(f"{plain!r} is no place")
    return plain


def _nothing(value: Any) -> Any:
    raise AssertionError(value)
