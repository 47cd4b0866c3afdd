"""Optimises random programs, and compares their results on hostile data: `make fuzz`, or

python -m tests.fuzzing --accuracy exact --seed 1000 --count 500
python -m tests.fuzzing --accuracy exact --only 1234     # one program again, with its plan
python -m tests.fuzzing --mesh --count 100               # shared out among up to eight devices
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter

os.environ.setdefault("EQSAT_CACHE_DIR", "")


EIGHT = "--xla_force_host_platform_device_count=8"


def main() -> int:
    """Fuzzes as the command line says; returns 1 if any program was wrong, or else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("--accuracy", default="exact", help="exact, reassociates, or chunks: no algebra")
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--count", type=int, default=500, help="how many programs")
    parser.add_argument("--only", type=int, help="the seed of one program")
    parser.add_argument("--mesh", action="store_true", help="share programs out among up to eight devices")
    given = parser.parse_args()
    if given.mesh:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {EIGHT}"

    from tests.fuzzing.oracle import fuzz

    seeds = [given.only] if given.only is not None else range(given.seed, given.seed + given.count)
    outcomes: Counter[str] = Counter()
    judged = unsettled = wrong = 0
    for seed in seeds:
        finding = fuzz(seed, given.accuracy, several=given.mesh)
        outcomes[finding.outcome] += 1
        judged, unsettled = judged + finding.judged, unsettled + finding.open
        if finding.wrong or given.only is not None:
            wrong += bool(finding.wrong)
            print(finding, flush=True)
        if (seed + 1) % 50 == 0:
            print(f"# {seed + 1}: {dict(outcomes)}, {wrong} wrong", file=sys.stderr, flush=True)
    total = f"{sum(outcomes.values())} programs: {dict(outcomes)}"
    print(f"{total}; {judged} numbers judged, {unsettled} of them open; {wrong} wrong")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
