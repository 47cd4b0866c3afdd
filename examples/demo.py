"""Shows what eqsat does: five programs under budgets that plain JAX exceeds.

    python -m examples.demo [--data DIR]

Takes a minute or two. Prints for each program the peak of plain JAX, the budget, the peak of the optimised
program, the times of both, their errors relative to a float64 reference, and the loops and rules.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from examples.comparison import compare
from examples.programs import demo_examples


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="a folder with MNIST (*-images*idx3-ubyte.gz)"
    )
    options = parser.parse_args()
    started = time.perf_counter()
    for example in demo_examples(options.data):
        compare(
            example.title,
            example.function,
            *example.arguments(),
            budget=example.budget,
            reference=example.reference,
            part=example.part,
            note=example.reference_note,
        )
    print(f"All within budget, {time.perf_counter() - started:.0f} s in all.")


if __name__ == "__main__":
    main()
