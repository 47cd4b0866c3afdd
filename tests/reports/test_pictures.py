"""Pictures and pages: that they can be made of any plan, and read."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

import eqsat
from eqsat.reports.records import (
    BoxRecord,
    CollectiveRecord,
    GraphRecord,
    MeshAxisRecord,
    NodeRecord,
    SharedArray,
    SharingRecord,
)
from tests.kernels import SMALL, V, X, Y
from tests.stages import normal


def long_chain(x: Any) -> Any:
    """Many arrays of very different sizes, with a scan, under long names."""
    for number in range(30):
        x = jnp.sort(x * (number + 1), axis=1) - jnp.cumsum(x, axis=1)
    x = jax.lax.scan(lambda c, row: (jnp.tanh(c * row), jnp.sum(c)), x, x[:4])[0]
    return x + jnp.sum(jnp.sort(x[:, :1] * jnp.arange(3_000.0), axis=1))  # 2.4 MB


PLANS = {
    "kernel": lambda: SMALL.plan(X, Y, V),
    "left as it was": lambda: eqsat.optimize(lambda x: jnp.sin(x) + 1, budget="1GB").plan(X),
    "nothing to compute": lambda: eqsat.optimize(lambda x: x, budget="1MB").plan(X),
    "many arrays": lambda: eqsat.optimize(
        lambda parameters_of_layer: long_chain(parameters_of_layer), budget="1.5MB"
    ).plan(normal(200, 200)),
}


@pytest.fixture(scope="module", params=PLANS)
def plan(request: pytest.FixtureRequest) -> eqsat.Plan:
    made: eqsat.Plan = PLANS[request.param]()
    return made


def out_of_view(figure: Figure) -> Iterator[Text]:
    """The labels of ticks that are not drawn."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            least, most = sorted(axis.get_view_interval())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not least <= tick.get_loc() <= most:
                    yield tick.label1


def check_labels(figure: Figure) -> None:
    """All texts of a picture are in it, and none is on another."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    hidden = set(out_of_view(figure))
    texts = [
        text
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text not in hidden
    ]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    width, height = canvas.get_width_height()
    for text, box in boxes:
        assert 0 <= box.x0 <= box.x1 <= width, text
        assert 0 <= box.y0 <= box.y1 <= height, text
    pairs = combinations(boxes, 2)
    assert [(one, other) for (one, a), (other, b) in pairs if a.overlaps(b)] == []


@pytest.mark.one_in(2)
def test_labels_do_not_overlap(plan: eqsat.Plan) -> None:
    check_labels(plan.figure())


@pytest.mark.one_in(2)
def test_a_page_needs_no_network(plan: eqsat.Plan, tmp_path: Path) -> None:
    plan.save(tmp_path / "plan.html")
    page = (tmp_path / "plan.html").read_text()
    assert page.count("<svg") == page.count("</svg>") == 1
    assert not re.search(r'(?:src|href)="(?!#)', page.replace('xlink:href="#', ""))
    assert "<script" not in page


@pytest.mark.parametrize("kind", ["png", "svg", "pdf", "html", "txt", "py", "json", "dot"])
def test_a_plan_is_saved_as_what_the_name_of_the_file_says(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"plan.{kind}"
    SMALL.plan(X, Y, V).save(file)
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF", "py": b"import jax", "dot": b"digraph"}
    assert file.read_bytes().startswith(starts.get(kind, b""))
    assert file.stat().st_size > 500


def test_other_kinds_of_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(eqsat.EqsatError, match=r"plan\.doc.*saved as \.png, \.svg"):
        SMALL.plan(X, Y, V).save(tmp_path / "plan.doc")


def test_without_matplotlib_there_is_text_and_a_hint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    plan = SMALL.plan(X, Y, V)
    with pytest.raises(eqsat.EqsatError, match=r"eqsat\[pictures\]"):
        plan.save(tmp_path / "plan.png")
    plan.save(tmp_path / "plan.txt")
    assert "<pre>eqsat plan" in plan._repr_html_()


def test_the_graph_has_loops_as_clusters() -> None:
    plan = SMALL.plan(X, Y, V)
    text = "".join(plan.texts()["dot"]())
    assert text.count("subgraph cluster_") == len(plan.loops) == len(plan.graph.boxes)
    assert text.count(" -> ") == len(plan.graph.edges)
    assert text.count("[shape=") == len(plan.graph.nodes)


def check_graph(graph: GraphRecord) -> None:
    """Edges lead forward, from nodes that exist; frames are around rows that are together."""
    assert all(0 <= start < end < len(graph.nodes) for start, end in graph.edges)
    assert len(set(graph.edges)) == len(graph.edges)
    for number, box in enumerate(graph.boxes):
        assert isinstance(box, BoxRecord)
        assert box.parent < number
        inside = [n for n, node in enumerate(graph.nodes) if number in around(graph, node)]
        assert inside == list(range(inside[0], inside[-1] + 1))


def around(graph: GraphRecord, node: NodeRecord) -> set[int]:
    found, box = set(), node.box
    while box >= 0:
        found.add(box)
        box = graph.boxes[box].parent
    return found


def test_graphs_are_well_formed(plan: eqsat.Plan) -> None:
    check_graph(plan.graph)
    assert plan.graph.nodes


@pytest.mark.parametrize(("data", "arrays", "calls"), [(4, 2, 0), (64, 30, 30), (2, 1, 1)])
def test_what_devices_have_and_get_is_drawn(data: int, arrays: int, calls: int) -> None:
    over: tuple[tuple[str, ...], ...] = (("data", "model"), ())
    shared = [
        SharedArray(f"parameters_of_layer_{n}", "argument", "float32[4096,1024]", over, 2**24, 2**23 // data)
        for n in range(arrays)
    ]
    shared.append(SharedArray("result", "result", "float32[]", (), 4, 4))
    gets = [
        CollectiveRecord("all_gather", "model", f"float32[{4096 + n},1024]", 10, 10 * 2**24, 3e-3)
        for n in range(calls)
    ]
    axes = MeshAxisRecord("data", data, "x.0 (1,600)"), MeshAxisRecord("model", 2, "")
    plan = replace(
        SMALL.plan(X, Y, V),
        devices="data = 4: x.0 (1,600); model = 2: repeats what the others do",
        sharing=SharingRecord(axes, tuple(shared), tuple(gets)),
    )
    check_labels(plan.figure())
    assert "all_gather over model of float32" in str(plan) or not calls
    assert eqsat.Plan.from_json(plan.to_json()).sharing == plan.sharing
