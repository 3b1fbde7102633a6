"""What is executed: made once, proved by the function itself and not by its name, and kept."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from oracle import NAMES, ROOTED

from hocket.deadline import Deadline
from hocket.errors import CollectiveTimeout, PlanError
from hocket.plans.algorithms import ALGORITHMS, direct, naive, plan, ring
from hocket.plans.check import check
from hocket.plans.lower import lower
from hocket.plans.plan import Plan, Steps, copy, inp, out, reduce
from hocket.plans.prove import proved


def to_root(n: int) -> Steps:
    """No all-reduce: the others never hear of the sum."""
    yield reduce(out(0), inp(np.arange(1, n)))


@pytest.mark.parametrize("name", NAMES, ids="-".join)
def test_it_is_the_plan_and_its_facts(name: tuple[str, str]) -> None:
    for n in (1, 2, 3, 6):
        for root in range(n) if name in ROOTED else (0,):
            kept, facts = proved(*name, n, root)
            streamed = plan(*name, n, root)
            assert kept == streamed
            assert (kept.chunks, kept.tmp_chunks, repr(kept)) == (streamed.chunks, streamed.tmp_chunks, repr(streamed))
            assert facts == check(streamed)


def test_a_wrong_function_in_the_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the right one was proved before, and the right one again after it."""
    before = proved("all_reduce", "naive", 3)
    monkeypatch.setitem(ALGORITHMS, ("all_reduce", "naive"), to_root)
    for _ in range(2):
        with pytest.raises(
            PlanError, match=r"Plan\(all_reduce, naive, size=3, chunks=1\): rank 1's out\[0\] ends wrong"
        ):
            proved("all_reduce", "naive", 3)
    assert plan("all_reduce", "naive", 3) != before.plan
    monkeypatch.setitem(ALGORITHMS, ("all_reduce", "naive"), naive.all_reduce)
    assert proved("all_reduce", "naive", 3) is before


def test_a_new_name_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="all_reduce has no algorithm 'mine'"):
        proved("all_reduce", "mine", 2)
    monkeypatch.setitem(ALGORITHMS, ("all_reduce", "mine"), ring.all_reduce)
    assert proved("all_reduce", "mine", 2).plan.algorithm == "mine"


def test_arguments_that_make_no_sense() -> None:
    for arguments in (("all_reduce", "rong", 2, 0), ("all_confuse", "ring", 2, 0), ("all_reduce", "ring", 2, 1)):
        with pytest.raises(ValueError, match=r"has no|there is no|cannot be"):
            proved(*arguments)
    for size, root in ((0, 0), (2, 2), (2, -1)):
        with pytest.raises(ValueError, match="scatter cannot be"):
            proved("scatter", "direct", size, root)
    for other in (plan("reduce", "direct", 2), plan("all_reduce", "ring", 3), plan("reduce", "direct", 2, 1)):
        with pytest.raises(ValueError, match="is none for all_reduce over 2 ranks, root 0"):
            proved("all_reduce", other, 2)
    for nothing in (3, None, ["ring"]):
        with pytest.raises(TypeError, match="algorithm is a name, a Plan or a function of the number of ranks, not"):
            proved("all_reduce", nothing, 2)  # type: ignore[arg-type]


class Counted:
    """An algorithm that counts how often its steps are made."""

    def __init__(self, algorithm: Callable[[int], Steps] = ring.all_reduce) -> None:
        self.algorithm, self.runs = algorithm, 0

    def __call__(self, n: int) -> Steps:
        self.runs += 1
        yield from self.algorithm(n)


def test_steps_are_made_once() -> None:
    """However they are used: and a plan of one's own is asked once more than it was before."""
    counted = Counted()
    for _ in range(3):
        kept, _ = proved("all_reduce", counted, 4)
        assert (kept.fingerprint, kept.tmp_chunks, kept.chunks) == (kept.fingerprint, 0, 4)
        assert check(kept) == check(kept)
        lower(kept, 0)
    assert counted.runs == 1
    assert kept.keep() is kept
    mine = Plan("all_reduce", "mine", 4, 0, 4, partial(counted, 4))
    assert [proved("all_reduce", mine, 4).plan == mine.keep() for _ in range(3)] == [True] * 3
    assert counted.runs == 2


