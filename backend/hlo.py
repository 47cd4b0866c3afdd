"""Reading the text of a compiled program: computations of instructions, with shapes and operands."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass

BITS = re.compile(r"[a-z]+(\d+)")
"""A dtype as XLA writes it: f32, bf16, s8, c64, f8e4m3fn... with its bits."""

ARRAY = re.compile(r"([a-z]\w*)\[([\d,]*)\](?:\{([\d,]*))?")
"""An array in a type: dtype, dimensions, and the minor-to-major order of its dimensions."""

INSTRUCTION = re.compile(r"\s+(ROOT )?%(\S+) = (\(.*?\)|\S+) ([a-z][\w-]*)\((.*?)\)(.*)")
"""An instruction: whether it is the result, name, type, opcode, operands, attributes."""

OPERAND = re.compile(r"%([^\s,()]+)")

HEADER = re.compile(r"(ENTRY )?%(\S+) \(.*\{$")
"""The first line of a computation."""


@dataclass(frozen=True)
class Array:
    """An array's type.

    **Attributes:**

    - `order`: its dimensions from the one that is contiguous in memory to the outermost.
    """

    dtype: str
    shape: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * itemsize(self.dtype)


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    **Attributes:**

    - `results`: its arrays: several if it returns a tuple.
    - `attributes`: the rest of its line.
    - `literal`: the value of a constant, as text.
    """

    name: str
    opcode: str
    results: tuple[Array, ...]
    operands: tuple[str, ...]
    attributes: str
    is_root: bool
    literal: str = ""

    def calls(self) -> tuple[str, ...]:
        """The names of the computations that it executes as such: bodies, branches, fused ones."""
        return tuple(CALLED.findall(self.attributes)) + tuple(
            name for branches in BRANCHES.findall(self.attributes) for name in OPERAND.findall(branches)
        )

    def attribute(self, name: str) -> str:
        """The text of an attribute as `dimensions={1}`, without the braces; empty if there is none."""
        found = re.search(rf"\b{name}=(?:{{([^}}]*)}}|([^,\s]+))", self.attributes)
        return (found[1] or found[2] or "") if found else ""

    def dimensions(self, name: str) -> tuple[int, ...]:
        """The numbers in an attribute."""
        return tuple(int(number) for number in re.findall(r"\d+", self.attribute(name)))


CALLED = re.compile(r"\b(?:calls|body|condition|to_apply|true_computation|false_computation)=%([^\s,}]+)")

BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")


@dataclass(frozen=True)
class Computation:
    """Instructions in the order in which they are scheduled."""

    name: str
    instructions: dict[str, Instruction]


@dataclass(frozen=True)
class HloModule:
    """A compiled program."""

    computations: dict[str, Computation]
    entry: str


def parse(text: str) -> HloModule:
    """Read the text of an optimised HLO module.

    >>> module = parse(
    ...     "ENTRY %main (x: f32[2,3]) -> f32[2] {\\n"
    ...     "  %x = f32[2,3]{1,0} parameter(0)\\n"
    ...     "  ROOT %y = f32[2]{0} reduce(%x), dimensions={1}\\n"
    ...     "}"
    ... )
    >>> y = module.computations[module.entry].instructions["y"]
    >>> y.opcode, y.operands, y.results[0].bytes, y.dimensions("dimensions")
    ('reduce', ('x',), 8, (1,))
    """
    computations: dict[str, Computation] = {}
    entry = ""
    current: dict[str, Instruction] = {}
    for line in text.splitlines():
        if line.startswith(" "):
            found = INSTRUCTION.match(line)
            if found:
                root, name, kind, opcode, operands, attributes = found.groups()
                literal = operands if opcode == "constant" else ""
                found_operands = tuple(OPERAND.findall(operands))
                current[name] = Instruction(
                    name, opcode, arrays(kind), found_operands, attributes, bool(root), literal
                )
        elif line.endswith("{"):
            found = HEADER.match(line)
            if found:
                current = {}
                computations[found[2]] = Computation(found[2], current)
                entry = found[2] if found[1] else entry
    return HloModule(computations, entry)


@functools.cache
def arrays(kind: str) -> tuple[Array, ...]:
    """The arrays in a type: `f32[2,3]{1,0}`, or a tuple of such."""
    return tuple(
        Array(dtype, _numbers(shape), _numbers(order or "")) for dtype, shape, order in ARRAY.findall(kind)
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number)


@functools.cache
def itemsize(dtype: str) -> int:
    """Bytes of an element, at least 1.

    >>> [itemsize(dtype) for dtype in ("f32", "bf16", "pred", "c128", "token")]
    [4, 2, 1, 16, 1]
    """
    found = BITS.match(dtype)
    return max(int(found[1]) // 8, 1) if found else 1
