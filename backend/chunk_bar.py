"""How far a running loop has come: a callback in the emitted program, which needs no eqsat for it."""

from __future__ import annotations

MOST_UPDATES = 100
"""How often a loop says where it is, at most."""

SECONDS_PER_UPDATE = 0.1
"""Predicted time of a program for each update, which takes 0.3 ms: predictions may be five times too long."""

IMPORTS = ("import sys", "import time", "import jax")

FUNCTION = '''\
def bar(loop, size, last, every):
    """Shows on stderr how far a loop has come, if it takes longer than a second.

    The result is to be called with the start of each chunk. `last`: where the last one starts. `every`: how
    much of the size lies between two updates.
    """
    terminal = sys.stderr.isatty()
    began = shown = done = 0.0

    def begin():
        nonlocal began, shown, done
        began = shown = time.monotonic()
        done = 0.0

    def go_on():
        nonlocal shown, done
        done, now = done + every / size, time.monotonic()
        if now - shown > (0.1 if terminal and shown > began else 1.0 if terminal else 10.0):
            shown, left = now, (now - began) * (1 / done - 1)
            text = f"{loop} [{'#' * int(30 * done):30}] {done:4.0%}, {left:.0f} s left"
            print(end=f"\\r{text}\\x1b[K" if terminal else text + "\\n", file=sys.stderr, flush=True)

    def end():
        if terminal and shown > began:
            print(end="\\r\\x1b[K", file=sys.stderr, flush=True)

    # Callbacks with arguments take much longer.
    calls = [lambda: None, *(lambda f=f: jax.debug.callback(f) for f in (begin, end, go_on))]

    def tell(start):
        now_and_then = jnp.where(start % every == 0, 3, 0)
        lax.switch(jnp.where(start == 0, 1, jnp.where(start == last, 2, now_and_then)), calls)

    return tell
'''
"""In the emitted program, before the function itself."""


def updates(seconds: float) -> int:
    """How often each loop of a program may say where it is, if the program takes so long.

    >>> updates(0.01), updates(1), updates(3600)
    (0, 10, 100)
    """
    return min(int(seconds / SECONDS_PER_UPDATE), MOST_UPDATES)


def bar_text(number: int, count: int, axis: str, size: int, chunk: int, most_updates: int) -> str:
    """The bar of one of a program's loops.

    >>> bar_text(1, 2, "a", 1000, 10, 20)
    "bar('eqsat: loop 1 of 2 over a', 1000, 990, 50)"
    """
    iterations = -(-size // chunk)
    every = -(-iterations // most_updates) * chunk
    loop = f"eqsat: loop {number} of {count} over {axis}"
    return f"bar({loop!r}, {size}, {(iterations - 1) * chunk}, {every})"
