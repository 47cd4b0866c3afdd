"""Optimised functions of files: both budgets, results, gradients, interruptions, and what is refused."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.errors import EqsatError
from eqsat.running.session import Session, Watch
from tests.stages import normal

N = 100_000
X = normal(N, 4)


ASSUMPTION = "if loops that end by a condition run"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Rows on disk, of 1.6 MB."""
    path = tmp_path_factory.mktemp("data") / "x.npy"
    np.save(path, X)
    return np.load(path, mmap_mode="r")


def loss(w: Any, x: Any) -> Any:
    return jnp.mean(jnp.tanh(x @ w) ** 2)


W = jnp.arange(1.0, 5.0)


def test_a_file_is_read_within_the_budgets(file: Any, tmp_path: Path) -> None:
    def scores(x: Any, w: Any) -> Any:
        return jax.nn.softmax(x @ w), jnp.mean(x, axis=0)

    small = eqsat.optimize(scores, budget="300kB", host_budget="500kB", out=(tmp_path / "p.npy", None))
    plan = small.plan(file, W)
    assert isinstance(plan, eqsat.StreamPlan)
    assert plan.peak_bytes <= 300_000
    assert plan.host_bytes <= 500_000
    assert plan.read == {"x": 3}
    assert plan.read_bytes == 3 * X.nbytes
    probabilities, mean = small(file, W)
    assert isinstance(probabilities, np.memmap)
    assert isinstance(mean, jax.Array)
    wanted = jax.jit(scores)(X, W)
    np.testing.assert_allclose(probabilities, wanted[0], rtol=1e-5)
    np.testing.assert_allclose(mean, wanted[1], rtol=1e-4, atol=1e-6)
    assert "over x.0: 100,000 in chunks of" in str(plan)
    plan.save(tmp_path / "plan.png")
    plan.save(tmp_path / "plan.html")
    plan.save(tmp_path / "plan.py")
    compile((tmp_path / "plan.py").read_text(), "plan.py", "exec")


def test_what_fits_is_read_once(file: Any) -> None:
    plan = eqsat.optimize(lambda x: (x - x.mean(0)) / x.std(0), budget="10MB").plan(file)
    assert isinstance(plan, eqsat.StreamPlan)
    assert plan.read == {"x": 1}


@pytest.mark.nightly
def test_a_median_is_found_in_ten_passes(file: Any) -> None:
    """One for each four of 32 bits, and two for what is equal or NaN; more only for zeros of both signs."""
    plan = eqsat.optimize(lambda x: jnp.median(x[:, 0]), budget="50kB").plan(file)
    assert isinstance(plan, eqsat.StreamPlan)
    assert plan.assumed_iterations is not None
    assert plan.read == {"x": 10 + plan.assumed_iterations}
    assert ASSUMPTION in str(plan)


@pytest.mark.nightly
def test_a_file_is_compared_with_a_quantile_of_it(file: Any) -> None:
    """The file has the same bits whenever it is read."""

    def below(x: Any) -> Any:
        return jnp.sum(jnp.where(x[:, 0] < jnp.quantile(x[:, 0], 0.3), x[:, 1], 0))

    found = eqsat.optimize(below, budget="300kB")(file)
    np.testing.assert_allclose(found, below(X), rtol=1e-4)


def test_without_a_loop_that_ends_by_a_condition_nothing_is_assumed(file: Any) -> None:
    plan = eqsat.optimize(lambda x: x.sum(0), budget="50kB").plan(file)
    assert isinstance(plan, eqsat.StreamPlan)
    assert plan.assumed_iterations is None
    assert ASSUMPTION not in str(plan)


def test_gradients_of_what_is_not_read(file: Any) -> None:
    small = eqsat.optimize(loss, budget="300kB")
    wanted = jax.value_and_grad(loss)(W, X)
    for got in (
        jax.value_and_grad(small)(W, file),
        eqsat.optimize(jax.value_and_grad(loss), budget="300kB")(W, file),
    ):
        np.testing.assert_allclose(got[0], wanted[0], rtol=1e-5)
        np.testing.assert_allclose(got[1], wanted[1], rtol=1e-4, atol=1e-7)


def test_planned_once_for_all_steps_of_an_optimiser(file: Any) -> None:
    traced = 0

    def counted(w: Any, x: Any) -> Any:
        nonlocal traced
        traced += 1
        return loss(w, x)

    step = eqsat.optimize(jax.value_and_grad(counted), budget="300kB")
    w = W
    losses = []
    for _ in range(4):
        value, gradient = step(w, file)
        losses.append(float(value))
        w = w - 0.5 * gradient
    assert traced == 1
    assert losses == sorted(losses, reverse=True)


SCRIPT = """
    import sys
    import jax.numpy as jnp, numpy as np
    import eqsat
    from eqsat.streaming import checkpoints

    checkpoints.EVERY = 0.0
    folder = sys.argv[1]


    class Slow:
        def __init__(self, array):
            self.array, self.shape, self.dtype, self.read = array, array.shape, array.dtype, 0

        def __getitem__(self, where):
            self.read += 1
            print("reading", self.read, flush=True)
            return self.array[where]


    def scores(x):
        return (x - x.mean(0)) @ jnp.ones(4)


    x = Slow(np.load(folder + "/x.npy"))
    run = eqsat.optimize(scores, budget="300kB", checkpoint=folder + "/checkpoint")
    np.save(folder + "/result.npy", run(x))
    print("done", x.read, flush=True)
"""


