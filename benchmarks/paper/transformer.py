"""A transformer encoder's forward pass and training step at several sequence lengths, under one budget.

    python -m benchmarks.paper.transformer [--quick]

The encoder is that of `examples/encoder.py`, with one block. Writes
`benchmarks/results/paper-transformer-<cpu>` as `.json`, `.md` and `.png`: the certified peak and the time
of a call, those of plain JAX, and the length from which plain JAX exceeds the budget. Takes up to half an
hour, most of it for planning.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.paper.sweeps import Row, figure, row, text
from benchmarks.records import RESULTS, write
from examples.encoder import loss_and_moments, programs

COLUMNS = {"Encoder, forward": "tokens", "Encoder, training step": "tokens"}


def main(args: Sequence[str] | None = None, folder: Path = RESULTS) -> list[Row]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper.transformer", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="at the size of a test")
    quick = parser.parse_args(args).quick
    lengths = (32, 256) if quick else (512, 1024, 2048, 4096, 8192)
    width, heads, vocabulary = (16, 1, 50) if quick else (128, 4, 1000)
    budget = "1MB" if quick else "150MB"
    rows = [
        row(program, length, function, arguments, budget, part=part)
        for length in lengths
        for program, part, (function, arguments) in zip(
            COLUMNS,
            (lambda logits: logits, loss_and_moments),
            programs(length, width, heads, blocks=1, vocabulary=vocabulary),
            strict=True,
        )
    ]
    print(text(rows, COLUMNS))
    write("paper-transformer", rows, text(rows, COLUMNS), figure(rows, COLUMNS), folder)
    return rows


if __name__ == "__main__":
    main()
