"""Loops that go on: whoever is lost costs a step at most, whoever comes gets the state, and nobody another result."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hocket
from hocket.group import elastic
from hocket.rendezvous.porch import Porch
from moments import Signs, stopped
from ports import free_ports
from worlds import TRANSPORTS, Died, World, first_host, raised

Own = Callable[[int], World]
SECRET = "of those that meet here"


def me() -> int:
    """The number of this process, whatever its rank is."""
    return int(os.environ["RANK"])


def entered(folder: str, size: int) -> Any:
    """The group of the first `size` processes, for these and for those that join it."""
    place = f"file://{folder}"
    if me() < size:
        return hocket.init(30, rank=me(), size=size, rendezvous=place, secret=SECRET)
    return hocket.join(30, rendezvous=place, secret=SECRET)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Counting:
    """Adds the number of each step to a sum, as a mean of all ranks' equal shares. What it has seen is not in the
    state: it is this process's."""

    def __init__(self, steps: int, here: Callable[[Any, int, str], object] = lambda group, step, place: None) -> None:
        self.steps, self.here = steps, here
        self.done: list[int] = []
        self.begun: list[tuple[int, int]] = []  # from which step, with how many

    def state(self) -> dict[str, Any]:
        return {"sum": np.zeros(1000), "step": 0}

    def __call__(self, group: Any, state: dict[str, Any]) -> Iterator[None]:
        self.begun.append((state["step"], group.size))
        while (step := state["step"]) < self.steps:
            self.here(group, step, "before")
            state["sum"] += group.all_reduce(np.full(1000, step + 1.0), op="mean")
            self.here(group, step, "in the middle")
            state["step"] += 1
            self.done.append(step)
            yield
            self.here(group, step, "after")
        return group.size

    def right(self, state: dict[str, Any]) -> bool:
        return state["step"] == self.steps and bool((state["sum"] == self.steps * (self.steps + 1) / 2).all())


# ---- losses ----------------------------------------------------------------------------------------------------------


def loses(_: Any, folder: str, victims: dict[tuple[int, int], str]) -> Any:
    """At each of these steps that process dies, there."""

    def strike(group: Any, step: int, place: str) -> None:
        if victims.get((me(), step)) == place:
            die()

    count = Counting(30, strike)
    state = count.state()
    size = hocket.elastic(state, count, group=entered(folder, 4))
    assert count.right(state)
    return size, len(count.done), count.begun


@pytest.mark.parametrize("place", ["before", "in the middle", "after"])
def test_a_loss_costs_a_step_at_most(own: Own, tmp_path: Path, transport: str, place: str) -> None:
    victims = {(3, 7): place, (1, 20): place}
    seen = own(4).outcomes_alone(loses, str(tmp_path), victims)
    assert isinstance(seen[1], Died)
    assert isinstance(seen[3], Died)
    for rank in (0, 2):
        size, done, begun = seen[rank]
        assert size == 2
        assert done <= 32
        assert [many for _, many in begun] == [4, 3, 2]
        assert all(first in (step, step + 1) for (first, _), step in zip(begun[1:], (7, 20), strict=True)), begun


def half_done(_: Any, folder: str, signs: Signs, late: int) -> Any:
    """One rank fails in a step that the others have committed: it gets their state, and does not do it again."""
    failed: list[int] = []

    def strike(group: Any, step: int, place: str) -> None:
        if me() == late and step == 5 and place == "in the middle" and not failed:
            for other in {0, 1, 2} - {late}:
                signs.wait(f"{other} has committed 6")
            failed.append(step)
            raise hocket.CollectiveTimeout("of another group of this rank's")

    count, commit = Counting(10, strike), elastic._Loop._commit

    def told(loop: Any) -> None:
        commit(loop)
        signs.give(f"{me()} has committed {state['step']}")

    elastic._Loop._commit = told  # type: ignore[method-assign]
    state = count.state()
    hocket.elastic(state, count, group=entered(folder, 3))
    assert count.right(state)
    return count.done


@pytest.mark.parametrize("late", [0, 2])
def test_the_latest_commit_counts(own: Own, tmp_path: Path, signs: Signs, late: int) -> None:
    done = own(3).outcomes_alone(half_done, str(tmp_path), signs, late)
    assert done.pop(late) == [0, 1, 2, 3, 4, *range(6, 10)]
    assert done == [list(range(10))] * 2


