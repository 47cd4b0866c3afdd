"""Makes a random program from a seed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tests.fuzzing.steps import Steps
from tests.fuzzing.text import Text, Value

LENGTHS = (1, 2, 3, 5, 8, 40, 64, 97, 130, 160)
KINDS = ("float32",) * 6 + (
    "float16",
    "bfloat16",
    "int32",
    "int32",
    "int8",
    "int16",
    "uint8",
    "uint32",
    "bool",
    "complex64",
    "key",
)
DOUBLE_KINDS = ("float64",) * 4 + ("int64", "int64", "uint64", "float32", "int32")

PROBED = 0.5
"""The share of programs whose result is computed from the bits of the last value."""


def program(seed: int, double: bool | None = None) -> Text:
    """Returns the program of a seed.

    **Arguments:**

    - `double`: whether the program has 64-bit numbers; if None, the seed decides. `jax.enable_x64` has to be
      set accordingly.
    """
    rng = np.random.default_rng(seed)
    text = Text(double=is_double(seed) if double is None else double)
    steps = Steps(text, rng)
    lengths = [LENGTHS[int(n)] for n in rng.integers(len(LENGTHS), size=2)] + [int(rng.choice(LENGTHS[5:]))]
    kinds = DOUBLE_KINDS if text.double else KINDS
    first = kinds[int(rng.integers(len(kinds) - 1))]  # no key
    count = int(rng.integers(1, 4))
    for number in range(count):
        kind = first if number == 0 or rng.random() < 0.6 else kinds[int(rng.integers(len(kinds)))]
        shape = tuple(int(n) for n in rng.choice(lengths, int(rng.choice([1, 1, 2]))))
        if number == 0:
            shape = (lengths[-1], *shape[1:])
        if kind == "key":
            shape = ()
        dtype = jax.random.key(0).dtype if kind == "key" else jnp.dtype(kind)
        text.inputs.append(Value(f"v{number}", shape, dtype))
    for _ in range(int(rng.integers(0, 2))):
        steps.step()
    for _ in range(10):
        if steps.pairs(wide=True) and text.values[0].elements > 1000:
            break
    for _ in range(int(rng.integers(1, 7))):
        steps.step()
    if rng.random() < PROBED:
        steps.probed()
    steps.reduced()
    small = [value for value, _ in text.lines if value.elements <= 600]
    text.outputs = [text.lines[-1][0]] if text.lines else text.inputs[:1]
    if len(small) > 1 and rng.random() < 0.4:
        text.outputs.append(small[int(rng.integers(len(small)))])
    floats = [n for n, value in enumerate(text.inputs) if value.kind == "float"]
    if text.outputs[0].kind == "float" and floats and rng.random() < 0.15:
        text.wrap = f"f = jax.grad(lambda *args, f=f: f(*args)[0].sum(), {tuple(floats)})\n"
        text.outputs = text.outputs[:1]
    return text


def is_double(seed: int) -> bool:
    """Returns whether the program of a seed has 64-bit numbers."""
    return bool(np.random.default_rng([seed, 64]).random() < 0.2)
