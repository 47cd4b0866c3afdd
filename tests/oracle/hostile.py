"""Tests JAX's public functions and their derivatives on hostile data: `python -m tests.oracle.hostile`.

Arrays range over their whole dtype, except for matrices that are factorised, which only vary in scale.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

os.environ.setdefault("EQSAT_CACHE_DIR", "")

import jax.numpy as jnp
import numpy as np

from tests.fuzzing.data import arguments
from tests.fuzzing.oracle import Finding, attempt
from tests.fuzzing.text import Value
from tests.oracle.expressions import ARRAYS, expressions, function_of
from tests.oracle.judging import differentiable, gradient, tangent

MATRICES = frozenset("MATBL")
"""The arrays that functions factorise."""

SCALES = (1e-30, 1e-3, 1.0, 1.0, 1e3, 1e20)

PARTS = (0.3, 0.7)

FORMS: dict[str, Callable[[Callable[..., Any], dict[str, Any]], Callable[..., Any]]] = {
    "value": lambda fn, _: fn,
    "gradient": gradient,
    "tangent": tangent,
}


def hostile(args: dict[str, Any], seed: int) -> dict[str, Any]:
    """Draws hostile arrays of the same shapes and dtypes."""
    rng = np.random.default_rng(seed)
    scale = rng.choice(SCALES)
    found = {}
    for name, array in args.items():
        if name in MATRICES:
            found[name] = jnp.asarray(ARRAYS[name]) * np.float32(scale)
        else:
            found[name] = arguments([Value(name, array.shape, array.dtype)], rng)[0]
    return found


def ask(expression: str, form: str, seed: int = 0, accuracy: str = "reassociates") -> Finding:
    """Tests one function in one form, and returns the finding."""
    again = f"python -m tests.oracle.hostile --form {form} --seed {seed} --accuracy {accuracy} --only"
    finding = Finding(accuracy, f"{expression}\n", f"{again} {expression!r}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message="eqsat")
        function, args = function_of(expression)
        if form != "value" and not differentiable(args):
            return finding
        given = hostile(args, seed)
        try:
            attempt(finding, FORMS[form](function, given), tuple(given.values()), PARTS)
        except Exception as error:
            finding.wrong = f"{type(error).__name__}: {error}"
    return finding


def main() -> int:
    """Tests as the command line says; returns 1 if any function was wrong, or else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.hostile", description=__doc__)
    parser.add_argument("--form", default="value", choices=FORMS)
    parser.add_argument("--accuracy", default="reassociates")
    parser.add_argument("--seed", type=int, default=0, help="of the data")
    parser.add_argument("--only", help="one expression")
    given = parser.parse_args()
    outcomes: Counter[str] = Counter()
    wrong = 0
    for expression in [given.only] if given.only else expressions():
        finding = ask(expression, given.form, given.seed, given.accuracy)
        outcomes[finding.outcome] += 1
        if finding.wrong:
            wrong += 1
            print(finding, flush=True)
    print(f"{sum(outcomes.values())} functions: {dict(outcomes)}; {wrong} wrong")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