def raises(_: Any, folder: str) -> Any:
    def strike(group: Any, step: int, place: str) -> None:
        if me() == 1 and step == 3:
            raise ArithmeticError("of the program's own")

    count = Counting(8, strike)
    state = count.state()
    size = hocket.elastic(state, count, group=entered(folder, 3))
    assert count.right(state)
    return size


def test_an_error_of_the_program_is_raised_where_it_is(own: Own, tmp_path: Path) -> None:
    seen = own(3).outcomes_alone(raises, str(tmp_path))
    assert (seen[0], seen[2]) == (2, 2)
    assert isinstance(seen[1], ArithmeticError)


def in_vain(_: Any, folder: str) -> str:
    turns: list[int] = []

    def never(group: Any, state: dict[str, Any]) -> Iterator[Any]:
        turns.append(1)
        yield from range(group.all_reduce(0))
        raise hocket.CollectiveTimeout("again")

    error = raised(hocket.CollectiveTimeout, hocket.elastic, {}, never, group=entered(folder, 2))
    assert len(turns) == 3
    return str(error)


def test_what_fails_again_and_again_is_raised(own: Own, tmp_path: Path) -> None:
    assert any("again" in str(text) for text in own(2).outcomes_alone(in_vain, str(tmp_path)))


def dies_at_the_end(_: Any, folder: str) -> Any:
    """When its work is done, before or after the others know."""
    if me() == 1:
        elastic.Commit.make = lambda *_: die()  # type: ignore[method-assign,assignment]
    count = Counting(5)
    state = count.state()
    hocket.elastic(state, count, group=entered(folder, 3))
    assert count.right(state)
    return len(count.done)


def test_a_loss_at_the_very_end(own: Own, tmp_path: Path) -> None:
    first, second, third = own(3).outcomes_alone(dies_at_the_end, str(tmp_path))
    assert (first, third) == (5, 5)
    assert isinstance(second, Died)


def whole(_: Any, folder: str) -> Any:
    """A function without a yield is done once more from the beginning, also where a rank is lost behind its end."""
    turns: list[int] = []

    def adds(group: Any, state: dict[str, Any]) -> int:
        turns.append(group.size)
        state["x"] += group.all_reduce(np.ones(3))
        if me() == 1:
            elastic.Commit.make = lambda *_: die()  # type: ignore[method-assign,assignment]
        return group.size

    state = {"x": np.zeros(3)}
    assert hocket.elastic(state, adds, group=entered(folder, 3)) == 2
    assert (state["x"] == 2).all()
    return turns


def test_a_function_without_a_yield_is_done_once_more(own: Own, tmp_path: Path) -> None:
    first, second, third = own(3).outcomes_alone(whole, str(tmp_path))
    assert first == third == [3, 2]
    assert isinstance(second, Died)


# ---- newcomers -------------------------------------------------------------------------------------------------------


def gains(_: Any, folder: str, signs: Signs) -> Any:
    """Two begin; two others come, when the first have come to step 3 and 10, and wait there for them."""

    def meet(group: Any, step: int, place: str) -> None:
        for sign in (3, 10):
            if place == "after" and step >= sign:  # it may never come to be after that very step: somebody comes there
                signs.give(f"step {sign}")

    def wait(group: Any, step: int, place: str) -> None:
        meet(group, step, place)
        if place == "before" and step == 30:
            while group.size + group.pending() < 4:
                pass

    count = Counting(40, wait)
    if me() >= 2:
        signs.wait("step 3" if me() == 2 else "step 10", 60)
        state: dict[str, Any] = {"other": 5, "sum": np.ones(3)}  # of no matter
    else:
        state = count.state()
    size = hocket.elastic(state, count, group=entered(folder, 2))
    assert count.right(state)
    assert sorted(state) == ["step", "sum"]
    return size, count.begun[0][0]


def test_newcomers_get_the_state(own: Own, tmp_path: Path, signs: Signs) -> None:
    seen = own(4).outcomes_alone(gains, str(tmp_path), signs)
    for outcome in seen:
        if isinstance(outcome, BaseException):
            raise outcome
    assert all(size == 4 for size, _ in seen), seen
    assert [first for _, first in seen[:2]] == [0, 0]
    assert all(first > 3 for _, first in seen[2:])


