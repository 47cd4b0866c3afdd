"""Where loops begin: at 0, which XLA can tell only once other values are there."""

from __future__ import annotations

from collections.abc import Sequence

BEGIN = "begin_after"
"""The name of the function in the emitted program."""

FUNCTION = f"""def {BEGIN}(*arrays):
    # 0. XLA would run what makes these arrays after the loop, and keep what that reads until then. That these
    # sums are not negative is not known to XLA, so the arrays are there before the loop begins.
    entries = [lax.convert_element_type(array[(0,) * array.ndim] != 0, jnp.int32) for array in arrays]
    return jnp.where(sum(entries) < 0, 1, 0)
"""


def begin_text(arrays: Sequence[str]) -> str:
    """The first index of a loop that begins after some arrays were computed."""
    return f"{BEGIN}({', '.join(arrays)})" if arrays else "0"
