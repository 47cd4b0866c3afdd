"""The graph of a plan's arrays in graphviz's text format."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from eqsat.reports.graph_picture import node_title
from eqsat.support.units import format_bytes

if TYPE_CHECKING:
    from eqsat.reports.records import GraphRecord, NodeRecord

SHAPES = {"argument": "ellipse", "value": "box", "result": "doubleoctagon"}


def graph_dot(graph: GraphRecord, title: str = "") -> str:
    """The graph as text: nodes are arrays, clusters are loops and control flow. `dot -Tsvg` draws it."""
    lines = ["digraph plan {", f"  label={json.dumps(title)};", '  node [fontname="sans-serif" fontsize=10];']
    lines += _inside(graph, -1, "  ")
    lines += [f"  n{start} -> n{end};" for start, end in graph.edges]
    return "\n".join([*lines, "}\n"])


def _inside(graph: GraphRecord, box: int, indent: str) -> list[str]:
    """The lines for the nodes and boxes directly in a box; -1 is the whole graph."""
    lines = [
        f"{indent}n{number} [shape={SHAPES[node.kind]} label={_label(node)}];"
        for number, node in enumerate(graph.nodes)
        if node.box == box
    ]
    for number, inner in enumerate(graph.boxes):
        if inner.parent == box:
            lines.append(f"{indent}subgraph cluster_{number} {{")
            lines.append(f"{indent}  label={json.dumps(inner.label, ensure_ascii=False)}; color=steelblue;")
            lines += _inside(graph, number, f"{indent}  ")
            lines.append(f"{indent}}}")
    return lines


def _label(node: NodeRecord) -> str:
    """A label of three lines: the op, the dtype and axes, the size and the source line."""
    place = f"  {node.tensor.place.short}" if node.tensor.place else ""
    text = f"{node_title(node)}\n{node.tensor}\n{format_bytes(node.tensor.bytes)}{place}"
    return json.dumps(text, ensure_ascii=False)
