"""Malice against recover(), grow() and join(): threads, forks, signals at any moment, no descriptors left.

The ranks of these worlds do not meet in their world's group: some found one in a folder, and the others join it there.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from working import works

import hocket
from moments import descriptors
from worlds import World, raised, survivors

Own = Callable[[int], World]
SECRET = "of those that meet here"


def me() -> int:
    """The number of this process, whatever its rank is."""
    return int(os.environ["RANK"])


def entered(folder: str, size: int) -> Any:
    """The group of the first `size` processes, for these and for those that join it."""
    place = {"rendezvous": f"file://{folder}", "secret": SECRET}
    return hocket.init(30, rank=me(), size=size, **place) if me() < size else hocket.join(30, **place)


def numbers(group: Any) -> list[int]:
    return [int(number) for number in group.all_gather(np.array([me()]))]


def lose(group: Any, victim: int) -> None:
    """That one dies when all have come here, and all others know, which may be still in the barrier before it."""
    if me() == victim:
        group.barrier()
        os.kill(os.getpid(), signal.SIGKILL)
    hear(group)


def hear(group: Any) -> None:
    """That somebody of this group is lost."""
    raised((hocket.PeerLost, hocket.GroupBroken), lambda: [group.barrier() for _ in iter(int, 1)])


# ---- threads, forks, and what is called twice ------------------------------------------------------------------------


def many_threads(_: Any, folder: str, call: str) -> int:
    group = entered(folder, 3)
    lose(group, 1)
    sys.setswitchinterval(1e-6)
    found: list[Any] = []
    begin = threading.Barrier(5)

    def recovers() -> None:
        begin.wait()
        found.append(group.recover(allow_minority=True) if call == "recover" else group.grow())

    threads = [threading.Thread(target=recovers) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 5
    assert all(each is found[0] for each in found)
    works(found[0], [0, 2])
    found[0].close()
    return len(found[0].history)


def test_many_threads_recover_once(own: Own, tmp_path: Any) -> None:
    assert survivors(own(3).outcomes_alone(many_threads, str(tmp_path), "recover")) == [1, 1]


def twice(_: Any, folder: str) -> list[tuple[int, ...]]:
    """Who still holds an earlier group gets the latest one of it, or what is left of that."""
    first = entered(folder, 4)
    part = first.subgroup([0, 1, 2])
    lose(first, 3)
    second = first.recover(allow_minority=True)
    assert first.recover() is second
    assert first.recover() is second
    raised(hocket.HocketError, second.recover)  # nothing has ended it
    if part is not None:
        works(part, [0, 1, 2])  # it has lost nobody
        assert "nobody can join this group" in str(raised(hocket.RendezvousError, part.grow))
    lose(second, 0)
    third = first.recover(allow_minority=True)
    assert second.recover() is third
    assert first.recover() is third
    hear(part)
    parts = part.recover(allow_minority=True)  # on its own
    works(parts, [1, 2])
    works(third, [1, 2])
    third.close()
    raised(hocket.GroupBroken, first.recover)
    return [loss.ranks for loss in third.history]


def test_recover_twice(own: Own, tmp_path: Any) -> None:
    assert survivors(own(4).outcomes_alone(twice, str(tmp_path))) == [[(3,), (0,)]] * 2


def forks(_: Any, folder: str) -> list[str]:
    """A child has no part in what its parent goes through."""
    group = entered(folder, 3)
    lose(group, 2)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        calls = group.recover, group.grow, group.pending
        told = [type(raised(hocket.HocketError, call)).__name__ for call in calls]
        os.write(writer, " ".join(told).encode())
        os._exit(0)
    os.waitpid(child, 0)
    group = group.recover(allow_minority=True)
    works(group, [0, 1])
    group.close()
    return os.read(reader, 1000).decode().split()


def test_a_forked_child_recovers_nothing(own: Own, tmp_path: Any) -> None:
    assert survivors(own(3).outcomes_alone(forks, str(tmp_path))) == [["HocketError"] * 3] * 2


# ---- no descriptors --------------------------------------------------------------------------------------------------


def short(_: Any, folder: str, victim: int, spare: int) -> list[int]:
    """One has only so many descriptors left as the group grows. All are told so, and have the group that they had; or
    they were enough. As soon as there are more, all grow."""
    group = entered(folder, 3) if me() < 3 else None
    while group is not None and victim != 3 and not group.pending():
        pass
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if me() == victim:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors() - 1 + spare, limits[1]))
    why = "used up its file descriptors"
    try:
        group = group.grow(4) if group is not None else entered(folder, 3)
    except hocket.RendezvousError as error:
        why = str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert "used up its file descriptors" in why
    assert group is None or not group._calls.broken
    if group is None:
        group = entered(folder, 3)
    elif group.size == 3:
        works(group, [0, 1, 2])
        group = group.grow(4)
    members = numbers(group)
    works(group, members)
    return members


@pytest.mark.parametrize("spare", [0, 2, 6])
@pytest.mark.parametrize("victim", [0, 1, 3])
def test_who_has_no_descriptors_does_not_hold_up_growth(own: Own, tmp_path: Any, victim: int, spare: int) -> None:
    assert survivors(own(4).outcomes_alone(short, str(tmp_path), victim, spare)) == [[0, 1, 2, 3]] * 4


# ---- signals at any moment -------------------------------------------------------------------------------------------


def strike(how: str, after: float) -> threading.Event:
    """This process gets that signal so many seconds from now; set once it has."""
    pid, done = os.getpid(), threading.Event()

    def soon() -> None:
        time.sleep(after)
        if how == "stopped":
            subprocess.Popen(["sh", "-c", f"sleep 3; kill -CONT {pid}"])
        os.kill(pid, {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP, "interrupted": signal.SIGINT}[how])
        done.set()

    threading.Thread(target=soon, daemon=True).start()
    return done


def goes_on(_: Any, folder: str, seed: int) -> list[int]:
    """Three begin, one comes; and to one of the four something happens meanwhile. In the end all that live are
    together, whoever was given up and came again."""
    rng = random.Random(seed)
    victim, how, after = rng.randrange(4), rng.choice(("killed", "stopped", "interrupted")), rng.random() * 0.06
    alive = [0, 1, 2, 3] if how != "killed" else sorted({0, 1, 2, 3} - {victim})
    group = entered(folder, 3) if me() < 3 else None
    patience = 2000 if (victim, how) == (3, "killed") else 1 << 60  # it may die before it has come
    turns = 0
    while group is not None and not group.pending() and (turns := turns + 1) < patience:
        pass
    done, over, broken = None, False, False
    while not over:
        try:
            done = strike(how, after) if me() == victim and done is None else done
            group = entered(folder, 0) if group is None else group
            group = group.recover(allow_minority=True) if broken else group
            broken = False
            struck = me() != victim or (done is not None and done.is_set())
            rows = group.all_gather(np.array([[me(), struck]]))
            members = rows[:, 0].tolist()
            over = sorted(members) == alive and bool(rows[:, 1].all())
            if group.size < len(alive):
                group = group.grow(len(alive))
        except KeyboardInterrupt:  # noqa: PERF203
            pass
        except hocket.HocketError as error:
            group = None if "went on without" in str(error) else group
            broken = group is not None and group._latest._calls.broken
    works(group, members)
    return members


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_to_one_of_them(own: Own, tmp_path: Any, seed: int) -> None:
    left = survivors(own(4).outcomes_alone(goes_on, str(tmp_path), seed))
    assert len(left) >= 3
    assert all(members == left[0] for members in left)
