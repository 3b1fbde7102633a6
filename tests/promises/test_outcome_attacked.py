"""What happens to one in the middle of recover(), at each of its steps. Who is lost: the others form one group, and he
none of his own. Who is interrupted, and tries again: he belongs to theirs."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import hocket
from hocket.group import membership, recovery
from moments import stopped, until
from worlds import Died, World, raised

Own = Callable[[int], World]

# Where rank 1 is in recover() when it happens. It comes, settles who belongs to the new group, says that its links are
# formed, and settles whether those of all are.
STEPS = ["before say_where", "after say_where", "before settle", "after settle"]
AT = [(step, turn) for turn in (1, 2) for step in STEPS]
LIMIT = 8.0


class Tripwire:
    """An endpoint; when this step of it comes for the turn-th time, `fire` is called."""

    def __init__(self, endpoint: Any, step: str, turn: int, fire: Callable[[], None]) -> None:
        self._endpoint, self._at, self._fire = endpoint, (step, turn), fire
        self._turns = dict.fromkeys(STEPS, 0)

    def __getattr__(self, name: str) -> Any:
        def step(*args: Any) -> Any:
            self._pass(f"before {name}")
            result = getattr(self._endpoint, name)(*args)
            self._pass(f"after {name}")
            return result

        return step if f"before {name}" in STEPS else getattr(self._endpoint, name)

    def _pass(self, step: str) -> None:
        self._turns[step] += 1
        if self._at == (step, self._turns[step]):
            self._fire()


def interrupt() -> None:
    raise KeyboardInterrupt


def signalled(number: int) -> None:
    os.kill(os.getpid(), number)


FIRE: dict[str, Callable[[], None]] = {
    "killed": lambda: signalled(signal.SIGKILL),
    "stopped": lambda: signalled(signal.SIGSTOP),
    "interrupted": interrupt,
}


def fails(group: Any) -> str:
    """Rank 0 makes another call."""
    x = np.ones(3 if group.rank == 0 else 4)
    return str(raised(hocket.HocketError, group.all_reduce, x))


def recovers(group: Any, how: str, step: str, turn: int) -> tuple[list[int], list[hocket.group.Loss]]:
    """The ranks of the group in which calls succeed at last, by their numbers in this one; and its history."""
    fails(group)
    real, me = membership.Recovery, group.rank
    wired = lambda endpoint, *rest: real(Tripwire(endpoint, step, turn, FIRE[how]), *rest)  # noqa: E731
    with mock.patch.object(membership, "Recovery", wired if me == 1 else real):
        try:
            new = group.recover(LIMIT)
        except KeyboardInterrupt:
            new = group.recover(LIMIT)
    while True:
        with new:
            try:
                there = new.all_gather(np.array([me])).tolist()
                assert new.all_reduce(me + 1) == sum(rank + 1 for rank in there)
                return there, [loss._replace(at=0.0) for loss in new.history]
            except hocket.PeerLost:  # he was lost when all had settled that he belongs to it
                new = new.recover(LIMIT)


@pytest.mark.parametrize(("step", "turn"), AT, ids=str)
def test_killed_in_recover(own: Own, step: str, turn: int) -> None:
    world = own(4)
    outcomes = world.outcomes(recovers, "killed", step, turn, fresh=True)
    assert isinstance(outcomes.pop(1), Died)
    assert outcomes == [outcomes[0]] * 3
    assert outcomes[0][0] == [0, 2, 3]


@pytest.mark.parametrize(("step", "turn"), AT, ids=str)
def test_interrupted_in_recover(own: Own, step: str, turn: int) -> None:
    """Who tries again belongs to the group of all."""
    outcomes = own(4).outcomes(recovers, "interrupted", step, turn, fresh=True)
    assert outcomes == [outcomes[0]] * 4
    assert outcomes[0][0] == [0, 1, 2, 3]


UNMADE = ("its group is to be made", "in the middle of that")
# Between steps, and in the middle of one: what is called then.
MOMENTS = {
    "its group is to be made": (hocket.group, "formed"),
    "in the middle of that": (hocket.group, "Session"),
    "its group is made": (recovery.Recovery, "_all_formed"),
    "all have settled on it": (recovery.Recovery, "loss"),
    "nothing is left but to say so": (hocket.Group, "_left_for"),
}


def threads() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def struck(group: Any, moment: str, again: bool, who: int) -> tuple[list[int], list[int]]:
    """One of them is interrupted at that moment. The ranks of the groups in which it recovers, and it does so
    once more, or leaves."""
    fails(group)
    new, before = None, threads()
    with contextlib.ExitStack() as stack:
        if group.rank == who:
            stack.enter_context(mock.patch.object(*MOMENTS[moment], side_effect=KeyboardInterrupt))
            stack.enter_context(pytest.raises(KeyboardInterrupt))
        new = group.recover(LIMIT)
    if group.rank == who and moment in UNMADE:  # none of a group that there is not reads from numbers closed by now
        until(lambda: threads() == before, "its threads have ended", 5)
    if group.rank == who and not again:
        group.close()
        return [], []
    new = group.recover(LIMIT) if new is None else new
    there = []
    for _ in range(2):
        with contextlib.suppress(hocket.PeerLost):
            there.append(new.all_gather(np.array([group.rank]), timeout=60).tolist())
            continue
        there.append([])
        new = new.recover(LIMIT)
    new.close()
    return there[0], there[1]


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("moment", MOMENTS)
def test_interrupted_between_its_steps(own: Own, moment: str, who: int) -> None:
    """Who tries again belongs to the group of all, and no call of that is the worse for it."""
    assert own(3).outcomes(struck, moment, True, who) == [([0, 1, 2], [0, 1, 2])] * 3


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("moment", [*MOMENTS][2:])
def test_interrupted_and_gone(own: Own, moment: str, who: int) -> None:
    """Who does not try again, and leaves, is seen to have left by the others."""
    outcomes = own(3).outcomes(struck, moment, False, who)
    outcomes.pop(who)
    others = [rank for rank in range(3) if rank != who]
    assert outcomes == [outcomes[0]] * 2
    unsettled = moment == "its group is made" and outcomes[0][0] == others  # as it can be between hosts
    assert unsettled or outcomes[0] == ([], others)


def over_by_then(group: Any, who: int) -> list[int]:
    """All have settled on the new group, and one does not come to its first call, which ends it."""
    fails(group)
    if group.rank == who:
        with (
            mock.patch.object(recovery.Recovery, "loss", side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            group.recover(LIMIT)
        endpoint = group._recovery._made._calls.endpoint
        until(lambda: endpoint.outcome() is not None, "the new group is over")
    new = group.recover(LIMIT)
    raised(hocket.HocketError, new.barrier, timeout=0.5)
    new = new.recover(LIMIT)
    there: list[int] = new.all_gather(np.array([group.rank])).tolist()
    new.close()
    return there


@pytest.mark.parametrize("who", [0, 1])
def test_interrupted_and_over_by_then(own: Own, who: int) -> None:
    """Who tries again gets that group, and recovers from it with the others."""
    assert own(3).outcomes(over_by_then, who, fresh=True) == [[0, 1, 2]] * 3


LIMITS = {"memory": resource.RLIMIT_AS, "descriptors": resource.RLIMIT_NOFILE}


def lacking(group: Any, what: str, again: bool) -> Any:
    """Rank 1 has linked, and nothing is left to map the new group with."""
    fails(group)
    real, tight = group._made, [what]

    def scarce(*args: Any, **how: Any) -> Any:
        if not tight:
            return real(*args, **how)
        soft, hard = resource.getrlimit(LIMITS[what])
        if what == "memory":
            least = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + (64 << 20)
        else:
            least = next(fd for fd in range(hard) if not Path(f"/proc/self/fd/{fd}").exists())
        resource.setrlimit(LIMITS[what], (least, hard))
        try:
            return real(*args, **how)
        finally:
            resource.setrlimit(LIMITS[what], (soft, hard))

    if group.rank == 1:
        group._made = scarce
        error = raised(hocket.RendezvousError, group.recover, LIMIT)
        assert any(words in str(error) for words in ("Cannot allocate memory", "Too many open files")), error
        if not again:
            return None
        tight.clear()
    new = group.recover(LIMIT)
    there = new.all_gather(np.array([group.rank])).tolist()
    new.close()
    return there


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("what", LIMITS)
def test_nothing_left_for_the_new_group(own: Own, what: str, again: bool) -> None:
    """Who cannot map it says so before it is anybody's, and is left out unless it tries again."""
    outcomes = own(4).outcomes(lacking, what, again, fresh=True)
    there = [0, 1, 2, 3] if again else [0, 2, 3]
    assert again or outcomes[1] is None, outcomes[1]
    assert [outcomes[rank] for rank in there] == [there] * len(there)


@pytest.mark.parametrize(("step", "turn"), [AT[1], AT[5], AT[7]], ids=str)
def test_stopped_in_recover(own: Own, step: str, turn: int) -> None:
    """When he wakes up, the others have gone on without him."""
    world = own(4)
    world.start(recovers, "stopped", step, turn, fresh=True)
    pid = world.processes[1].pid
    outcomes = world.finish(without=1)
    stopped(pid)
    os.kill(pid, signal.SIGCONT)
    late = world.finish(without=(0, 2, 3))[1]
    assert isinstance(late, hocket.PeerLost), late
    assert "the others went on without rank " in str(late)
    outcomes.pop(1)
    assert outcomes == [outcomes[0]] * 3
    assert outcomes[0][0] == [0, 2, 3]
