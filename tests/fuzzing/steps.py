"""Adds lines to random programs. Each line comes from a template, and is dropped if JAX refuses it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.fuzzing.text import Text, Value

NUMBERS = ("0", "1", "2", "-1", "0.5", "1.7", "3", "-0.1", "1e4", "1e-3", "jnp.inf", "-0.0")

TURNS = (
    "c * 2",
    "-c",
    "jnp.maximum(c, 1)",
    "jnp.sin(c)",
    "c - 1",
    "jnp.sort(c)",
    "c / 3",
    "jnp.where(c > 1, c - 1, c)",
    "c[::-1]",
    "jnp.abs(c) + 1",
    "jnp.cumsum(c)",
)
DTYPES = (
    "jnp.float32",
    "jnp.float16",
    "jnp.bfloat16",
    "jnp.int8",
    "jnp.int32",
    "jnp.uint8",
    "jnp.uint32",
    "jnp.int16",
    "jnp.bool_",
    "jnp.uint16",
)
DOUBLE = ("jnp.float64", "jnp.int64", "jnp.uint64", "jnp.float32", "jnp.int32")


def _lines(*names: str) -> tuple[str, ...]:
    """Reads templates from the files of these names."""
    folder = Path(__file__).parent / "lines"
    return tuple(line for name in names for line in (folder / f"{name}.txt").read_text().splitlines())


ELEMENTWISE = {kind: _lines(kind) for kind in ("float", "int", "bool", "complex")}
PAIRS = {
    "float": _lines("pairs_float"),
    "int": _lines("pairs_int"),
    "bool": _lines("pairs_bool"),
    "complex": _lines("pairs_complex"),
}
REDUCTIONS = {
    "float": _lines("rounding", "selecting", "selecting"),
    "int": _lines("reductions_int", "reductions_int", "selecting"),
    "bool": _lines("reductions_bool"),
    "complex": _lines("reductions_complex"),
}
ANY = {kind: _lines(kind) for kind in ("along", "movement", "control", "random")}


class Steps:
    """Adds random lines to a program."""

    def __init__(self, text: Text, rng: np.random.Generator) -> None:
        self.text, self.rng = text, rng

    def pick(self, choices: Sequence[str]) -> str:
        return choices[int(self.rng.integers(len(choices)))]

    def often(self, choices: Sequence[str], first: int) -> str:
        """Draws a choice; half of the time, one of the first few, which occur in identities."""
        return self.pick(choices[:first] if self.rng.random() < 0.5 else choices)

    def filled(self, template: str, x: str, value: Value, y: str = "", y_value: Value | None = None) -> str:
        rank = len(value.shape)
        dtypes = DOUBLE if self.text.double and self.rng.random() < 0.5 else DTYPES
        axis = str(int(self.rng.integers(rank))) if rank else "None"
        last = value.shape[-1] if rank else 1
        keys = [v.name for v in self.text.values if v.kind == "key" and v.shape == ()]
        key = self.pick(keys) if keys else f"jax.random.key({int(self.rng.integers(9))})"
        fields = {
            "x": x,
            "y": y,
            "c": self.pick(NUMBERS),
            "d": self.pick(dtypes),
            "a": self.pick((axis, axis, axis, "None")),
            "o": axis,
            "n": str(last),
            "s": str(tuple(value.shape) if rank > 1 else (60, last)),
            "k": key,
            "t": self.pick(TURNS),
            "p": f"jnp.arange({value.elements}).reshape{value.shape}",
        }
        return template.format(**fields)

    def latest(self, most: int | None = None) -> Value:
        """Draws a value with at most so many elements, mostly one of the last few."""
        values = [v for v in self.text.values if v.kind != "key" and (most is None or v.elements <= most)]
        reach = int(self.rng.choice([1, 1, 1, 3, len(values)]))
        return values[int(self.rng.integers(min(reach, len(values))))]

    def elementwise(self) -> bool:
        value = self.latest()
        return self.text.add(self.filled(self.pick(ELEMENTWISE[value.kind]), value.name, value)) is not None

    def pairs(self, wide: bool = False) -> bool:
        """Adds a binary function of two values, entry by entry or over all pairs of entries or rows."""
        values = [v for v in self.text.values if v.kind != "key"]
        x = self.latest()
        others = [v for v in values if v.kind == x.kind and (v.dtype == x.dtype or self.rng.random() < 0.2)]
        y = others[int(self.rng.integers(len(others)))]
        if x.dtype != y.dtype and "float16" in f"{x.dtype}{y.dtype}":
            return False
        left, right = x.name, y.name
        if wide or self.rng.random() < 0.5:
            if len(x.shape) == len(y.shape) == 2 and x.shape[-1] == y.shape[-1] and self.rng.random() < 0.7:
                left, right = f"{left}[:, None]", f"{right}[None]"
            elif x.shape and y.shape:
                left = f"{left}[..., {', '.join(['None'] * len(y.shape))}]"
        template = self.often(PAIRS[x.kind], 4)
        return self.text.add(self.filled(template, left, x, right, y)) is not None

    def reduction(self) -> bool:
        value = self.latest()
        if not value.shape:
            return False
        return (
            self.text.add(self.filled(self.often(REDUCTIONS[value.kind], 3), value.name, value)) is not None
        )

    def contraction(self) -> bool:
        x = self.latest()
        others = [v for v in self.text.values if v.dtype == x.dtype and v.shape]
        if not x.shape or not others or x.kind == "bool":
            return False
        y = others[int(self.rng.integers(len(others)))]
        if max(len(x.shape), len(y.shape)) > 3:
            return False
        left, right, free = "abc"[: len(x.shape)], "", "pqr"
        lengths = dict(zip(left, x.shape, strict=True))
        for place, length in enumerate(y.shape):
            shared = [a for a in left if lengths[a] == length and a not in right]
            right += self.pick([*shared, free[place]])
        summed = {a for a in left if a in right and self.rng.random() < 0.6}
        out = "".join(self.rng.permutation([a for a in dict.fromkeys(left + right) if a not in summed]))
        return self.text.add(f'jnp.einsum("{left},{right}->{out}", {x.name}, {y.name})') is not None

    def other(self, kind: str) -> bool:
        value = self.latest()
        if not value.shape and kind != "random":
            return False
        return self.text.add(self.filled(self.pick(ANY[kind]), value.name, value)) is not None

    def step(self) -> None:
        """Adds a line, in at most five attempts."""
        kinds = ["elementwise"] * 4 + ["pairs"] * 4 + ["reduction"] * 3 + ["contraction"] * 2
        kinds += ["along"] * 2 + ["movement"] * 2 + ["control", "random"]
        for _ in range(5):
            kind = self.pick(kinds)
            made = self.other(kind) if kind in ANY else getattr(self, kind)()
            if made:
                return

    def probed(self) -> None:
        """Combines all bits of the last value by xor, so that a change of any bit shows. NaNs count as 0."""
        value = self.text.values[0]
        if value.kind != "float" or not value.shape:
            return
        numbers = f"jnp.where(jnp.isnan({value.name}), 0, {value.name})"
        bits = f"lax.bitcast_convert_type({numbers}, jnp.int{8 * value.dtype.itemsize})"
        axis = int(self.rng.integers(len(value.shape)))
        self.text.add(f"jnp.bitwise_xor.reduce({bits}, axis={axis})")

    def reduced(self) -> None:
        """Reduces the last value until it has at most 600 elements."""
        for _ in range(12):
            value = self.text.values[0]
            if value.elements <= 600:
                return
            self.reduction()
        value = self.text.values[0]
        if value.elements > 600 and value.kind != "key":
            self.text.add(
                f"jnp.max({value.name}, {int(np.argmax(value.shape))})"
                if value.kind != "complex"
                else f"jnp.sum({value.name})"
            )
