"""Who is lost in the middle of recover(), at each of its steps: the others form one group, and he none of his own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

import hocket
from hocket.group import membership
from moments import stopped
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
    recovery, me = membership.Recovery, group.rank
    wired = lambda endpoint, *rest: recovery(Tripwire(endpoint, step, turn, FIRE[how]), *rest)  # noqa: E731
    with mock.patch.object(membership, "Recovery", wired if me == 1 else recovery):
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
    """Who tries again belongs to the group of all; or to none, where they may have that as it had formed its links."""
    outcomes = own(4).outcomes(recovers, "interrupted", step, turn, fresh=True)
    late = turn == 2 and step != "before say_where" and isinstance(outcomes[1], hocket.PeerLost)
    assert late or (step, turn) != ("after settle", 2)
    if late:
        assert isinstance(outcomes[1], hocket.PeerLost), outcomes[1]
        assert "the others went on without rank 1 " in str(outcomes.pop(1))
    assert outcomes == [outcomes[0]] * len(outcomes)
    assert outcomes[0][0] == [0, 2, 3] if late else [0, 1, 2, 3]


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
