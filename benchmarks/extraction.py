"""Measures how much more extracted programs cost than the cheapest ones.

    python -m benchmarks.extraction [--random N]

Extraction is greedy, with a local search. Here it is compared with an oracle, a mixed-integer linear program
that finds the cheapest program without cycles in which no stored value exceeds a cap. The e-graphs are those
of small programs like the paper's and of random ones, under several caps. Writes
`benchmarks/results/extraction.json`: how many extracted programs are the cheapest, and by how much the others
cost more.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from benchmarks.planning import arrays, shapes_of
from eqsat.engine.cost import CostModel
from eqsat.engine.extract import Extractor
from eqsat.engine.node_choices import NodeChoice, Selection
from eqsat.frontend.lower import lower
from eqsat.frontend.trace import trace
from eqsat.ir.program import Program
from eqsat.planning.candidates import as_written
from eqsat.planning.search_space import free_bytes, prepare
from eqsat.rulesets.selection import rules_for
from eqsat.targets.cpu import CPU
from examples import programs

CAPS = (math.inf, 0.3, 0.03)
"""The caps, as shares of the bytes that the budget leaves for temporaries."""

SHARE = 0.4
"""The budget for temporaries, as a share of what the program as written needs for them."""

MOST_CHOICES = 3000
"""E-graphs with more nodes than this are left out: the oracle would take minutes."""

INFEASIBLE = 2
"""The solver's status if there is no solution."""

SECONDS = 20.0
"""The time limit of the oracle for one e-graph, in seconds."""

GP = shapes_of(programs.sparse_gp_data(400, 20))

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "kernel matvec": (programs.kernel_matvec, arrays((2000, 3), (3000, 3), (3000,))),
    "nearest neighbours": (programs.nearest_neighbours, arrays((6000, 50), (1000, 50))),
    "attention": (programs.attention, arrays(*[(1024, 64)] * 3)),
    "sparse GP bound": (programs.sparse_gp_bound, GP),
}


@dataclass(frozen=True)
class Oracle:
    """The oracle's result.

    **Attributes:**

    - `seconds`: the predicted time of the program that is cheapest if each value counts once, or if that is
      not `proven`, a lower bound.
    - `proven`: whether the solver finished.
    - `chosen`: by class, the nodes of that program, if it is proven.
    """

    seconds: float
    proven: bool
    chosen: Mapping[int, NodeChoice] = field(default_factory=dict)


def cheapest(choices: Sequence[NodeChoice], roots: Sequence[int], seconds: float = SECONDS) -> Oracle | None:
    """Finds the cost of the cheapest program: one node for each class that is needed, without cycles.

    Each node has a variable that is 1 if the node is chosen. At least one node of every root is chosen, and
    of every operand class of a chosen node. Each class that is on a cycle of classes also has a number, and
    constraints make the number of an operand lower than that of the class whose chosen node reads it.

    **Arguments:**

    - `seconds`: the time limit. If the solver reaches it, the result is a lower bound.

    **Returns:** the result, or None if there is no such program.
    """
    of_class: dict[int, list[int]] = {}
    for index, choice in enumerate(choices):
        of_class.setdefault(choice.number, []).append(index)
    tangle = tangles(choices)
    members = Counter(tangle.values())
    tangled = sorted(number for number in tangle if members[tangle[number]] > 1)
    place = {number: len(choices) + index for index, number in enumerate(tangled)}
    count = len(choices) + len(place)
    rows: list[dict[int, float]] = []
    bounds: list[float] = []

    def at_least(bound: float, row: dict[int, float]) -> None:
        rows.append(row)
        bounds.append(bound)

    for root in dict.fromkeys(roots):
        at_least(1, dict.fromkeys(of_class.get(root, ()), 1.0))
    for index, choice in enumerate(choices):
        for child in set(choice.node.children):
            row = dict.fromkeys(of_class.get(child, ()), 1.0)
            at_least(0, row | {index: row.get(index, 0.0) - 1})
            if choice.number in place and tangle.get(child) == tangle[choice.number]:
                most = float(members[tangle[child]])
                at_least(1 - most, {place[choice.number]: 1.0, place[child]: -1.0, index: -most})
                if child < choice.number:
                    # Two classes never read each other. The other constraints imply this, but it helps the
                    # solver.
                    back = [i for i in of_class[child] if choice.number in choices[i].node.children]
                    forth = [i for i in of_class[choice.number] if child in choices[i].node.children]
                    at_least(-1, dict.fromkeys([*back, *forth], -1.0))
    entries = [(number, column, value) for number, row in enumerate(rows) for column, value in row.items()]
    row_of, column_of, values = zip(*entries, strict=True)
    matrix = coo_array((values, (row_of, column_of)), shape=(len(rows), count))
    costs = np.zeros(count)
    costs[: len(choices)] = [choice.cost for choice in choices]
    upper = np.ones(count)
    upper[len(choices) :] = [members[tangle[number]] for number in tangled]
    scale = float(costs.max()) or 1.0
    found = milp(
        costs / scale,
        constraints=LinearConstraint(matrix.tocsc(), np.array(bounds)),
        integrality=np.concatenate([np.ones(len(choices)), np.zeros(len(place))]),
        bounds=Bounds(np.zeros(count), upper),
        options={"time_limit": seconds, "mip_rel_gap": 1e-6},
    )
    if found.status == INFEASIBLE:
        return None
    if found.status != 0:
        return Oracle(float(found.mip_dual_bound) * scale, False)
    taken = [choice for choice, value in zip(choices, found.x, strict=False) if value > 0.5]
    seconds = float(sum(choice.cost for choice in taken))
    return Oracle(seconds, True, {choice.number: choice for choice in taken})


