"""Who waits for room waits for the rank that has not read what is in the way, and says so: in errors, and to whoever
looks on. It may be none of those that are sent to next."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hocket
from hocket.observe.status import look
from moments import Signs, stopped, until
from worlds import Died, World, Worlds, raised

Own = Callable[[int], World]
Call = Callable[..., np.ndarray]

SIZE = 4
SHORT, LONG = 1000, 2_400_000  # of float64: one message, and many times what is on its way


def scattered(group: Any, x: np.ndarray, **options: Any) -> np.ndarray:
    return group.scatter(x if group.rank == 0 else None, root=0, **options)


def spread(group: Any, x: np.ndarray, **options: Any) -> np.ndarray:
    return group.broadcast(x if group.rank == 0 else np.zeros_like(x), root=0, **options)


CALLS: dict[str, tuple[Call, str]] = {
    "broadcast": (spread, "direct"),
    "broadcast by a tree": (spread, "binomial_tree"),
    "broadcast by two trees": (spread, "double_binary_tree"),
    "scatter": (scattered, "direct"),
    "scatter by a tree": (scattered, "binomial_tree"),
}


def call(group: Any, name: str, x: np.ndarray, **options: Any) -> None:
    """One of these, from rank 0, and what comes of it."""
    function, algorithm = CALLS[name]
    result = function(group, x, algorithm=algorithm, **options)
    right = x if function is spread else x.reshape(group.size, -1)[group.rank]
    assert np.array_equal(result, right)


# ---- who looks on ----------------------------------------------------------------------------------------------------


Waits = dict[int, int | None]  # for whom each rank that is in a call waits there


def waits(world: World) -> list[Waits]:
    """In each group of these processes: some may be left of earlier tests."""
    pids = {process.pid for process in world.processes}
    groups = [group for group in look(0.0)[0] if group.pids() and set(group.pids()) <= pids]
    calls = [{seen.record.rank: seen.record.calls[-1] for seen in group.seen if seen.record.calls} for group in groups]
    return [{rank: call.waited_for for rank, call in last.items() if call.left is None} for last in calls]


def one_after_the_other(rank: int, waits: Waits) -> Iterator[int]:
    """Whom that rank waits for, whom that one does, and so on."""
    seen = {rank}
    while (found := waits.get(rank)) is not None:
        yield found
        if found in seen:
            return
        seen.add(rank := found)


def until_all_wait_for(world: World, who: int) -> Waits:
    """Those that do not wait for that rank wait for one that does."""
    found: list[Waits] = []

    def all_do(group: Waits) -> bool:
        return all([*one_after_the_other(rank, group)][-1:] == [who] for rank in range(SIZE) if rank != who)

    def shown() -> bool:
        found[:] = sorted(waits(world), key=all_do)
        return bool(found) and all_do(found[-1])

    try:
        until(shown, "")
    except AssertionError:
        world.close()
        pytest.fail(f"not all wait for rank {who} in the end: {found}")
    return found[-1]


def late(group: Any, signs: Signs, name: str, count: int, who: int) -> None:
    for turn in range(4):
        if turn == 3 and group.rank == who:
            signs.give("late")
            signs.wait("seen", 60)
        call(group, name, np.arange(count) + float(turn))


@pytest.mark.parametrize("who", [1, 2, 3])
@pytest.mark.parametrize("count", [SHORT, LONG])
@pytest.mark.parametrize("name", CALLS)
def test_who_does_not_read_is_shown(world: Worlds, signs: Signs, name: str, count: int, who: int) -> None:
    """It is in no call. The root, which waits for room or for it to come, waits for nobody else."""
    ranks = world(SIZE)
    ranks.start(late, signs, name, count, who)
    signs.wait("late")
    found = until_all_wait_for(ranks, who)
    if CALLS[name][1] == "direct":
        assert found[0] == who
    signs.give("seen")
    assert ranks.finish() == [None] * SIZE


ORDER = [2, 0, 3, 1]  # the ranks of a part, as the whole numbers them


def late_in_part(group: Any, signs: Signs, name: str, who: int) -> None:
    part = group.subgroup(ORDER)
    late(part, signs, name, LONG, who)
    group.barrier()


@pytest.mark.parametrize("who", [2, 3])
@pytest.mark.parametrize("name", ["broadcast", "scatter"])
def test_in_a_part_it_is_shown_by_its_number_there(own: Own, signs: Signs, name: str, who: int) -> None:
    world = own(SIZE)
    world.start(late_in_part, signs, name, who)
    signs.wait("late")
    assert until_all_wait_for(world, who)[0] == who
    signs.give("seen")
    assert world.finish() == [None] * SIZE


def again_and_again(group: Any, signs: Signs, name: str) -> int:
    """Until rank 0 sees the sign, and all see that it has."""
    x, turns = np.zeros(LONG), 0
    signs.give(f"begun {group.rank}")
    while not x[0]:
        x[:] = signs.given("enough") if group.rank == 0 else 0
        function, algorithm = CALLS[name]
        x = function(group, x, algorithm=algorithm)
        turns += 1
    return turns


@pytest.mark.parametrize("who", [2, 3])
def test_who_is_stopped_anywhere_is_shown_and_all_go_on_when_it_does(own: Own, signs: Signs, who: int) -> None:
    """Most often in the middle of a call, which it has read a part of. It is not given up."""
    world = own(SIZE)
    world.variables = {"HOCKET_HEARTBEAT_TIMEOUT": "60"}
    world.start(again_and_again, signs, "broadcast")
    for rank in range(SIZE):
        signs.wait(f"begun {rank}")
    for _ in range(5):
        world.signal(who, signal.SIGSTOP)
        stopped(world.processes[who].pid)

        def shown() -> bool:
            return any(group.get(0) == who for group in waits(world))

        until(shown, f"rank 0 waiting for rank {who}")
        world.signal(who, signal.SIGCONT)
    signs.give("enough")
    turns = world.finish()
    assert len(set(turns)) == 1, turns


# ---- what errors say -------------------------------------------------------------------------------------------------


def elsewhere(group: Any, name: str, who: int) -> str:
    """Rank `who` waits for a message that does not come, and shows that it waits."""
    call(group, name, np.arange(LONG) + 1.0)
    group.barrier()
    if group.rank == who:
        return str(raised(hocket.CollectiveTimeout, group.recv, 1 if who > 1 else 2, tag=5))
    return str(raised(hocket.CollectiveTimeout, call, group, name, np.arange(LONG) + 2.0, timeout=1.5))


@pytest.mark.parametrize("who", [1, 2, 3])
@pytest.mark.parametrize("name", CALLS)
def test_who_is_elsewhere_is_blamed(own: Own, name: str, who: int) -> None:
    (text,) = set(own(SIZE).run(elsewhere, name, who))
    assert re.findall(r"in vain for rank (\d)", text) == [str(who)], text
    assert f"  rank {who} is in recv(src=" in text


def dying(group: Any, signs: Signs, name: str, who: int) -> str:
    call(group, name, np.arange(LONG) + 1.0)
    if group.rank == who:
        signs.give("late")
        signs.wait("never", 60)
    error = raised(hocket.PeerLost, call, group, name, np.arange(LONG) + 2.0)
    assert error.lost == (who,)
    return str(error)


@pytest.mark.parametrize("who", [2, 3])
@pytest.mark.parametrize("name", ["broadcast", "scatter"])
def test_who_dies_while_it_is_waited_for_is_lost(own: Own, signs: Signs, name: str, who: int) -> None:
    world = own(SIZE)
    world.start(dying, signs, name, who)
    signs.wait("late")
    until_all_wait_for(world, who)
    world.signal(who, signal.SIGKILL)
    outcomes = world.finish()
    assert isinstance(outcomes.pop(who), Died)
    (text,) = set(outcomes)
    assert text.startswith(f"rank {who} (pid "), text