def too_late(_: Any, place: str, signs: Signs, slow: bool) -> str:
    """One comes when the others have made their last commit. A slow one has left its card, and asks for the answer when
    they have ended."""

    def last(group: Any, state: dict[str, Any]) -> Iterator[None]:
        state["x"] += group.all_reduce(1)
        yield
        signs.give("done")
        while not group.pending():
            pass

    meeting = {"rendezvous": place, "secret": SECRET}
    if me() == 2:
        told = Porch._told

        def told_late(*args: Any) -> Any:
            signs.wait("over", 60)
            return told(*args)

        if slow:
            Porch._told = told_late  # type: ignore[method-assign]
        signs.wait("done", 60)
        return str(raised(hocket.RendezvousError, hocket.join, 60, **meeting))
    state = {"x": 0}
    hocket.elastic(state, last, group=hocket.init(30, rank=me(), size=2, **meeting))
    if me() == 0:
        signs.give("over")
    return str(state["x"])


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("kind", ["file", "tcp"])
def test_who_waits_when_all_is_done_is_told(
    own: Own, signs: Signs, tmp_path: Path, transport: str, kind: str, slow: bool
) -> None:
    host = first_host() if TRANSPORTS[transport].layout else "127.0.0.1"
    place = f"file://{tmp_path}/porch" if kind == "file" else f"tcp://{host}:{free_ports(1)[0]}"
    words = "this rank was not let in: all others have ended"
    assert own(3).outcomes_alone(too_late, place, signs, slow) == ["2", "2", words]


def wakes(_: Any, folder: str, signs: Signs) -> Any:
    """Rank 1 is stopped, given up, and joins anew."""

    def strike(group: Any, step: int, place: str) -> None:
        if place != "before":
            return
        if me() == 1 and step == 5 and not signs.given("stopped"):
            signs.give(f"pid {os.getpid()}")
            signs.give("stopped")
            os.kill(os.getpid(), signal.SIGSTOP)
        if me() != 1 and group.size == 2:
            signs.give("without it")
        if step == 39:  # the last step waits for it
            while group.size < 3 and not group.pending():
                pass

    count = Counting(40, strike)
    state = count.state()
    size = hocket.elastic(state, count, group=entered(folder, 3))
    assert count.right(state)
    return size, count.begun


def test_who_was_stopped_joins_anew(own: Own, tmp_path: Path, signs: Signs) -> None:
    world = own(3)
    world.start_alone(wakes, str(tmp_path), signs)
    pid = world.processes[1].pid
    signs.wait(f"pid {pid}")
    stopped(pid)
    signs.wait("without it")
    os.kill(pid, signal.SIGCONT)
    seen = world.finish()
    for outcome in seen:
        if isinstance(outcome, BaseException):
            raise outcome
    assert [size for size, _ in seen] == [3, 3, 3]
    assert seen[1][1][0] == (0, 3)
    assert seen[1][1][-1][1] == 3
    assert seen[0][1][1] == (5, 2)


def lost_and_too_few(_: Any, folder: str) -> Any:
    """One is lost, and in place of it nobody comes: that is waited for once."""
    grow, grown = hocket.Group.grow, []

    def counted(group: Any, *args: Any, **how: Any) -> Any:
        grown.append(group.size)
        return grow(group, *args, **how)

    hocket.Group.grow = counted  # type: ignore[method-assign]
    count = Counting(5, lambda group, step, place: die() if me() == 2 and step == 3 else None)
    how = {"group": entered(folder, 3), "min_size": 3, "patience": 1}
    return str(raised(hocket.CollectiveTimeout, hocket.elastic, count.state(), count, **how)), grown


def test_too_few_are_left(own: Own, tmp_path: Path) -> None:
    words = "of 3 ranks that were waited for there are 2, and 0 that wait to join, after 1 s"
    assert own(3).outcomes_alone(lost_and_too_few, str(tmp_path))[:2] == [(words, [2])] * 2


def too_few(_: Any, folder: str) -> str:
    count = Counting(5)
    how = {"group": entered(folder, 2), "min_size": 3, "patience": 2}
    return str(raised(hocket.CollectiveTimeout, hocket.elastic, count.state(), count, **how))


def test_too_few(own: Own, tmp_path: Path) -> None:
    words = "of 3 ranks that were waited for there are 2, and 0 that wait to join, after 2 s"
    assert own(2).outcomes_alone(too_few, str(tmp_path)) == [words] * 2


def test_alone_and_without_a_yield() -> None:
    state = {"x": 1}
    assert hocket.elastic(state, lambda group, state: group.all_reduce(state["x"]) + 1) == 2
    count = Counting(4)
    state = count.state()
    assert hocket.elastic(state, count) == 1
    assert count.right(state)
    with pytest.raises(TypeError, match="state is a dict"):
        hocket.elastic([1], count)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"state\['a'\]\[0\] is .*of set: a state is made of arrays"):
        hocket.elastic({"a": [{1}]}, count)