def tangles(choices: Sequence[NodeChoice]) -> dict[int, int]:
    """Returns for each class the number of its strongly connected component."""
    numbers = {choice.number for choice in choices}.union(*(choice.node.children for choice in choices))
    index = {number: place for place, number in enumerate(sorted(numbers))}
    edges = [(index[choice.number], index[child]) for choice in choices for child in choice.node.children]
    users, operands = zip(*edges, strict=True) if edges else ((), ())
    shape = (len(index), len(index))
    graph = coo_array((np.ones(len(edges)), (users, operands)), shape=shape)
    _, found = connected_components(graph, directed=True, connection="strong")
    return {number: int(found[place]) for number, place in index.items()}


def extractors(program: Program) -> Iterator[tuple[Extractor, float, float]]:
    """Yields the extractor of a program's e-graph with each cap, in bytes and as a share."""
    fixed = -free_bytes(program, 0)
    free = max(int(SHARE * (as_written(program, CPU).predicted_peak - fixed)), 1)
    search = prepare(program, rules_for((), "reassociates"), fixed + free, CPU)
    graph = search.saturation.graph
    roots = [graph.class_of[output.term.number] for output in program.outputs]
    chunks = {axis: max(1, axis.size // 10) for axis in search.large}
    extractor = Extractor(graph, CostModel(CPU, chunks), roots)
    for part in CAPS:
        yield extractor, part * free, part


def extracted(extractor: Extractor, cap: float) -> Selection | None:
    """Returns the cheapest program that extraction finds under a cap, looping over one axis or over any."""
    splits = [None, *(frozenset({axis}) for axis in extractor.model.chunks)]
    found = (extractor.extract(cap, split) for split in splits)
    return min((one for one in found if one is not None), key=lambda one: one.seconds, default=None)


def gaps(name: str, program: Program) -> Iterator[dict[str, Any]]:
    """Yields for every cap a row that compares the extracted program with the oracle's."""
    for extractor, cap, part in extractors(program):
        choices = extractor.choices(cap)
        if len(choices) > MOST_CHOICES:
            return
        began = time.thread_time()
        selection = extracted(extractor, cap)
        took = time.thread_time() - began
        best = cheapest(choices, extractor.roots) if selection else None
        if selection and best and best.seconds:
            # What nested loops repeat is no linear function of what is chosen: the oracle leaves it out.
            least = extractor.seconds(best.chosen) if best.proven else best.seconds
            yield {
                "program": name,
                "cap": part if math.isfinite(part) else None,
                "nodes": len(choices),
                "gap": round(max(selection.seconds / least - 1, 0.0), 9),
                "proven": best.proven,
                "extraction_seconds": round(took, 4),
            }


def random_cases(count: int) -> list[Program]:
    """Returns random programs as the property tests draw them, the same at every call."""
    from tests.random_programs import bottlenecks, random_programs

    found: list[Program] = []

    @settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(bottlenecks() | random_programs(14, large=False))
    def collect(text: Any) -> None:
        found.append(lower(trace(text.function(), tuple(text.arrays()), {}).closed)[0])

    collect()
    return found


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the distribution of the gaps, over the rows in which the oracle finished."""
    found = np.array([row["gap"] for row in rows if row["proven"]])
    return {
        "e-graphs": len(found),
        "oracle not finished": len(rows) - len(found),
        "cheapest": int((found < 1e-6).sum()),
        "within 1%": int((found < 0.01).sum()),
        "median": float(np.median(found)),
        "mean": round(float(found.mean()), 6),
        "largest": float(found.max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.extraction", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--random", type=int, default=60, metavar="N")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, (function, arguments) in PROGRAMS.items():
        rows += gaps(name, lower(trace(function, arguments, {}).closed)[0])
    for number, program in enumerate(random_cases(options.random)):
        rows += gaps(f"random {number}", program)
    print(f"{'':<22}{'cap':>6}{'nodes':>7}{'gap':>12}")
    for row in rows:
        cap = "none" if row["cap"] is None else f"{row['cap']:g}"
        bound = "" if row["proven"] else "  at most"
        print(f"{row['program']:<22}{cap:>6}{row['nodes']:>7}{row['gap']:>12.2e}{bound}")
    print(summary(rows))
    path = Path(__file__).parent / "results" / "extraction.json"
    record = {"jax": jax.__version__, "summary": summary(rows), "rows": rows}
    path.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
