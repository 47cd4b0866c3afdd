"""`docs/architecture.md` names what is there, and imports point the way it says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import eqsat
from eqsat.rulesets.selection import rules_for

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
FOLDERS = {"eqsat": "eqsat", "frontend": "eqsat.frontend", "backend": "eqsat.backend", "rules": "eqsat.rules"}

ALLOWED = {
    "eqsat.support.records": "",
    "eqsat.support.weak_cache": "",
    "eqsat.errors": "support.records",
    "eqsat.support": "errors",
    "eqsat.targets": "errors support",
    "eqsat.reports": "errors support",
    "eqsat.ir": "errors support.records support.weak_cache",
    "eqsat.language": "errors ir.elementwise ir.formula ir.guard ir.operations ir.properties",
    "eqsat.rules": "",
    "eqsat.annotations": "errors ir language",
    "eqsat.frontend": "errors support.records ir",
    "eqsat.engine": "errors support targets.machine ir language.accuracies language.functions language.listed"
    " language.rewriting language.syntax language.traverse",
    "eqsat.planning": "support targets.machine ir engine reports",
    "eqsat.backend": "errors targets ir planning.blocks",
    "eqsat.storage": "support ir planning.blocks frontend.foreign frontend.source backend.emission",
    "eqsat.rulesets": "errors support.serialisation ir language rules engine storage.rule_texts"
    " storage.values",
    "eqsat.compiler": "errors support targets reports ir engine frontend planning backend storage rulesets",
    "eqsat.checking": "errors ir language engine planning targets.cpu backend",
    "eqsat.transforms": "errors frontend reports compiler",
    "eqsat.dispatch": "support.units compiler transforms",
    "eqsat.streaming": "errors support targets reports ir planning frontend rulesets storage.fingerprints"
    " compiler transforms.nesting dispatch.budget_scope",
    "eqsat.optimized": "errors support.units targets frontend.one_device frontend.trace"
    " frontend.trace_context reports rulesets.options compiler transforms dispatch streaming",
    "eqsat.api": "targets support.units rulesets.options compiler.settings dispatch streaming.options"
    " optimized",
    "eqsat.questions": "errors language.accuracies reports rulesets optimized api",
    "eqsat.loading": "errors support.units targets backend.certificate compiler.deployment reports"
    " rulesets.options api",
    "eqsat.testing": "errors language rulesets.files checking",
    "eqsat.running": "errors support targets reports backend.certificate api compiler transforms",
    "eqsat.commands": "errors support reports ir.operations language rulesets frontend.lower frontend.trace"
    " checking optimized api questions running",
    "eqsat.cli": "errors commands",
    "eqsat.run": "cli",
    "eqsat.__init__": "annotations optimized api backend.certificate dispatch.budget_scope targets errors"
    " support.gc_pause loading questions reports streaming.sources",
}
"""What each package may import besides itself; those above come before those below."""

ONLY_IN = {
    "egglog": {"eqsat/engine/egraph.py"},
    "matplotlib": {
        f"eqsat/reports/{name}.py"
        for name in (
            "curve",
            "explanation",
            "graph_picture",
            "pictures",
            "plan",
            "sharing_picture",
            "showing",
            "stream_explanation",
            "stream_plan",
        )
    },
    "lark": {"eqsat/language/build.py", "eqsat/language/parse.py", "eqsat/language/syntax_errors.py"},
}
"""Dependencies that few may know."""


def modules() -> dict[str, Path]:
    """Every module of the package, by the name under which it is imported."""
    found: dict[str, Path] = {}
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((package, *parts))] = path
    return found


MODULES = modules()


@cache
def imports(path: Path) -> set[str]:
    """What a module imports, wherever in it and for whatever reason."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            found.update(
                name if (name := f"{node.module}.{alias.name}") in MODULES else node.module
                for alias in node.names
            )
    return found


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def package_of(module: str) -> str:
    return max((package for package in ALLOWED if within(module, package)), key=len)


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def mentioned() -> set[str]:
    """Everything on the page that looks like a path of the repository."""
    return set(re.findall(r"`((?:[\w.]+/)+[\w.]*)`", PAGE))


