"""Those that are left of a group form a new one: the same members on all, or none.

Over TCP each rank counts as a host of its own, and half of them with rank 0 may be lost: so they go on as a minority.
"""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from working import works

import hocket
from moments import Signs, held, last
from worlds import Died, World

Own = Callable[[int], World]


def fail(group: Any, victims: tuple[int, ...]) -> hocket.HocketError:
    """The victims die in the middle of calls; what the others get."""
    x = np.ones(100_000)
    for _ in range(3):
        group.all_reduce(x)
    if victims:
        last(group, *victims)
    if group.rank in victims:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            group.all_reduce(x)
    except hocket.HocketError as error:
        return error


def again_and_again(group: Any, rounds: list[tuple[int, ...]]) -> list[tuple[Any, ...]]:
    """The victims of each round die, by their first numbers."""
    members, lived = list(range(group.size)), group
    for victims in rounds:
        mine = members[lived.rank]
        fail(lived, tuple(members.index(victim) for victim in victims))
        lived = lived.recover(allow_minority=True)
        members = [r for r in members if r not in victims]
        assert members[lived.rank] == mine
        works(lived, members)
    lived.close()
    return [(loss.ranks, loss.names, loss.completed, loss.why) for loss in lived.history]


@pytest.mark.parametrize("rounds", [[(1,)], [(0,)], [(3,), (0,)], [(1,), (3,), (0,)], [(0, 2)], [(0, 1, 3)]], ids=str)
def test_the_others_go_on(own: Own, rounds: list[tuple[int, ...]]) -> None:
    outcomes = own(4).outcomes(again_and_again, rounds)
    dead = {rank for victims in rounds for rank in victims}
    histories = [outcome for rank, outcome in enumerate(outcomes) if rank not in dead]
    assert all(isinstance(outcomes[rank], Died) for rank in dead)
    assert all(history == histories[0] for history in histories), histories
    assert sum(len(loss[0]) for loss in histories[0]) == len(dead)
    assert all(loss[2] >= 3 and "died" in loss[3] for loss in histories[0])