def started(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(folder)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_process_that_ends_is_gone_on_with(how: int, tmp_path: Path) -> None:
    """At most the chunk in progress, and the one that was read ahead, are read again."""
    np.save(tmp_path / "x.npy", X)
    count = 0
    with started(tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            count = int(line.split()[1])
            if count == FINGERPRINT + 50:
                process.send_signal(how)
    assert process.returncode != 0
    assert not (tmp_path / "result.npy").exists()
    assert (tmp_path / "checkpoint" / "checkpoint").exists()
    with started(tmp_path) as process:
        again = int(process.communicate()[0].split()[-1])
    centred = (X - X.mean(0)) @ np.ones(4, np.float32)
    np.testing.assert_allclose(np.load(tmp_path / "result.npy"), centred, rtol=1e-4, atol=1e-4)
    assert not (tmp_path / "checkpoint").exists()
    plan = eqsat.optimize(lambda x: (x - x.mean(0)) @ jnp.ones(4), budget="300kB").plan(eqsat.on_host(X))
    assert isinstance(plan, eqsat.StreamPlan)
    whole = sum(-(-one.size // one.length) for one in plan.passes)
    assert count + again - 2 * FINGERPRINT <= whole + 2


FINGERPRINT = 65
"""How many slices are read to tell data apart."""


def test_a_checkpoint_of_other_data_is_refused(tmp_path: Path) -> None:
    class Failing:
        shape, dtype = X.shape, X.dtype

        def __init__(self, array: Any, last: float) -> None:
            self.array, self.left = array, last

        def __getitem__(self, where: Any) -> Any:
            if where[0].stop - where[0].start > 1:  # not for the fingerprint
                self.left -= 1
            if self.left < 0:
                raise OSError("gone")
            return self.array[where]

    from eqsat.streaming import checkpoints

    run = eqsat.optimize(lambda x: jnp.sum(x, 0), budget="300kB", checkpoint=tmp_path / "c")
    before, checkpoints.EVERY = checkpoints.EVERY, 0.0
    try:
        with pytest.raises(EqsatError, match="gone"):
            run(Failing(X, 5))
        with pytest.raises(EqsatError, match="is of another function, or of other arguments"):
            run(eqsat.on_host(2 * X))
        other = eqsat.optimize(lambda x: jnp.max(x, 0), budget="300kB", checkpoint=tmp_path / "c")
        with pytest.raises(EqsatError, match="is of another function, or of other arguments"):
            other(eqsat.on_host(X))
        np.testing.assert_allclose(run(eqsat.on_host(X)), X.sum(0), rtol=1e-3)
        assert not (tmp_path / "c").exists()
    finally:
        checkpoints.EVERY = before


def test_a_damaged_checkpoint_is_said(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(b"eqsat checkpoint 2\nnothing")
    run = eqsat.optimize(lambda x: jnp.sum(x, 0), budget="300kB", checkpoint=tmp_path)
    with pytest.raises(EqsatError, match="is no checkpoint that can be read"):
        run(eqsat.on_host(X))


@pytest.mark.nightly
def test_what_is_expensive_is_kept_in_a_scratch_file(tmp_path: Path) -> None:
    """Kernel sums that are centred by their own mean, which needs all of them first."""
    centres, rows = normal(1_500, 4), X[:30_000]

    def centred(x: Any) -> Any:
        sums = jnp.sum(jnp.exp(-jnp.sum((x[:, None] - centres[None]) ** 2, -1)), 1)
        return sums - jnp.mean(sums)

    plans = {}
    for options in ({}, {"scratch": tmp_path}, {"scratch": tmp_path, "checkpoint": tmp_path / "c"}):
        run = eqsat.optimize(centred, budget="100kB", **options)
        plans[len(options)] = plan = run.plan(eqsat.on_host(rows))
        assert plan.peak_bytes <= 100_000
        np.testing.assert_allclose(run(eqsat.on_host(rows)), jax.jit(centred)(rows), rtol=1e-3, atol=1e-3)
        assert list(tmp_path.iterdir()) == []
    assert isinstance(plans[0], eqsat.StreamPlan)
    assert plans[0].read == {"x": 2}
    for plan in (plans[1], plans[2]):
        assert isinstance(plan, eqsat.StreamPlan)
        assert plan.read == {"x": 1, "what was kept": 1}
        assert plan.predicted_seconds < 0.7 * plans[0].predicted_seconds


def test_a_session_reports_what_is_read(file: Any) -> None:
    session = Session(300_000, {})
    entry = session.entry(loss)
    eqsat.optimize(loss, budget="300kB").watched(Watch(session, entry))(W, file)
    assert "reads 1.6 MB in 1 pass" in session.report()


def test_64_bit_numbers_stay(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    data = np.arange(4_000, dtype=np.int64).reshape(1_000, 4) * 10**15
    np.save(path, data)
    small = eqsat.optimize(lambda x: (x.sum(0), x * x, x / 4), budget="20kB")
    with jax.enable_x64(True):
        got = small(np.load(path, mmap_mode="r"))
        wanted = (data.sum(0), data * data, data / 4)
        for mine, theirs in zip(got, wanted, strict=True):
            assert mine.dtype == theirs.dtype
            np.testing.assert_array_equal(mine, theirs)
    assert small(np.load(path, mmap_mode="r"))[0].dtype == np.int32


def test_the_budget_of_a_scope_bounds_what_is_read(file: Any) -> None:
    small = eqsat.optimize(lambda x: x.sum(0), budget="1MB")
    with eqsat.budget("60kB"):
        within = small.plan(file)
        assert isinstance(within, eqsat.StreamPlan)
        assert within.peak_bytes <= 60_000
    without = small.plan(file)
    assert isinstance(without, eqsat.StreamPlan)
    assert without.peak_bytes > 60_000


def test_an_optimised_function_inside_of_another(file: Any) -> None:
    inner = eqsat.optimize(loss, budget="300kB")
    outer = eqsat.optimize(jax.value_and_grad(inner), budget="200kB")
    np.testing.assert_allclose(outer(W, file)[1], jax.grad(loss)(W, X), rtol=1e-4, atol=1e-7)


def test_a_refused_place_leaves_no_file(file: Any, tmp_path: Path) -> None:
    run = eqsat.optimize(
        lambda x: (x * 2, x + 1), budget="300kB", out=(tmp_path / "x.npy", tmp_path / "x.txt")
    )
    with pytest.raises(EqsatError, match=r"x\.txt"):
        run(file)
    assert not list(tmp_path.iterdir())


def test_a_result_that_is_needed_again_as_a_whole(file: Any) -> None:
    def fitted(w: Any, x: Any) -> Any:
        scores = x @ w
        return jnp.mean(jnp.tanh(scores)), scores

    small = eqsat.optimize(fitted, budget="1MB")
    for got, wanted in (
        (small(W, file), fitted(W, X)),
        (jax.grad(small, has_aux=True)(W, file), jax.grad(fitted, has_aux=True)(W, X)),
    ):
        for mine, theirs in zip(got, wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_a_gradient_leaves_the_places_of_results_alone(file: Any, tmp_path: Path) -> None:
    def fitted(w: Any, x: Any) -> Any:
        return jnp.mean(jnp.tanh(x @ w)), x @ w

    out, checkpoint = (None, tmp_path / "scores.npy"), tmp_path / "checkpoint"
    small = eqsat.optimize(fitted, budget="1MB", out=out, checkpoint=checkpoint)
    gradient, scores = jax.grad(small, has_aux=True)(W, file)
    np.testing.assert_allclose(gradient, jax.grad(fitted, has_aux=True)(W, X)[0], rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(scores, X @ W, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(np.load(out[1]), scores)
    assert not checkpoint.exists()


def test_loops_for_each_entry_take_what_is_read() -> None:
    edges, entries = jnp.arange(-1.0, 2.0), X[:2003, 0]
    small = eqsat.optimize(jnp.searchsorted, budget="4kB")
    found = small(edges, eqsat.on_host(entries))
    np.testing.assert_array_equal(found, jnp.searchsorted(edges, entries))


def test_a_place_also_gets_what_fits_the_budget(file: Any, tmp_path: Path) -> None:
    run = eqsat.optimize(
        lambda x: (2 * x, x.max()), budget="9MB", out=(tmp_path / "x.npy", tmp_path / "y.npy")
    )
    run(file)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), 2 * X)
    assert np.load(tmp_path / "y.npy") == X.max()


def test_files_without_rows(tmp_path: Path) -> None:
    empty = eqsat.on_host(X[:0])
    total, doubled = eqsat.optimize(lambda x: (x.sum(0), 2 * x), budget="1kB")(empty)
    assert doubled.shape == (0, 4)
    np.testing.assert_array_equal(total, np.zeros(4))
    run = eqsat.optimize(lambda x: 2 * x, budget="1kB", out=tmp_path / "x.npy")
    assert run(empty).shape == np.load(tmp_path / "x.npy").shape == (0, 4)


def test_loops_that_never_run(file: Any) -> None:
    def products(x: Any, ws: Any) -> Any:
        return jax.lax.scan(lambda c, w: (c + 1, jnp.max(x @ w)), 3, ws)

    count, found = eqsat.optimize(products, budget="300kB")(file, jnp.ones((0, 4)))
    assert (int(count), found.shape, found.dtype) == (3, (0,), np.float32)


def test_numbers_are_no_chunks_whatever_is_marked(file: Any) -> None:
    def scaled(d: Any) -> Any:
        return d["x"].max() * d["by"]

    assert eqsat.optimize(scaled, budget="300kB", stream_argnames="d")({"x": X, "by": 2.0}) == 2 * X.max()
