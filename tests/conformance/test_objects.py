"""Objects between ranks: whatever can be pickled, and nothing that was not asked for."""

from __future__ import annotations

import pickle
import sys
import threading
from typing import Any

import numpy as np
import pytest

import hocket
from hocket.calls import objects
from worlds import Worlds, raised

every_size = pytest.mark.parametrize("size", [1, 2, 3, 5])


def thing(rank: int, size: int) -> dict[str, Any]:
    """Of another pickled length on each rank."""
    return {
        "rank": rank,
        "bytes": bytes((rank + i) % 251 for i in range(size + 7 * rank)),
        "deep": [(None, {1.5: rank})],
    }


def all_kinds(group: Any, few: int | None = None) -> None:
    n, rank = group.size, group.rank
    if few is not None:
        objects.FEW, before = few, objects.FEW
        try:
            all_kinds(group)
        finally:
            objects.FEW = before
        return
    for size in (
        0,
        100,
        *range(1950, 2000, 7),
        3000,
        16_300,
        16_384,
        200_000,
        100,
    ):  # padded or not, and about where that changes
        things = [thing(r, size) for r in range(n)]
        for _ in range(2):
            assert group.all_gather_object(things[rank]) == things
            for root in range(n):
                got = group.gather_object(things[rank], root=root)
                assert got == (things if rank == root else None)
                given = things[root] if rank == root else object
                got = group.broadcast_object(given, root=root)
                assert got == things[root]
                assert (got is given) == (rank == root)
                got = group.scatter_object(things if rank == root else None, root=root)
                assert got == things[rank]
    assert group.broadcast_object(None) is None
    uneven = [b"x" * (100_000 if r == n - 1 else 1) for r in range(n)]
    assert group.all_gather_object(uneven[rank]) == uneven
    assert group.scatter_object(iter(uneven) if rank == 0 else None) == uneven[rank]
    array = np.arange(5) + rank
    assert [x.tolist() for x in group.all_gather_object(array)] == [(np.arange(5) + r).tolist() for r in range(n)]


@every_size
def test_every_rank_gets_what_was_meant_for_it(world: Worlds, size: int) -> None:
    world(size).run(all_kinds)


@pytest.mark.parametrize("size", [2, 3])
def test_where_there_are_too_many_ranks_for_a_head(world: Worlds, size: int) -> None:
    world(size).run(all_kinds, 0)


def letters(group: Any) -> None:
    n, rank = group.size, group.rank
    right, left = (rank + 1) % n, (rank - 1) % n
    for size in (0, 5000, 3_000_000):
        sender = threading.Thread(target=group.send_object, args=(thing(rank, size), right), kwargs={"tag": 3})
        sender.start()
        assert group.recv_object(left, tag=3) == thing(left, size)
        sender.join()
    group.send_object(rank, right)
    got = group.recv_object(return_source=True)
    assert got == (left, left)
    assert (got.message, got.source) == (left, left)


@every_size
def test_messages(world: Worlds, size: int) -> None:
    world(size).run(letters)


def no_mixing(group: Any) -> None:
    """An array is never unpickled, even if its bytes could be; an object is never taken for an array."""
    other, poison = 1 - group.rank, np.frombuffer(pickle.dumps(exit), np.uint8)
    group.send(poison, other)
    text = str(raised(hocket.MismatchError, group.recv_object, other))
    assert f"it sent an array, uint8[{len(poison)}]: receive it with recv" in text
    for options in ({}, {"out": np.zeros(5, np.uint8)}, {"return_source": True}):
        group.send_object(None, other)
        text = str(raised(hocket.MismatchError, group.recv, other, **options))
        assert "object" in text
        group.barrier()
    group.send_object(1, other, tag=8)
    assert group.probe(other, tag=8)[:2] == (other, 8)
    assert group.probe(other, tag=8)[3:] == (None, None)
    assert group.recv_object(other, tag=8) == 1


def test_arrays_are_no_objects(world: Worlds) -> None:
    world(2).run(no_mixing)


