"""Measures how the time and memory of planning grow with the number of equations.

    python -m benchmarks.scaling [--most EQUATIONS] [--only PROGRAM]

The programs are those of `big_programs`, with 100 to 20,000 equations. The budget for temporaries is a fifth
of what the program as written needs for them. Each program is planned in a process of its own. Reports the
processor seconds of every stage but XLA's, and the peak memory of the process. Writes
`benchmarks/results/scaling-<cpu>.json` if all programs were run.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable
from typing import Any

from benchmarks.big_programs import PROGRAMS
from benchmarks.records import write
from eqsat.backend.emit import emit
from eqsat.frontend.lower import lower
from eqsat.frontend.trace import trace
from eqsat.planning.candidates import as_written
from eqsat.planning.capped_extraction import attempts
from eqsat.planning.search_space import free_bytes, prepare
from eqsat.rulesets.selection import rules_for
from eqsat.targets.cpu import CPU

LENGTHS = (100, 300, 1000, 3000, 5000, 10_000, 20_000)

SHARE = 0.2


def measure(program: str, equations: int) -> dict[str, Any]:
    """Plans a program, and returns the seconds of each stage, the peak memory, and the outcome."""
    rules = rules_for((), "reassociates")
    function, arguments = PROGRAMS[program](equations)
    closed = trace(function, arguments, {}).closed
    seconds: dict[str, float] = {}

    def timed(stage: str, action: Callable[[], Any]) -> Any:
        began = time.thread_time()
        result = action()
        seconds[stage] = round(time.thread_time() - began, 2)
        return result

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lowered, _ = timed("lower", lambda: lower(closed))
    written = timed("liveness", lambda: as_written(lowered, CPU))
    fixed = -free_bytes(lowered, 0)
    budget = int(fixed + SHARE * max(written.predicted_peak - fixed, 0))
    search = timed("saturate", lambda: prepare(lowered, rules, budget, CPU))
    groups = attempts(search, budget)
    found = timed("search", lambda: next((g for g in groups if g[0].predicted_peak <= budget), None))
    if found:
        names = [f"x{number}" for number in range(len(lowered.inputs))]
        timed("emit", lambda: emit(found[0].schedule, names, found[0].makers))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "program": program,
        "equations": equations,
        "terms": sum(1 for _ in lowered.reachable()),
        "nodes": search.saturation.graph.node_count,
        "stop_reason": search.saturation.stop_reason,
        "fits": bool(found),
        "seconds": seconds,
        "planning_seconds": round(sum(seconds.values()), 2),
        "memory_mb": memory // 1000,
        "added_memory_mb": (memory - before) // 1000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=LENGTHS[-1], metavar="EQUATIONS")
    parser.add_argument("--only", choices=PROGRAMS, metavar="PROGRAM")
    options = parser.parse_args()
    rows = []
    print(f"{'':<26}{'equations':>9}{'e-nodes':>9}{'seconds':>9}{'MB':>6}")
    for program in [options.only] if options.only else PROGRAMS:
        for equations in LENGTHS:
            if equations <= options.most:
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    row = pool.apply(measure, (program, equations))
                rows.append(row)
                stages = ", ".join(f"{stage} {seconds}" for stage, seconds in row["seconds"].items())
                print(
                    f"{program:<26}{equations:>9}{row['nodes']:>9}{row['planning_seconds']:>9}"
                    f"{row['memory_mb']:>6}  {'fits' if row['fits'] else 'too big':<8}{stages}; "
                    f"{row['stop_reason']}",
                    flush=True,
                )
    if not options.only and options.most == LENGTHS[-1]:
        write("scaling", rows)


if __name__ == "__main__":
    main()