def calls(path: Path) -> set[str]:
    """The dotted names of what a module calls or refers to."""
    return {
        ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)
    }


def test_every_path_on_the_page_exists() -> None:
    assert len(mentioned()) > 60
    assert [path for path in sorted(mentioned()) if not (ROOT / path).exists()] == []


def test_every_module_is_on_the_page() -> None:
    needed = {relative(path) for path in MODULES.values() if path.name != "__init__.py"}
    assert sorted(needed - mentioned()) == []


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_point_one_way(module: str) -> None:
    own = package_of(module)
    allowed = [own, *(f"eqsat.{name}" for name in ALLOWED[own].split())]
    foreign = {name for name in imports(MODULES[module]) if within(name, "eqsat")}
    assert {name for name in foreign if not any(within(name, package) for package in allowed)} == set()


def test_packages_have_no_cycles() -> None:
    order = list(ALLOWED)
    for package, names in ALLOWED.items():
        for name in names.split():
            assert order.index(package_of(f"eqsat.{name}")) < order.index(package), (package, name)


def used_when_run(tree: ast.AST) -> Iterator[str]:
    """The modules that a module imports, wherever it does, but not those in which it only names types."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield from used_when_run(node)


def test_modules_do_not_import_one_another_in_circles() -> None:
    """Data that is recursive, as programs in programs are, names types that are defined later."""
    graph = {
        module: {name for name in used_when_run(ast.parse(path.read_text())) if name in MODULES}
        for module, path in MODULES.items()
    }
    list(TopologicalSorter(graph).static_order())  # raises a `CycleError` that names one


@pytest.mark.parametrize("dependency", sorted(ONLY_IN))
def test_few_know_a_dependency(dependency: str) -> None:
    users = {
        relative(path) for path in MODULES.values() if any(within(name, dependency) for name in imports(path))
    }
    assert users == ONLY_IN[dependency]


def test_one_module_compiles() -> None:
    compiling = {
        relative(path)
        for path in MODULES.values()
        for name in calls(path)
        if name.endswith(("memory_analysis", "lowered.compile"))
    }
    assert compiling == {"backend/certificate.py"}
    jitting = {relative(path) for path in MODULES.values() if "jax.jit" in calls(path)}
    # To mark a user's function, to trace one that JAX has, to keep the name of a call, and to make one.
    marking = {"eqsat/annotations.py", "frontend/canonical.py", "frontend/retracing.py"}
    marking |= {"eqsat/streaming/factor_states.py"}
    # For what can't be a program of its own.
    leaving = {"eqsat/optimized.py", "eqsat/running/jitted.py"}
    # To lower what runs elsewhere.
    exporting = {"eqsat/compiler/deployment.py"}
    # To time what a machine can do.
    timing = {"eqsat/targets/calibration.py"}
    assert jitting == {"backend/certificate.py"} | marking | leaving | exporting | timing


def test_the_example_is_planned_as_the_page_says() -> None:
    namespace: dict[str, object] = {}
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(example, namespace)
    plan = namespace["plan"]
    assert isinstance(plan, eqsat.Plan)
    assert plan.peak_bytes <= plan.budget_bytes == 20_000_000
    assert [str(loop) for loop in plan.loops] == re.findall(r"Loops over chunks\n +(.*?)  ", PAGE)
    (rules,) = re.findall(r"Rewrite rules used.*\n +(.*)\n", PAGE)
    assert plan.rules_fired == {name: int(count) for name, count in re.findall(r"([a-z-]+) (\d+)", rules)}
    assert re.search(r"peak memory +2.4 GB +5.96 MB", str(plan))


def test_rules_on_the_page_are_shipped() -> None:
    shipped = {compiled.name for compiled in rules_for((), "cancels")}
    assert set(re.findall(r"^ {4}rule ([\w-]+)", PAGE, re.MULTILINE)) <= shipped