class NotThere:
    """Pickled to what cannot be made."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __reduce__(self) -> Any:
        return int, ("no number",)


class Calls:
    """Makes a call of the group in its own unpickling: with everybody else, who do too."""

    group: Any = None

    def __reduce__(self) -> Any:
        return _call, ()


def _call() -> Any:
    return Calls.group.all_reduce(np.ones(3)).tolist()


def failures(group: Any) -> None:
    n, rank = group.size, group.rank
    for method in (group.all_gather_object, group.gather_object):
        raised(
            (TypeError, AttributeError, pickle.PicklingError), method, lambda: 0
        )  # on every rank, and nothing is sent
    for wrong in ([], [1] * (n + 1), None):
        if rank == 0:
            assert f"one object for each of {n} ranks" in str(raised(ValueError, group.scatter_object, wrong))
    raised(ValueError, group.broadcast_object, 1, root=n)
    raised(ValueError, group.broadcast_object, 1, timeout=0)
    if n > 1:
        raised(ValueError, group.all_gather_object, NotThere(rank))  # the call is over, and the group as it was
    Calls.group = group
    assert group.all_gather_object(Calls()) == [[n] * 3] * n
    for call in (group.all_reduce, group.all_gather):
        assert "broadcast_object, all_gather_object" in str(raised(TypeError, call, {"a": 1}))
    assert group.all_gather_object(rank) == list(range(n))


@every_size
def test_failures_leave_the_group_as_it_was(world: Worlds, size: int) -> None:
    world(size).run(failures)


def confused(group: Any) -> str:
    call = [group.all_gather_object, group.gather_object, group.all_gather][group.rank]
    return str(raised(hocket.MismatchError, call, np.array([5]) if group.rank == 2 else 5))


def test_they_are_told_from_all_other_calls(world: Worlds) -> None:
    """The lengths that they begin with are no all_gather of the user's."""
    for text in world(3).run(confused, fresh=True):
        assert "gather_object(" in text


def in_turns(group: Any) -> None:
    """Two threads, each with a group of its own; and calls of arrays in flight around those of objects."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        second, wrong = group.subgroup(range(group.size)), []

        def talk(mine: Any, number: int) -> None:
            got = [mine.all_gather_object((number, turn, mine.rank)) for turn in range(40)]
            if got != [[(number, turn, r) for r in range(mine.size)] for turn in range(40)]:
                wrong.append(number)

        threads = [threading.Thread(target=talk, args=(each, i)) for i, each in enumerate((group, second))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        second.close()
        works = [group.all_reduce(np.full(10, i), async_op=True) for i in range(20)]
        assert group.all_gather_object(1) == [1] * group.size
        assert [int(work.wait()[0]) for work in works] == [i * group.size for i in range(20)]
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


@pytest.mark.parametrize("size", [1, 3])
def test_threads_and_calls_in_flight(world: Worlds, size: int) -> None:
    world(size).run(in_turns)


def shared(group: Any) -> None:
    """Threads of one rank that make the same calls of one group in the same buffers, of short objects and long."""
    interval, wrong = sys.getswitchinterval(), []
    sys.setswitchinterval(1e-6)

    def talk(number: int) -> None:
        for turn in range(60):
            mine = bytes([number]) * (turn * 97)
            if group.all_gather_object(mine) != [mine] or group.scatter_object([mine]) is not mine:
                wrong.append((number, turn))

    try:
        threads = [threading.Thread(target=talk, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_threads_share_a_group(world: Worlds) -> None:
    world(1).run(shared)


def out_of_time(group: Any) -> str:
    if group.rank == 0:
        return str(raised(hocket.CollectiveTimeout, group.all_gather_object, 1, timeout=0.2))
    return str(raised(hocket.HocketError, group.recv, 0))  # it is elsewhere, and is told


def test_a_rank_that_does_not_come(world: Worlds) -> None:
    first, second = world(2).run(out_of_time, fresh=True)
    assert "all_gather_object()" in first + second