def test_an_algorithm_that_changes_its_mind_does_not_run_what_was_not_proved() -> None:
    """The first time it is right, then wrong. What was proved is kept, and that alone runs."""
    turns: Iterator[Callable[[int], Steps]] = iter([ring.all_reduce, to_root, to_root])
    kept, _ = proved("all_reduce", lambda n: next(turns)(n), 4)
    assert [len(front) for front in kept.fronts()] == [4] * 6


@dataclass
class Rooted:
    """A callable without a hash."""

    shift: int = 0

    def __call__(self, n: int) -> Steps:
        return ring.all_reduce(n + self.shift)


def two_args(shift: int, n: int) -> Steps:
    return ring.all_reduce(n + shift)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (partial(two_args, 0), "two_args"),
        (partial(partial(two_args), 0), "two_args"),
        (Counted(), "Counted"),
        (Rooted(), "Rooted"),
        (Rooted().__call__, "__call__"),
        (lambda n: list(ring.all_reduce(n)), "<lambda>"),
    ],
)
def test_anything_callable_is_an_algorithm(function: Callable[[int], Steps], name: str) -> None:
    for made in (proved("all_reduce", function, 4).plan, plan("all_reduce", function, 4)):
        assert made.algorithm == name
        assert list(map(str, made.fronts())) == list(map(str, plan("all_reduce", "ring", 4).fronts()))


def test_many_threads_may_ask() -> None:
    """All get the same answer, whoever proves it first."""
    answers: list[Any] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        answers.extend((size, proved("all_reduce", "two_shot", size)) for size in range(2, 12))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert len(answers) == 80
    assert all(answer == proved("all_reduce", "two_shot", size) for size, answer in answers)


def test_what_was_proved_is_found_again_at_once() -> None:
    """A microsecond or so; a hundred of them are allowed here, where proving takes a thousand."""
    mine = plan("all_reduce", "ring", 16)
    for algorithm in ("ring", ring.all_reduce, mine):
        first = proved("all_reduce", algorithm, 16)
        begin = time.thread_time()  # others may have the core meanwhile
        assert all(proved("all_reduce", algorithm, 16) is first for _ in range(1000))
        assert time.thread_time() - begin < 0.1


def endless(n: int) -> Steps:
    while True:
        yield copy(out(0), inp(0))


def endless_nothing(n: int) -> Steps:
    while True:
        yield ()


def endless_empty(n: int) -> Steps:
    while True:
        yield copy(out(np.arange(0)), inp(0))


@pytest.mark.parametrize("function", [endless, endless_nothing, endless_empty])
def test_a_deadline_ends_it(function: Callable[[int], Steps]) -> None:
    begin = time.monotonic()
    with pytest.raises(CollectiveTimeout) as error:
        proved("all_reduce", function, 3, 0, Deadline(0.2))
    assert time.monotonic() - begin < 10
    text = str(error.value)
    assert text.startswith(
        f"all_reduce {function.__name__} over 3 ranks timed out after 0.2 s: its algorithm was still making step"
    )
    plan_of_it = Plan("all_reduce", "mine", 3, 0, 1, lambda: function(3))
    with pytest.raises(CollectiveTimeout, match=r"Plan\(all_reduce, mine, size=3, chunks=1\) timed out after 0.1 s"):
        proved("all_reduce", plan_of_it, 3, 0, Deadline(0.1))


def test_after_a_deadline_it_may_be_asked_again() -> None:
    """Nothing half made stays behind."""
    gate = [False]

    def slow(n: int) -> Steps:
        yield from direct.reduce_scatter(n)
        while not gate[0]:
            yield ()
        yield from direct.spread(n)

    with pytest.raises(CollectiveTimeout):
        proved("all_reduce", slow, 3, 0, Deadline(0.05))
    gate[0] = True
    assert proved("all_reduce", slow, 3, 0, Deadline(30)).facts.rank_order
