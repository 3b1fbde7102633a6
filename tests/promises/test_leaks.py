"""What is dropped is gone: groups with their descriptors, threads and mappings, arrays with their memory."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hocket
from moments import Signs, asleep, held, seconds, until
from worlds import World

Own = Callable[[int], World]
MIB = 2**20


def dropped(group: Any, use: str, turns: int) -> None:
    for turn in range(turns):
        part = group.split(0, group.rank if turn % 2 else -group.rank)
        if use == "async":
            assert part.all_reduce(turn, async_op=True).wait() == 2 * turn
        elif use == "in flight":
            part.all_reduce(turn, async_op=True)
        elif use == "messages":
            part.send(turn, 1 - part.rank, async_op=True)
            assert part.recv(1 - part.rank) == turn
        elif use == "arrays":
            x = part.empty(1000)
            x[:] = turn
            assert part.all_reduce(x)[0] == 2 * turn
            again = part.all_reduce_init(x)
            again()
            del x, again
        else:
            assert part.all_reduce(turn) == 2 * turn
        del part
        if turn % 10 == 9:
            gc.collect()


def splits(group: Any, use: str) -> tuple[Any, Any]:
    dropped(group, use, 10)
    group.barrier()
    before = held()
    dropped(group, use, 100)
    group.barrier()
    gc.collect()
    now = []

    def back() -> bool:
        now[:] = [held()]
        return now[0] <= before

    seconds(lambda: until(back, "as before", 10))
    assert group.all_reduce(1) == 2
    return before, now[0]


@pytest.mark.parametrize("use", ["nothing", "async", "in flight", "messages", "arrays"])
def test_groups_that_are_dropped_leave_nothing(own: Own, use: str) -> None:
    for before, after in own(2).run(splits, use, deadline=90):
        assert all(now <= then for then, now in zip(before, after, strict=True)), f"{before} became {after}"


def left_by_a_drop(group: Any) -> str:
    """With a message that it has not read."""
    part = group.split(0)
    if group.rank == 0:
        part.send(np.arange(1000.0), 1)
        group.barrier()
        with pytest.raises(hocket.PeerLost) as raised:
            part.barrier()
        return str(raised.value).partition(" while ")[0]
    group.barrier()
    del part
    gc.collect()
    return group._links.name(1)


def test_who_drops_a_group_has_left_it(own: Own) -> None:
    """It is collected as garbage, in any order, and its connections end as if by close()."""
    for _ in range(5):
        told, name = own(2).run(left_by_a_drop, fresh=True)
        assert told in (f"{name} left", f"{name} left the group")


def interrupted_while_it_closes(group: Any) -> tuple[Any, Any]:
    """Ten times, in the farewell of the links."""
    with group.split(0) as part:
        part.barrier()
    before = held()
    for _ in range(10):
        part = group.split(0)
        endpoint = part._calls.endpoint

        class Interrupted:
            def __getattr__(self, name: str, endpoint: Any = endpoint) -> Any:
                return getattr(endpoint, name)

            def disconnect(self, for_all: bool, endpoint: Any = endpoint) -> None:
                endpoint.disconnect(for_all)
                raise KeyboardInterrupt

        part._calls.endpoint = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            part.close()
        del part, endpoint
    group.barrier()
    return before, held()


def test_an_interrupted_close_leaves_nothing(own: Own) -> None:
    for before, now in own(2).run(interrupted_while_it_closes):
        assert all(b >= n for b, n in zip(before, now, strict=True)), (before, now)


def resident() -> int:
    """Bytes of memory that the memory files of this process's groups really have."""
    libc, total = ctypes.CDLL(None, use_errno=True), 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "memfd:hocket" in line:
            begin, end = (int(word, 16) for word in re.split("[- ]", line)[:2])
            for at in range(begin, end, 1 << 30):
                nbytes = min(end - at, 1 << 30)
                pages = np.zeros(-(-nbytes // 4096), np.uint8)
                status = libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(nbytes), ctypes.c_void_p(pages.ctypes.data))
                assert status == 0
                total += 4096 * int((pages & 1).sum())
    return total


IN_A_CIRCLE: dict[str, Callable[[Any], Any]] = {
    "open receives": lambda group: [group.recv(0, tag=tag, async_op=True) for tag in range(20)],
    "receives": lambda group: [group.recv(0, out=np.empty(9), tag=tag, async_op=True) for tag in range(20)],
    "sends": lambda group: [group.send(np.ones(300_000), 0, tag=tag, async_op=True) for tag in range(20)],
    "received": lambda group: (group.send(1, 0), group.recv(0, async_op=True)),
    "async": lambda group: [group.all_reduce(np.ones(9), async_op=True) for _ in range(20)],
    "persistent": lambda group: group.all_reduce_init(np.ones(9)),
    "error": lambda group: seconds(lambda: group.recv(0, timeout=0.01)),
    "arrays": lambda group: group.empty(1000),
}


def in_a_circle(group: Any, use: str) -> None:
    """The collector takes apart a group and what it has in flight in any order."""
    for turn in range(6):
        part = group.subgroup([0])
        works = IN_A_CIRCLE[use](part)
        circle = [part, works] if turn % 2 else [works, part]
        circle.append(circle)
        if turn >= 4:  # the group lives on, and is used
            circle[:] = [works, circle]
            del circle, works
            gc.collect()
            part.send(turn, 0, tag=77)
            assert part.recv(0, tag=77) == turn
            part.close()
            continue
        gone = weakref.ref(part)
        del part, works, circle
        gc.collect()
        assert gone() is None
    assert group.all_reduce(1) == 1


@pytest.mark.parametrize("use", IN_A_CIRCLE)
def test_what_is_in_flight_may_lie_in_a_circle(own: Own, use: str) -> None:
    own(1).run(in_a_circle, use, deadline=60)


def filled_and_dropped(group: Any, piece: int) -> tuple[int, int, int]:
    before = resident()
    most = before
    if group.rank == 0:
        arrays = [group.empty(piece, "uint8") for _ in range(512 * MIB // piece)]
        for turn, x in enumerate(arrays):
            x[:] = turn % 200 + 1
        most = resident()
        del arrays, x
        gc.collect()
    group.barrier()
    assert group.all_reduce(1) == group.size
    return before, most, resident()


@pytest.mark.parametrize("piece", [64 * 1024, 4 * MIB, 512 * MIB])
def test_memory_of_arrays_goes_back_to_the_system(own: Own, piece: int) -> None:
    before, most, after = own(1).run(filled_and_dropped, piece, deadline=60)[0]
    assert most - before >= 512 * MIB
    assert after - before <= 64 * MIB


def rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


CALLS = 100_000


def many(group: Any, signs: Signs) -> float:
    """Rank 0 puts calls without waiting for one, and rank 1 comes when it is through, or waits."""
    x = np.arange(10.0) + group.rank
    group.all_reduce(x)
    folder = Path(signs.folder)
    before, count = rss(), CALLS
    if group.rank == 0:
        signs.give(f"pid {os.getpid()}")
    else:
        until(lambda: list(folder.glob("pid *")), "rank 0")
        pid = int(next(folder.glob("pid *")).name.split()[1])
        until(lambda: list(folder.glob("put *")) or waits(pid), "rank 0 through, or asleep", 60)
        put = list(folder.glob("put *"))
        count = int(put[0].name.split()[1]) if put else CALLS
    kept: list[Any] = []
    done = 0
    work = None
    while done < count:
        try:
            work = group.all_reduce(x, async_op=True)
        except hocket.HocketError:  # that is allowed, if the rest goes on
            break
        done += 1
        if done % 997 == 0:
            kept.append(work)
    signs.give(f"put {done}") if group.rank == 0 else None
    most = rss()
    for early in [*kept, work]:
        assert (early.wait(60) == 2 * np.arange(10.0) + 1).all()
    assert (group.all_reduce(x) == 2 * np.arange(10.0) + 1).all()
    return (most - before) / MIB


def waits(pid: int) -> bool:
    """Whether its main thread sleeps; it puts calls, unless something holds it up."""
    return not isinstance(seconds(lambda: asleep(pid, pid))[0], BaseException)


def test_calls_that_nobody_waits_for(own: Own, signs: Signs) -> None:
    for grown in own(2).run(many, signs, deadline=300):
        assert grown < 64, f"{grown:.0f} MiB for {CALLS} calls"
