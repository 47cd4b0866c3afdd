"""Candidates are drafted unless they are sure to fit, and only what fits is compiled in full."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import pytest

import eqsat
from eqsat.backend.certificate import Certified
from eqsat.backend.module import Module
from eqsat.compiler import baseline, candidate_compiler
from eqsat.compiler.candidate_compiler import CompiledCandidate
from eqsat.planning.candidates import as_written
from eqsat.targets.cpu import CPU
from tests.stages import lowered, normal

X, Y, V = normal(3000, 3), normal(4000, 3, seed=1), normal(4000)


def kernel(x: Any, y: Any, v: Any) -> Any:
    return jnp.exp(-jnp.sum((x[:, None] - y[None]) ** 2, axis=-1)) @ v


@pytest.fixture
def drafts(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For every candidate that is compiled, whether it is a draft."""
    seen = []
    certify = candidate_compiler.certify

    def noted(*args: Any, draft: bool = False, **kwargs: Any) -> Any:
        seen.append(draft)
        return certify(*args, draft=draft, **kwargs)

    monkeypatch.setattr(candidate_compiler, "certify", noted)
    return seen


def test_what_is_sure_to_fit_is_not_drafted(drafts: list[bool]) -> None:
    assert eqsat.optimize(kernel, budget="100MB").plan(X, Y, V).changed
    assert drafts == [False]


def test_what_is_not_sure_to_fit_is_drafted_and_one_is_compiled_in_full(drafts: list[bool]) -> None:
    assert eqsat.optimize(kernel, budget="300KB").plan(X, Y, V).changed
    assert drafts.count(False) == 1
    assert drafts[0]


def test_a_program_whose_products_pack_less_should_take_longer() -> None:
    """So the search looks for another one that need not."""
    program, _ = lowered(kernel, X, Y, V)
    candidate = as_written(program, CPU)
    plain = CompiledCandidate(candidate, Module("", {}), Certified(None, 0, 0, 0, 0))
    assert replace(plain, panel=1 << 20).seconds(CPU) == CPU.packing * plain.seconds(CPU)


def test_what_came_out_with_more_memory_waits_for_what_should_be_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first candidate takes a gigabyte from the system in every call, which nobody predicted."""
    seen: list[str] = []
    certify = candidate_compiler.certify

    def larger(*args: Any, **kwargs: Any) -> Any:
        found = certify(*args, **kwargs)
        seen.append(found.options)
        return replace(found, temporaries=found.temporaries + 10**9) if len(seen) == 1 else found

    monkeypatch.setattr(candidate_compiler, "certify", larger)
    plan = eqsat.optimize(kernel, budget="4GB").plan(X, Y, V)
    assert len(seen) > 1
    assert plan.peak_bytes < 10**9


def test_a_draft_in_doubt_that_is_too_large_is_looked_at_closely_unless_it_is_certainly_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget, doubt = 300_000, 50_000
    # The third one is too large when it is looked at closely, the last one is not.
    more = [2 * doubt, doubt // 2, doubt // 2, doubt // 2, 0]
    seen: list[str] = []
    certify = candidate_compiler.certify

    def in_doubt(*args: Any, draft: bool = False, closely: bool = False, **kwargs: Any) -> Any:
        found = certify(*args, draft=draft, closely=closely, **kwargs)
        seen.append("closely" if closely else "draft" if draft else "full")
        if not draft:
            return found
        temporaries = found.temporaries + budget - found.peak + more.pop(0)
        return replace(found, temporaries=temporaries, doubt=0 if closely else doubt)

    monkeypatch.setattr(candidate_compiler, "certify", in_doubt)
    assert eqsat.optimize(kernel, budget=budget).plan(X, Y, V).peak_bytes <= budget
    assert seen == ["draft", "draft", "closely", "draft", "closely", "full"]


def test_a_function_that_is_too_large_is_not_compiled_in_full_for_a_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    certify = baseline.certify

    def in_doubt(*args: Any, draft: bool = False, closely: bool = False, **kwargs: Any) -> Any:
        found = certify(*args, draft=draft, closely=closely, **kwargs)
        seen.append("closely" if closely else "draft" if draft else "full")
        if closely or not draft:
            return found
        return replace(found, temporaries=found.temporaries // 2, doubt=found.temporaries)

    monkeypatch.setattr(baseline, "certify", in_doubt)
    plan = eqsat.optimize(kernel, budget="300KB").plan(X, Y, V)
    assert seen == ["draft", "closely"]
    assert plan.original_peak_bytes > X.shape[0] * Y.shape[0] * 4


def test_where_there_is_no_faster_way_to_compile_no_program_is_compiled_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    certify = candidate_compiler.certify

    def in_full(function: Any, *args: Any, draft: bool = False, **kwargs: Any) -> Any:
        seen.append(function)
        return certify(function, *args, draft=False, **kwargs)

    monkeypatch.setattr(candidate_compiler, "certify", in_full)
    assert eqsat.optimize(kernel, budget="300KB").plan(X, Y, V).changed
    assert len(seen) == len(set(seen))


def test_a_program_that_differs_in_numbers_alone_is_compiled_once(
    monkeypatch: pytest.MonkeyPatch, drafts: list[bool]
) -> None:
    """A wider space numbers its terms anew."""
    emitted = candidate_compiler.CandidateCompiler.emitted
    compilers: list[tuple[candidate_compiler.CandidateCompiler, Any]] = []

    def renumbered(self: Any, candidate: Any, *args: Any, **kwargs: Any) -> Module:
        found = emitted(self, candidate, *args, **kwargs)
        compilers.append((self, candidate))
        return replace(found, source=re.sub(r"\b([a-z]+)_(\d+)\b", rf"\1_{len(compilers)}\2", found.source))

    monkeypatch.setattr(candidate_compiler.CandidateCompiler, "emitted", renumbered)
    assert eqsat.optimize(kernel, budget="100MB").plan(X, Y, V).changed
    (compiler, candidate), *_ = compilers
    again = [compiler.compile(candidate, 100_000_000) for _ in range(2)]
    assert drafts == [False]
    assert again[0].module.source != again[1].module.source
