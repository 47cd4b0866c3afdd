"""`eqsat run`: the functions that a script compiles are optimised, and nothing else changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stages import without_log

SCRIPT = """
import os
os.environ["JAX_ENABLE_X64"] = "1"  # too late, if JAX had been imported
import functools, sys
import jax, jax.numpy as jnp, numpy as np
from jax import jit

x = jnp.asarray(np.random.default_rng(0).normal(size=2000))
assert x.dtype == jnp.float64

@functools.partial(jax.jit, static_argnames="power")
def kernel(x, v, power=2):
    '''Its text.'''
    return jnp.exp(-jnp.abs(x[:, None] - x[None]) ** power) @ v

@jax.jit
def loss(v, x):
    return jnp.sum(kernel(x, v) ** 2)

@jit(donate_argnums=0)
def step(v, gradient):
    return v - 0.1 * gradient

class Model:
    def __init__(self, scale):
        self.scale = scale

    @functools.partial(jax.jit, static_argnums=0)
    def __call__(self, x):
        return self.scale * kernel(x, x, power=1)

assert kernel.__name__ == "kernel" and kernel.__doc__ == "Its text."
assert jax.eval_shape(kernel, x, x).shape == kernel.eval_shape(x, x).shape == (2000,)
v = jnp.ones(2000)
for _ in range(3):
    v = step(v, jax.grad(loss)(v, x))
print(np.asarray(v)[:3], np.asarray(Model(2.0)(x))[:3])
lowered = kernel.lower(x, v).compile()
print(lowered.memory_analysis().temp_size_in_bytes < 8_000_000, file=sys.stderr)
np.testing.assert_allclose(lowered(x, v), kernel(x, v))
print(np.asarray(jax.vmap(lambda v: kernel(x, v))(jnp.stack([v, v])))[0, :2])
"""


def run(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "EQSAT_CACHE_DIR": "", "JAX_PLATFORMS": "cpu", **environment}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=given)


def test_a_script_has_the_same_results_within_the_budget(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    plain = run("script.py", folder=tmp_path)
    ours = run("-m", "eqsat.run", "script.py", folder=tmp_path, EQSAT_BUDGET="8MB")
    assert ours.returncode == plain.returncode == 0, ours.stderr
    assert numbers(ours.stdout) == pytest.approx(numbers(plain.stdout), rel=1e-6)
    fits, *report = without_log(ours.stderr).strip().split("\n")
    assert fits == "True", "what is compiled ahead is optimised, too"
    assert report[0] == "eqsat: budget 8 MB"
    text = "\n".join(report)
    assert "  loss  (script.py:16)  3 calls\n" in text
    assert "    the gradient of loss: 32" in text
    assert "  kernel  (script.py:11)  2 calls\n" in text
    assert "kernel, for a batch of 2: " in text
    assert "  small, and left as they are: step" in text
    assert "OVER" not in text


def numbers(text: str) -> list[float]:
    return [float(word) for word in text.replace("[", " ").replace("]", " ").split()]


OVER = """
import jax, jax.numpy as jnp
f = jax.jit(lambda x: jnp.linalg.eigvalsh(x @ x.T))
print(f(jnp.ones((300, 300))).shape)
"""


def test_what_does_not_fit_runs_as_small_as_it_can_be(tmp_path: Path) -> None:
    reasons = ["no program within the budget of 500 kB was found.", "was found by an earlier process."]
    for reason in reasons:
        command = ["-m", "eqsat.run", "--budget", "500kB", "-c", OVER]
        found = run(*command, folder=tmp_path, EQSAT_CACHE_DIR=str(tmp_path / "cache"))
        assert (found.returncode, found.stdout) == (0, "(300,)\n"), found.stderr
        assert reason in found.stderr
        assert "OVER THE BUDGET" in found.stderr


@pytest.mark.nightly
def test_plans_are_timed_if_asked_for_and_saved(tmp_path: Path) -> None:
    text = OVER.replace("jnp.linalg.eigvalsh(x @ x.T)", "jnp.exp(x[:, None] - x[None]).sum(-1)")
    options = ["--budget", "2MB", "--tune", "--report", "plans/all.txt"]
    found = run("-m", "eqsat.run", *options, "-c", text, folder=tmp_path)
    assert found.returncode == 0, found.stderr
    assert "eqsat: wrote plans/all.txt" in found.stderr
    page = (tmp_path / "plans" / "all.txt").read_text()
    assert "eqsat plan for <lambda>" in page
    assert "Timed on this device" in page


@pytest.mark.nightly
def test_if_told_to_it_stops(tmp_path: Path) -> None:
    found = run("-m", "eqsat.run", "--budget", "500kB", "--strict", "-c", OVER, folder=tmp_path)
    assert (found.returncode, found.stdout) == (1, "")
    assert "BudgetError: <lambda>: no program within the budget of 500 kB was found" in found.stderr


LEFT = """
import jax, jax.numpy as jnp
@jax.jit
def small(x):
    print("traced" if isinstance(x, jax.core.Tracer) else "evaluated")
    return x + 1
for _ in range(2):
    small(jnp.ones(3))
with jax.disable_jit():
    small(jnp.ones(3))
here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
def sums(x):
    return jnp.exp(x[:, None] - x[None]).cumsum(0).max(1)
print(jax.jit(sums, in_shardings=here)(jnp.zeros(300)).max())
"""


def test_what_is_left_as_it_is_runs_as_in_plain_jax_and_over_the_budget_with_a_word_only(
    tmp_path: Path,
) -> None:
    found = run("-m", "eqsat.run", "--budget", "100kB", "-c", LEFT, folder=tmp_path)
    assert (found.returncode, found.stdout) == (0, "traced\nevaluated\n300.0\n"), found.stderr
    assert "sums: the function can't be planned, since jax.jit was given in_shardings" in found.stderr
    assert "left as it is: jax.jit was given in_shardings  OVER THE BUDGET" in found.stderr
    strict = run("-m", "eqsat.run", "--budget", "100kB", "--strict", "-c", LEFT, folder=tmp_path)
    assert (strict.returncode, strict.stdout) == (1, "traced\nevaluated\n"), strict.stderr
    assert "BudgetError: sums: the function can't be planned" in strict.stderr
    assert "REFUSED" in strict.stderr
