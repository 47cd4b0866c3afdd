"""Orders of tasks: valid, never worse than given, and as lean as any for graphs that can be tried out."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest

from eqsat.planning import order as module
from eqsat.planning.order import lean_order
from eqsat.planning.tasks import Tasks


def random_tasks(seed: int, most: int) -> Tasks:
    """A graph of up to `most` tasks that read a few values, recent ones or any, and make one or two."""
    rng = random.Random(seed)
    tasks = Tasks()
    for _ in range(rng.randint(most // 2, most)):
        known = range(len(tasks.size))
        near = known[-6:] if rng.random() < 0.5 else known
        reads = rng.sample(near, min(rng.choice([0, 1, 1, 2, 2, 3]), len(near)))
        task = tasks.task(reads, rng.choice([0, 0, 0, 0, 3, 8]))
        for _ in range(rng.choice([1, 1, 1, 1, 2])):
            tasks.value(task, rng.choice([1, 1, 2, 3, 5, 8, 13]), rng.random() < 0.1)
    return tasks


def check_order(tasks: Tasks, order: Sequence[int]) -> None:
    """Every task once, after those that it needs."""
    place = {task: number for number, task in enumerate(order)}
    assert sorted(order) == list(range(len(tasks.makes)))
    for task in order:
        assert all(place[other] < place[task] for other in tasks.needs(task))


def lowest_peak(tasks: Tasks) -> int:
    """Of all orders, by dynamic programming over the sets of tasks that may be done."""
    count, values = len(tasks.makes), range(len(tasks.size))
    readers = [sum(1 << reader for reader in tasks.readers[value]) for value in values]
    needs = [sum(1 << other for other in tasks.needs(task)) for task in range(count)]
    lowest = {0: 0}
    for done in range((1 << count) - 1):
        if done not in lowest:
            continue
        alive = sum(
            tasks.size[value]
            for value in values
            if done >> tasks.maker[value] & 1 and (tasks.kept[value] or readers[value] & ~done)
        )
        for task in range(count):
            if not done >> task & 1 and not needs[task] & ~done:
                during = alive + sum(tasks.size[value] for value in tasks.makes[task]) + tasks.extra[task]
                after, peak = done | 1 << task, max(lowest[done], during)
                lowest[after] = min(lowest.get(after, peak), peak)
    return lowest[(1 << count) - 1]


def test_small_graphs_are_put_in_the_best_order_there_is() -> None:
    better = 0
    for seed in range(300):
        tasks = random_tasks(seed, 12)
        order = lean_order(tasks)
        check_order(tasks, order)
        best = lowest_peak(tasks)
        assert tasks.bound() <= best
        assert tasks.peak(order) == best, f"seed {seed}"
        better += best < tasks.peak(range(len(order)))
    assert better > 100, "the order given was seldom the best"


@pytest.mark.parametrize("count", [40, 150, 500])
def test_larger_graphs_are_put_in_an_order_that_is_no_worse(count: int) -> None:
    for seed in range(3):
        tasks = random_tasks(seed, count)
        order = lean_order(tasks)
        check_order(tasks, order)
        assert tasks.peak(order) <= tasks.peak(range(len(order)))


def test_what_is_as_lean_as_can_be_stays_as_it_is() -> None:
    tasks = Tasks()
    value = tasks.value(tasks.task(), 5)
    for _ in range(5):
        value = tasks.value(tasks.task([value]), 5)
    assert lean_order(tasks) == list(range(6))


def test_what_needs_much_and_leaves_little_is_done_before_what_leaves_more() -> None:
    """A scalar from a large value, and a middling vector: the vector is not there while the large one is."""
    tasks = Tasks()
    vector = tasks.value(tasks.task(), 30)
    large = tasks.value(tasks.task(), 100)
    scalar = tasks.value(tasks.task([large]), 1)
    tasks.value(tasks.task([vector, scalar]), 1, kept=True)
    assert lean_order(tasks) == [1, 2, 0, 3]
    assert tasks.peak([0, 1, 2, 3]) == 131
    assert tasks.peak([1, 2, 0, 3]) == 101


def test_what_a_task_takes_while_it_runs_counts() -> None:
    tasks = Tasks()
    vector = tasks.value(tasks.task(), 30)
    scalar = tasks.value(tasks.task(extra=100), 1)
    tasks.value(tasks.task([vector, scalar]), 1, kept=True)
    assert lean_order(tasks) == [1, 0, 2]


def ladder(pieces: int) -> Tasks:
    """Large values first, all of them, then what each is reduced to: one piece at a time is leaner."""
    tasks = Tasks()
    large = [tasks.value(tasks.task(), 100) for _ in range(pieces)]
    small = [tasks.value(tasks.task([value]), 1) for value in large]
    tasks.value(tasks.task(small), 1, kept=True)
    return tasks


def test_long_programs_take_no_more_than_their_length() -> None:
    tasks = ladder(4000)
    began = time.thread_time()
    order = lean_order(tasks)
    assert time.thread_time() - began < 5
    assert tasks.peak(order) == 100 + 4000


def test_tasks_like_others_before_are_not_put_in_order_again(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[Tasks] = []
    search = module._lean_order

    def noted(tasks: Tasks) -> list[int]:
        searched.append(tasks)
        return search(tasks)

    monkeypatch.setattr(module, "_lean_order", noted)
    monkeypatch.setattr(module, "_ORDERS", {})
    found = lean_order(random_tasks(1, 40))
    found.reverse()  # whoever asks may change what is given
    assert lean_order(random_tasks(1, 40)) == found[::-1]
    assert len(searched) == 1
    lean_order(random_tasks(2, 40))
    assert len(searched) == 2


def test_the_orders_asked_for_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ORDERS", {})
    monkeypatch.setattr(module, "MOST_ORDERS", 2)
    for seed in (1, 2, 1, 3):
        lean_order(random_tasks(seed, 10))
    assert list(module._ORDERS) == [random_tasks(seed, 10).content() for seed in (1, 3)]


@pytest.mark.parametrize("part", ["size", "extra", "kept", "over", "reads", "makes"])
def test_tasks_are_alike_if_all_is_that_orders_depend_on(part: str) -> None:
    one, other = random_tasks(1, 40), random_tasks(1, 40)
    assert one.content() == other.content()
    values = getattr(other, part)
    values[0] = [*values[0], 0] if isinstance(values[0], list) else values[0] + 1
    assert one.content() != other.content()
