"""Values that are stored although XLA would compute them again wherever they are read."""

from __future__ import annotations

STORED = "stored"
"""The name of the function in the emitted program."""

FUNCTION = f"""def {STORED}(array):
    # XLA would compute it again for each part or entry that reads it. That this is true is not known to XLA,
    # so the array is there before the branch.
    known = lax.convert_element_type(array[(0,) * array.ndim] != 0, jnp.int32) < 2
    return lax.cond(known, lambda: array, lambda: jnp.zeros_like(array))
"""
