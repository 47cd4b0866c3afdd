"""The lines that random programs are made of. Each is a template that JAX takes or refuses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.fuzzing.text import Text, Value

NUMBERS = ("0", "1", "2", "-1", "0.5", "1.7", "3", "-0.1", "1e4", "1e-3", "jnp.inf", "-0.0")

FLOAT = """
-{x} | jnp.abs({x}) | jnp.sin({x}) | jnp.cos({x}) | jnp.exp({x}) | jnp.exp(-{x}**2) | jnp.log({x}) | jnp.sqrt({x}) | lax.rsqrt({x})
jnp.tanh({x}) | jnp.floor({x}) | jnp.round({x}) | jnp.sign({x}) | {x}**3 | {x}**2 | {x}**-1 | 1 / {x} | {x} * {c} | {x} / {c} | {x} + {c} | {c} - {x}
jnp.maximum({x}, {c}) | jnp.minimum({x}, {c}) | jnp.clip({x}, -1, 1.5) | jax.nn.relu({x}) | jax.nn.sigmoid({x}) | jnp.where({x} > {c}, {x}, {c})
jnp.expm1({x}) | jnp.log1p({x}) | jnp.isnan({x}) | jnp.isfinite({x}) | jnp.signbit({x}) | jnp.nan_to_num({x}) | jnp.where(jnp.isnan({x}), 0, {x})
jnp.abs({x}) + jnp.abs({x}) | {x} - {x} | {x} / jnp.abs({x}) | jax.nn.softplus({x}) | jax.nn.gelu({x}) | jnp.arctan({x}) | {x} % 3 | {x} == {c}
{x} - lax.stop_gradient({x}) | jnp.sqrt({x}**2) | jnp.log(jnp.exp({x})) | -(-{x}) | ({x} * 2) / 2 | jnp.exp2({x}) | {x}.astype({d})
lax.bitcast_convert_type({x}, jnp.dtype(f"int{{jnp.dtype({x}.dtype).itemsize * 8}}")) | lax.nextafter({x}, {x} * 0) | lax.reduce_precision({x}, 5, 7)
"""
INT = """
-{x} | jnp.abs({x}) | ~{x} | {x} * 3 | {x} + 7 | {x} // 3 | {x} % 5 | {x} >> 1 | {x} << 2 | lax.population_count({x}) | lax.clz({x})
jnp.sign({x}) | {x}**2 | {x}**3 | jnp.maximum({x}, 0) | jnp.minimum({x}, 2) | jnp.clip({x}, 0, 3) | jnp.where({x} > 2, {x}, 1) | {x} == 1 | {x} != 0
{x}.astype({d}) | {x}.astype({d}) | {x} - {x} | ({x} * 2) // 2 | jnp.abs(-{x}) | {x} & 12 | {x} ^ 85 | {x} | 1 | {x} / 2 | jnp.sqrt(jnp.abs({x}))
"""
BOOL = """
~{x} | {x}.astype({d}) | {x}.astype({d}) | jnp.where({x}, 1.5, -0.0) | jnp.where({x}, jnp.nan, 2) | {x} & ~{x} | jnp.where({x}, -jnp.inf, 0.0)
"""
COMPLEX = """
-{x} | jnp.conj({x}) | {x}.real | {x}.imag | jnp.abs({x}) | {x} * {x} | jnp.exp({x}) | {x} * 2 | {x} + 1j | jnp.angle({x})
"""
PAIR_FLOAT = """
{x} + {y} | {x} - {y} | {x} * {y} | {x} / {y} | ({x} - {y})**2 | jnp.maximum({x}, {y}) | jnp.minimum({x}, {y}) | jnp.where({x} < {y}, {x}, {y})
jnp.arctan2({x}, {y}) | jnp.copysign({x}, {y}) | jnp.abs({x} - {y}) | jnp.exp(-jnp.abs({x} - {y})) | {x} > {y} | {x} == {y} | {x} >= {y} | jnp.hypot({x}, {y})
{x} * {y} + {x} | -({x} - {y}) | -({x} * {y}) | jnp.sin({x} * {y}) | jnp.logaddexp({x}, {y}) | lax.rem({x}, {y}) | {x} / (1 + jnp.abs({y}))
({x} - {y}) / 3 | (2 * {x} - {y}) * 0.5 | jnp.exp({x}) * jnp.exp({y}) | jnp.sqrt({x}) * jnp.sqrt({y}) | jnp.log({x}) + jnp.log({y}) | lax.nextafter({x}, {y})
jnp.exp({x} - {y}) | {x}**2 + {y}**2 - 2 * {x} * {y} | ({x} + {y}) * ({x} - {y}) | jnp.power(jnp.abs({x}), {y}) | jnp.heaviside({x}, {y})
"""
PAIR_INT = """
{x} + {y} | {x} - {y} | {x} * {y} | {x} // {y} | {x} % {y} | jnp.maximum({x}, {y}) | jnp.minimum({x}, {y}) | {x} & {y} | {x} | {y} | {x} ^ {y} | {x} < {y}
{x} == {y} | jnp.abs({x} - {y}) | ({x} - {y})**2 | lax.shift_left({x}, {y}) | lax.shift_right_arithmetic({x}, {y}) | jnp.gcd({x}, {y}) | ({x} - {y}).astype({d})
-({x} * {y}) | ({x} > {y}).astype({d}) | jnp.where({x} > {y}, {x}, {y}) | {x} * {y} - {x} | jnp.sign({x} - {y}) * jnp.abs({x} - {y})
"""
PAIR_BOOL = """
{x} & {y} | {x} | {y} | {x} ^ {y} | {x} != {y} | {x} >= {y}
"""
ROUNDING = """
jnp.sum({x}, {a}) | jnp.mean({x}, {a}) | jnp.var({x}, {a}) | jnp.std({x}, {a}) | jax.nn.logsumexp({x}, {a}) | jnp.linalg.norm({x}, axis={o}) | jnp.prod({x}, {a})
jnp.sum({x}**2, {a}) | jnp.sqrt(jnp.sum({x}**2, {a})) | jnp.sum(jnp.abs({x}), {a}) | jnp.sum({x} * {c}, {a}) | jnp.sum(-{x}, {a}) | jnp.sum({x} / 3, {a})
lax.reduce_sum({x}, ({o},)) | jnp.sum(jnp.where({x} > 0, {x}, 0), {a}) | jnp.nanmean({x}, {a}) | jnp.average({x}, {o}) | jnp.log(jnp.sum(jnp.exp({x}), {a}))
"""
SELECTING = """
jnp.max({x}, {a}) | jnp.min({x}, {a}) | jnp.max(jnp.abs({x}), {a}) | -jnp.max(-{x}, {a}) | jnp.ptp({x}, {a}) | jnp.argmax({x}, {o}) | jnp.argmin({x}, {o})
jnp.any({x} > 0, {a}) | jnp.all({x} >= 0, {a}) | jnp.sum({x} > 0, {a}) | jnp.count_nonzero({x}, {a}) | jnp.any(jnp.isnan({x}), {a}) | jnp.nanmax({x}, {a})
jnp.max({x} * 2, {a}) | jnp.max({x} + 3, {a}) | jnp.min({x} / 3, {a}) | jnp.sum(({x} > 0).astype(jnp.int8), {a}, dtype=jnp.int8) | jnp.median({x}, {o})
jnp.argmax(-{x}, {o}) | jnp.max(jnp.where({x} > 1, {x}, -jnp.inf), {a}) | lax.top_k({x}, 2)[0] | lax.top_k({x}, 3)[1] | jnp.argsort({x}, {o})[..., :1]
jnp.sort({x}, {o})[..., -2:] | jnp.argmax(jnp.abs({x}), {o}) | jnp.min(jnp.where({x} == jnp.max({x}), 1, 2), {a})
"""
INT_REDUCTION = """
jnp.sum({x}, {a}) | jnp.sum({x}, {a}, dtype={x}.dtype) | jnp.prod({x}, {a}) | jnp.prod({x}, {a}, dtype={x}.dtype) | jnp.bitwise_xor.reduce({x}, axis={o}) | jnp.mean({x}, {a})
jnp.bitwise_or.reduce({x}, axis={o}) | jnp.abs(jnp.sum({x}, {a}, dtype={x}.dtype)) | jnp.maximum(jnp.sum({x}, {a}, dtype={x}.dtype), 0) | jnp.sum({x} * 3, {a}, dtype={x}.dtype)
"""
BOOL_REDUCTION = """
jnp.any({x}, {a}) | jnp.all({x}, {a}) | jnp.sum({x}, {a}) | jnp.argmax({x}, {o}) | jnp.sum({x}.astype({d}), {a}, dtype={d}) | jnp.mean({x}, {a})
"""
COMPLEX_REDUCTION = """
jnp.sum({x}, {a}) | jnp.mean({x}, {a}) | jnp.abs(jnp.sum({x}, {a})) | jnp.max(jnp.abs({x}), {a})
"""
ALONG = """
jnp.sort({x}, {o}) | jnp.argsort({x}, {o}) | jnp.cumsum({x}, {o}) | lax.cummax({x}, {o}) | lax.cummin({x}, {o}) | jax.nn.softmax({x}, {o}) | jax.nn.log_softmax({x}, {o})
lax.sort(({x}, {p}), dimension={o}, num_keys=1)[1] | lax.sort(({x}, jnp.sin({x})), dimension={o}, num_keys=1)[1] | {x} - jnp.max({x}, {o}, keepdims=True)
{x} / jnp.sum({x}, {o}, keepdims=True) | {x} - jnp.mean({x}, {o}, keepdims=True) | jnp.where({x} == jnp.max({x}, {o}, keepdims=True), {x}, 0) | jnp.diff({x}, axis={o})
lax.cumlogsumexp({x}, {o}) | jnp.cumprod({x}, {o}) | {x} * jax.nn.softmax({x}, {o}) | jnp.flip({x}, {o}) | jnp.roll({x}, 3, {o}) | lax.associative_scan(jnp.maximum, {x}, axis={o})
"""
MOVEMENT = """
{x}.T | {x}.reshape(-1) | {x}[::-1] | {x}[..., ::2] | {x}[1:] | jnp.pad({x}, 1) | jnp.concatenate([{x}, {x}], {o}) | jnp.stack([{x}, {x}], -1) | jnp.tile({x}, 2)
jnp.repeat({x}, 2, {o}) | jnp.swapaxes({x}, 0, -1) | {x}[..., None] | jnp.expand_dims({x}, 0) | jnp.take({x}, jnp.arange(7) * 3 % 5, {o}) | {x}[..., jnp.argsort({x}.reshape(-1)[:{n}])]
jnp.zeros_like({x}).at[..., 1].set({x}[..., 0]) | {x}.at[0].add(1) | jnp.tril({x}) | jnp.roll({x}, 1) | jnp.where(jnp.arange({n}) < 3, {x}, 0) | jnp.diag({x}) | jnp.moveaxis({x}, 0, -1)
jax.ops.segment_sum({x}, jnp.arange({x}.shape[0]) % 5, 5) | jax.ops.segment_max({x}, jnp.arange({x}.shape[0]) % 3, 4) | jnp.zeros((7,), {x}.dtype).at[jnp.arange({n}) % 7].max({x})
lax.dynamic_slice_in_dim({x}, 1, 2, 0) | {x}.reshape({x}.shape[0], -1, 2) | jnp.take_along_axis({x}, jnp.argmax({x}, {o}, keepdims=True), {o}) | jnp.searchsorted(jnp.sort({x}), {x})
"""
RANDOM = """
jax.random.normal({k}, {s}) | jax.random.uniform({k}, {s}) | jax.random.bits({k}, {s}) | jax.random.randint({k}, {s}, -3, 90) | jax.random.bernoulli({k}, 0.3, {s})
jax.random.exponential({k}, {s}) | jax.random.gumbel({k}, {s}) | jax.random.permutation({k}, {n}) | jax.random.laplace({k}, {s}) | jax.random.rademacher({k}, {s})
jax.vmap(lambda i: jax.random.normal(jax.random.fold_in({k}, i), ({n},)))(jnp.arange(60)) | jax.vmap(lambda q: jax.random.uniform(q, ({n},)))(jax.random.split({k}, 50))
jax.random.permutation({k}, jnp.arange(60 * {n}).reshape(60, {n}), axis=1, independent=True) | jax.random.truncated_normal({k}, -1, 1, {s}) | jax.random.cauchy({k}, {s})
"""
CONTROL = """
repeat(3, lambda c: {t}, {x}) | repeat(0, lambda c: {t}, {x}) | lax.scan(lambda c, x: ({t}, c), {x}[0], {x})[0] | lax.scan(lambda c, x: ({t}, c), {x}[0], {x})[1]
lax.map(lambda c: {t}, {x}) | lax.map(lambda c: (c[:, None] - c).max(1), {x}) | lax.cond({x}.reshape(-1)[0] > 0, lambda c: {t}, lambda c: c, {x}) | jax.vmap(lambda c: {t})({x})
until(lambda c: jnp.any(c > 0), lambda c: {t}, {x}) | jax.vmap(lambda c: until(lambda d: jnp.any(d > 1), lambda c: {t}, c))({x}) | jax.checkpoint(lambda c: {t})({x})
lax.scan(lambda c, x: (jnp.maximum(c, x), x.sum()), {x}[0], {x}, reverse=True)[1] | repeat(2, lambda c, k={x}[:, None] - {x}: (k * c).max(1), {x})
lax.scan(lambda c, i: (c + jax.random.normal(jax.random.fold_in(jax.random.key(3), i), c.shape, c.dtype), c.max()), {x}, jnp.arange(3))[1]
"""
TURNS = ("c * 2", "-c", "jnp.maximum(c, 1)", "jnp.sin(c)", "c - 1", "jnp.sort(c)", "c / 3", "jnp.where(c > 1, c - 1, c)", "c[::-1]", "jnp.abs(c) + 1", "jnp.cumsum(c)")
DTYPES = ("jnp.float32", "jnp.float16", "jnp.bfloat16", "jnp.int8", "jnp.int32", "jnp.uint8", "jnp.uint32", "jnp.int16", "jnp.bool_", "jnp.uint16")
DOUBLE = ("jnp.float64", "jnp.int64", "jnp.uint64", "jnp.float32", "jnp.int32")


def _table(text: str) -> tuple[str, ...]:
    # One may hold the operator "|": only bars between spaces at both sides of an expression are separators.
    return tuple(part.strip() for line in text.strip().splitlines() for part in _parts(line))


def _parts(line: str) -> list[str]:
    found, depth, current = [], 0, ""
    for piece in line.split(" | "):
        current = f"{current} | {piece}" if current else piece
        depth = current.count("(") + current.count("[") - current.count(")") - current.count("]")
        if depth == 0:
            found.append(current)
            current = ""
    return found


ELEMENTWISE = {"float": _table(FLOAT), "int": _table(INT), "bool": _table(BOOL), "complex": _table(COMPLEX)}
PAIRS = {"float": _table(PAIR_FLOAT), "int": _table(PAIR_INT), "bool": _table(PAIR_BOOL), "complex": _table(PAIR_FLOAT)[:5]}
REDUCTIONS = {
    "float": _table(ROUNDING) + 2 * _table(SELECTING),
    "int": 2 * _table(INT_REDUCTION) + _table(SELECTING),
    "bool": _table(BOOL_REDUCTION),
    "complex": _table(COMPLEX_REDUCTION),
}
ANY = {"along": _table(ALONG), "movement": _table(MOVEMENT), "control": _table(CONTROL), "random": _table(RANDOM)}


class Steps:
    """Adds random lines to a program."""

    def __init__(self, text: Text, rng: np.random.Generator) -> None:
        self.text, self.rng = text, rng

    def pick(self, choices: Sequence[str]) -> str:
        return choices[int(self.rng.integers(len(choices)))]

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
        """A value: one of the last few, mostly."""
        values = [v for v in self.text.values if v.kind != "key" and (most is None or v.elements <= most)]
        reach = int(self.rng.choice([1, 1, 1, 3, len(values)]))
        return values[int(self.rng.integers(min(reach, len(values))))]

    def elementwise(self) -> bool:
        value = self.latest()
        return self.text.add(self.filled(self.pick(ELEMENTWISE[value.kind]), value.name, value)) is not None

    def pairs(self, wide: bool = False) -> bool:
        """Two values that broadcast: entry by entry, or all pairs of them."""
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
        template = self.pick(PAIRS[x.kind])
        return self.text.add(self.filled(template, left, x, right, y)) is not None

    def reduction(self) -> bool:
        value = self.latest()
        if not value.shape:
            return False
        return self.text.add(self.filled(self.pick(REDUCTIONS[value.kind]), value.name, value)) is not None

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
        """One more line; a few attempts."""
        kinds = ["elementwise"] * 4 + ["pairs"] * 4 + ["reduction"] * 3 + ["contraction"] * 2
        kinds += ["along"] * 2 + ["movement"] * 2 + ["control", "random"]
        for _ in range(5):
            kind = self.pick(kinds)
            made = self.other(kind) if kind in ANY else getattr(self, kind)()
            if made:
                return

    def probed(self) -> None:
        """All bits of the last value, but for those of NaN, in a few numbers: whatever is different, shows."""
        value = self.text.values[0]
        if value.kind != "float" or not value.shape:
            return
        numbers = f"jnp.where(jnp.isnan({value.name}), 0, {value.name})"
        bits = f"lax.bitcast_convert_type({numbers}, jnp.int{8 * value.dtype.itemsize})"
        axis = int(self.rng.integers(len(value.shape)))
        self.text.add(f"jnp.bitwise_xor.reduce({bits}, axis={axis})")

    def reduced(self) -> None:
        """The last value made small."""
        for _ in range(12):
            value = self.text.values[0]
            if value.elements <= 600:
                return
            self.reduction()
        value = self.text.values[0]
        if value.elements > 600 and value.kind != "key":
            self.text.add(f"jnp.max({value.name}, {int(np.argmax(value.shape))})" if value.kind != "complex" else f"jnp.sum({value.name})")
