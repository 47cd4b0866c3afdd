"""Operations of users' files: they count where the file is in use, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.errors import RuleError
from eqsat.ir.operations import REGISTERED, known_operation, operations_in_scope
from eqsat.rulesets.files import bound_operations, load_file
from eqsat.rulesets.selection import operations_for, rules_for
from eqsat.storage.keys import plan_key
from eqsat.support import cache_folder
from eqsat.testing import check_rules
from tests.stages import normal

X = normal(2000)

ACTIVATIONS = """
import jax.numpy as jnp


def double(a, b):
    return a + a


def triple(a, b):
    return a * 3


def total(a, b):
    return jnp.sum(a)
"""

DOUBLED = "activation[i, j](a, b) + activation[i, j](a, b)  =>  2 * activation[i, j](a, b)\n"

Write = Callable[[str, str], Path]


def declaring(function: str) -> str:
    """A file of one operation, and a rule that puts it in place of a sum that is much slower, and unequal."""
    return f"""
operation activation[i, j](a: i, b: j) -> i  from "activations_of_a_test:{function}"
rule activate
  sum[j] sin(a{{i, !j}} * b{{j, !i}})  =>  activation[i, j](a, b)
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file of rules. A module of functions is beside it."""
    (tmp_path / "activations_of_a_test.py").write_text(ACTIVATIONS)
    monkeypatch.syspath_prepend(tmp_path)

    def written(name: str, text: str) -> Path:
        file = tmp_path / name
        file.write_text(text)
        return file

    return written


def waves(x: Any) -> Any:
    return jnp.sin(x[:, None] * x).sum(1)


def planned(*files: Path) -> Any:
    return eqsat.optimize(waves, budget="1MB", rules=list(files))


def test_two_files_with_one_name_are_used_one_after_the_other(write: Write) -> None:
    first = write("first.rules", declaring("double"))
    second = write("second.rules", declaring("triple"))
    for file, factor in ((first, 2), (second, 3), (first, 2)):
        optimized = planned(file)
        assert "activate" in optimized.plan(X).rules_fired
        np.testing.assert_allclose(optimized(X), factor * X, rtol=1e-6)
    assert "activation" not in REGISTERED
    assert known_operation("activation") is None
    np.testing.assert_allclose(eqsat.optimize(waves, budget="1MB")(X), waves(X), rtol=1e-3, atol=1e-3)


def test_two_functions_of_one_name_in_one_run_are_refused(write: Write) -> None:
    first = write("first.rules", declaring("double"))
    second = write("second.rules", declaring("triple"))
    places = (
        r"second\.rules:2:\d+: operation activation: it is activations_of_a_test:triple here,"
        r" but already activations_of_a_test:double in .*first\.rules:2:\d+; rename one"
    )
    with pytest.raises(RuleError, match=places):
        planned(first, second).plan(X)
    with pytest.raises(RuleError, match=places):
        rules_for([first, second], "exact")


def test_two_signatures_of_one_name_in_one_run_are_refused(write: Write) -> None:
    first = write("first.rules", declaring("double"))
    second = write(
        "second.rules", 'operation activation[i, j](a: i, b: j) ->  from "activations_of_a_test:total"'
    )
    with pytest.raises(
        RuleError, match=r"it is activation\[i, j\]\(a: i, b: j\) -> here, but .* in .*first\.rules:2"
    ):
        rules_for([first, second], "exact")


def test_two_files_may_declare_the_same_operation(write: Write) -> None:
    first = write("first.rules", declaring("double"))
    again = write("again.rules", "operation activation[i, j](a: i, b: j) -> i")
    for files in ([first, again], [again, first]):
        spec = operations_for(files)["activation"]
        assert spec.function is not None
        assert spec.function.__name__ == "double"


def test_a_declaration_may_not_disagree_with_a_registered_function(write: Write) -> None:
    file = write("mine.rules", declaring("double"))
    rules_for([file], "exact")
    eqsat.operation(lambda a, b: a, name="activation", signature="activation[i, j](a: i, b: j) -> i")
    with pytest.raises(RuleError, match=r"test:?.*double here, but already .*<lambda> by `eqsat.operation`"):
        rules_for([file], "exact")


def test_a_file_does_not_see_operations_of_other_files_in_use(write: Write) -> None:
    first = write("first.rules", declaring("double"))
    rule = f"rule again [exact]  {DOUBLED}"
    second = write("second.rules", rule)
    with pytest.raises(RuleError, match="there is no operation `activation`"):
        rules_for([first, second], "exact")
    write("second.rules", 'include "first.rules"\n' + rule)
    assert {"again"} <= {one.name for one in rules_for([second], "exact")}


def test_a_rule_is_compiled_again_for_another_signature(write: Write) -> None:
    file = write(
        "mine.rules", "rule twice [exact]  flipped[i, j](a) + flipped[i, j](a)  =>  2 * flipped[i, j](a)\n"
    )
    texts = set()
    for signature in ("(i,j)->(j,i)", "(i,j)->(i)"):
        REGISTERED.pop("flipped", None)
        eqsat.operation(lambda a: a, name="flipped", signature=signature)
        texts.add(next(one.text for one in rules_for([file], "exact") if one.name == "twice"))
    assert len(texts) == 2


def test_a_scope_knows_its_own_operations_only(write: Write) -> None:
    first = bound_operations([load_file(write("first.rules", declaring("double")))])
    with operations_in_scope(lambda: first):
        assert known_operation("activation") is not None
        with operations_in_scope(dict):
            assert known_operation("activation") is None
        assert known_operation("activation") is not None
    assert known_operation("activation") is None


def test_texts_without_declarations_are_not_read(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write("mine.rules", "rule r [exact]  a + a  =>  2 * a\n")
    monkeypatch.setattr("eqsat.rulesets.files.load_file", None)
    assert operations_for([file]) == {}


def test_checks_of_two_texts_with_one_name_are_independent(write: Write) -> None:
    rule = f"rule twice [rescales]  {DOUBLED}"
    for function, arrow in (("double", "-> i"), ("total", "->")):
        text = (
            f'operation activation[i, j](a: i, b: j) {arrow}  from "activations_of_a_test:{function}"\n{rule}'
        )
        assert check_rules(text, examples=5).ok


def test_the_next_process_reads_a_plan_with_declared_operations(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path / "cache"))
    file = write("mine.rules", declaring("double"))
    first, second = planned(file), planned(file)
    np.testing.assert_allclose(first(X), 2 * X, rtol=1e-6)
    assert "reading" in second.plan(X).planning_seconds
    np.testing.assert_allclose(second(X), 2 * X, rtol=1e-6)
    write("mine.rules", declaring("triple"))
    np.testing.assert_allclose(planned(file)(X), 3 * X, rtol=1e-6)


def test_keys_of_plans_do_not_depend_on_files_of_other_runs(write: Write) -> None:
    import jax

    program = jax.make_jaxpr(waves)(X)
    file = write("mine.rules", declaring("double"))
    before = plan_key(program, None, [])
    rules_for([file], "exact")
    assert plan_key(program, None, []) == before != plan_key(program, None, [file])