def nobody_is_lost(group: Any) -> int:
    """A mismatch or an exception in an operator, ten times, in groups made of each other."""

    def operator(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        raise ArithmeticError("in the operator")

    before: list[Any] = []
    for turn in range(10):
        with pytest.raises((hocket.HocketError, ArithmeticError)):
            group.all_reduce(np.ones(2 + (turn % 2 and group.rank == 1)), operator if turn % 2 == 0 else "sum")
        group = group.recover(allow_minority=True)
        works(group, list(range(group.size)))
        before.append(held())
    group.close()
    assert before[-1] <= before[2] or max(before[-1]) <= max(before[2]) + 1, before
    return len(group.history)


def test_a_group_in_which_nobody_is_lost_is_formed_anew(own: Own) -> None:
    assert own(3).run(nobody_is_lost) == [10] * 3


def needs_an_error(group: Any) -> None:
    with pytest.raises(hocket.HocketError, match="nothing has ended this group"):
        group.recover(allow_minority=True)
    works(group, list(range(group.size)))


def test_a_good_group_is_left_as_it_is(own: Own) -> None:
    own(2).run(needs_an_error)


def in_the_middle(group: Any, victim: int, method: str, when: int) -> list[Any]:
    """The victim dies in recover(), before its `when`-th step of one kind."""
    fail(group, (3,))
    rank, members = group.rank, [r for r in range(4) if r not in (3, victim)]
    if rank == victim:
        endpoint = group._calls.endpoint
        steps = iter(range(1000))

        class Mortal:
            def __getattr__(self, name: str) -> Any:
                if name == method and next(steps) == when:
                    os.kill(os.getpid(), signal.SIGKILL)
                return getattr(endpoint, name)

        group._calls.endpoint = Mortal()
    group = group.recover(allow_minority=True)
    if group.size > len(members):  # it belonged to the new group already
        with pytest.raises(hocket.PeerLost):
            group.barrier()
        group = group.recover(allow_minority=True)
    works(group, members)
    group.close()
    return [rank, group.size, sorted(name for loss in group.history for name in loss.names)]


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize(
    ("method", "when"), [("say_where", 0), ("say_where", 1), ("settle", 0), ("settle", 1), ("absent", 0), ("leave", 0)]
)
def test_a_death_in_the_middle_of_it(own: Own, victim: int, method: str, when: int) -> None:
    outcomes = own(4).outcomes(in_the_middle, victim, method, when)
    left = [outcome for rank, outcome in enumerate(outcomes) if rank not in (3, victim)]
    assert [outcome[:2] for outcome in left] == [[r, 2] for r in range(3) if r != victim], outcomes
    assert left[0][2] == left[1][2]
    assert len(left[0][2]) == 2


def wakes(group: Any, signs: Signs) -> str:
    """Rank 1 is stopped in the middle of a call, and wakes when the others have a group without it."""
    whole = group.empty(1 << 18)
    whole[:] = 1
    group.barrier()
    if group.rank == 1:
        signs.give(f"pid {os.getpid()}")
    try:
        while True:
            group.all_reduce(whole, out=whole)
    except hocket.HocketError as error:
        first = error
    whole[:] = 5
    if group.rank == 1:
        with pytest.raises(hocket.HocketError, match=r"went on without rank 1|are no majority"):
            group.recover()
        return str(first)
    new = group.recover(allow_minority=True)
    works(new, [0, 2])
    if new.rank == 0:
        signs.give("recovered")
    signs.wait("awake")
    works(new, [0, 2])
    new.close()
    assert (whole == 5).all()
    return str(first)


def test_who_wakes_up_late_changes_nothing(own: Own, signs: Signs, transport: str) -> None:
    world = own(3)
    world.start(wakes, signs, timeout=60)
    pid = world.processes[1].pid
    signs.wait(f"pid {pid}")
    os.kill(pid, signal.SIGSTOP)
    signs.wait("recovered")
    os.kill(pid, signal.SIGCONT)
    signs.give("awake")
    first, zombie, third = world.finish()
    assert first == third
    assert "rank 1 (pid " in first
    if transport == "shm":
        assert zombie.startswith("the others went on without rank 1 (pid ")
        assert first in zombie
    else:  # what was on its way to it may have kept them from telling it that: then it knows that it was stopped
        assert re.match(r"the others (may have gone|went) on without rank 1 \(pid ", zombie)


def some_do_not_come(group: Any) -> Any:
    fail(group, (0,))
    if group.rank == 2:
        group.close()
        return None
    new = group.recover(allow_minority=True)
    works(new, [1, 3])
    return new.size


def test_who_leaves_instead_is_not_waited_for(own: Own) -> None:
    assert own(4).outcomes(some_do_not_come)[1:] == [2, None, 2]


def one_is_late(group: Any, signs: Signs) -> Any:
    fail(group, (0,))
    if group.rank == 2:
        signs.wait("without it")
        with pytest.raises(hocket.HocketError, match=r"was late in recover|are no majority"):
            group.recover()
        return None
    new = group.recover(timeout=1.5, allow_minority=True)
    works(new, [1, 3])
    signs.give("without it")
    return new.size


def test_who_does_not_come_in_time_is_left_out(own: Own, signs: Signs) -> None:
    assert own(4).outcomes(one_is_late, signs)[1:] == [2, None, 2]


def has_no_memory(group: Any, call: str, number: int, again: bool) -> Any:
    """Rank 1 has none to share with those that are left: it is told so. The others go on, with it where it has some
    again at once."""
    group.all_reduce(1)
    last(group, 2)
    if group.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(hocket.HocketError):
        group.all_reduce(1)
    if group.rank == 1:
        function, before = getattr(os, call), held()

        def refuse(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        setattr(os, call, refuse)
        with pytest.raises(hocket.RendezvousError, match=f"a new group cannot be formed: .*{os.strerror(number)}"):
            group.recover(timeout=20, allow_minority=True)
        setattr(os, call, function)
        assert held() == before
        if not again:
            return None
    new = group.recover(timeout=20, allow_minority=True)
    works(new, [0, 1, 3] if again else [0, 3])
    new.close()
    return new.size


@pytest.mark.parametrize(
    ("call", "number", "again"), [("memfd_create", errno.ENOMEM, True), ("ftruncate", errno.ENOSPC, False)]
)
def test_who_has_no_memory_says_so_and_is_left_out(own: Own, call: str, number: int, again: bool) -> None:
    outcomes = own(4).outcomes(has_no_memory, call, number, again)
    assert isinstance(outcomes.pop(2), Died)
    assert outcomes == ([3, 3, 3] if again else [2, None, 2])


def interrupted_in_the_end(group: Any) -> int:
    """Rank 0 is interrupted while recover() closes the old group. It calls it once more."""
    x = np.ones(10)
    group.all_reduce(x)
    last(group, 2)
    if group.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(hocket.HocketError):
        group.all_reduce(x)
    if group.rank == 0:

        def interrupt(_: object) -> None:
            del group._close
            raise KeyboardInterrupt

        group._close = interrupt
        with pytest.raises(KeyboardInterrupt):
            group.recover(timeout=20, allow_minority=True)
    new = group.recover(timeout=20, allow_minority=True)
    works(new, [0, 1])
    new.close()
    return new.size


def test_an_interrupt_at_the_very_end(own: Own) -> None:
    """The new group is there, and this rank has not got it: it is not lost."""
    assert own(3).outcomes(interrupted_in_the_end)[:2] == [2, 2]
