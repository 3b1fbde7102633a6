"""The right moment without sleeping: signs between processes, what the kernel says of a process, and held operators."""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


def until(condition: Callable[[], object], what: str, seconds: float = 20.0) -> None:
    """Poll until `condition()` holds; fail when it never does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"after {seconds:g} s still not: {what}"
        time.sleep(0.002)


class Signs(NamedTuple):
    """What processes that share no group tell one another: files in a folder."""

    folder: str

    def give(self, name: str) -> None:
        Path(self.folder, name).touch()

    def given(self, name: str) -> bool:
        return Path(self.folder, name).exists()

    def wait(self, name: str, seconds: float = 20.0) -> None:
        until(lambda: self.given(name), f"the sign {name!r}", seconds)


def named() -> set[str]:
    """What lies in /dev/shm."""
    return {path.name for path in Path("/dev/shm").iterdir()}


def descendants(pid: int) -> set[int]:
    """The process, and those that come of it."""
    found, children = {pid}, ""
    with suppress(OSError):  # it, or a thread of it, has ended since
        for task in Path(f"/proc/{pid}/task").iterdir():
            children += (task / "children").read_text()
    return found.union(*(descendants(int(child)) for child in children.split()))


def named_by_others() -> set[str]:
    """What in /dev/shm living processes have mapped that do not come of this one."""
    ours, found = descendants(os.getpid()), set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) not in ours:
            with suppress(OSError):
                found.update(re.findall(r"/dev/shm/(\S+)", (process / "maps").read_text()))
    return found


def nothing_named_since(before: set[str]) -> None:
    """Fail unless all that was not there `before` goes, or belongs to other programs."""
    until(lambda: named() <= before or named() <= before | named_by_others(), "/dev/shm as it was", seconds=60)


def state(pid: int) -> str:
    """The letter that the kernel gives a process: R, S, T (stopped), Z, ... or X when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def stopped(pid: int) -> None:
    """Wait until SIGSTOP has reached every thread of the process."""

    def letters() -> set[str]:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return {(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks}

    until(lambda: letters() == {"T"}, f"process {pid} stopped")


def asleep(tid: int, pid: int | None = None) -> None:
    """Wait until a thread has been asleep for ten looks in a row: it waits for something."""
    stat = Path(f"/proc/{pid or os.getpid()}/task/{tid}/stat")
    looks = ["R"]

    def settled() -> bool:
        looks.append(stat.read_text().rpartition(")")[2].split()[0])
        return looks[-10:] == ["S"] * 10

    until(settled, f"thread {tid} asleep")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def opened() -> set[str]:
    """What the descriptors of this process are, and which inode each is of."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.add(f"{path.name}: {path.readlink()} {path.stat().st_ino}")
    return found


def threads() -> int:
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208


def mappings() -> int:
    """Mapped pieces of hocket's memory files."""
    return Path("/proc/self/maps").read_text().count("memfd:hocket")


def held() -> tuple[int, int, int]:
    """Descriptors, threads and mappings of this process, when all that is on its way out has gone."""
    gc.collect()
    return descriptors(), threads(), mappings()


def seconds(call: Callable[[], Any]) -> tuple[Any, float]:
    """What the call returns, or raises, and how long that took."""
    begin = time.monotonic()
    try:
        result = call()
    except BaseException as error:
        result = error
    return result, time.monotonic() - begin


def ours(error: object) -> bool:
    """Whether it is one of hocket's errors, and says something."""
    import hocket

    return isinstance(error, hocket.HocketError) and bool(str(error))


def last(group: Any, *ranks: int) -> None:
    """These ranks go on when nobody is in an earlier call any more: others could hear there that they have died."""
    from hocket import PeerLost

    first, *more = ranks
    if group.rank != first:
        group.send(0, first, tag=77)
        if group.rank in more:
            with suppress(PeerLost):  # it goes on, too
                group.recv(first, tag=77)
        return
    for other in {*range(group.size)} - {first}:
        group.recv(other, tag=77)
    with suppress(PeerLost):  # who has been told may die before the next one is
        for other in more:
            group.send(0, other, tag=77)


class Gate:
    """What the operator `gated` passes through, by its own process: `here` is called at the turn numbered `at`."""

    here: Callable[[], None] | None = None
    at = 0
    turns = 0


def gated(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """A sum that any rank can hold up: see `Gate`."""
    np.add(a, b, out)
    turn, Gate.turns = Gate.turns, Gate.turns + 1
    if Gate.here is not None and turn == Gate.at:
        Gate.here()


def gate(here: Callable[[], None] | None, at: int = 0) -> None:
    """Hold `gated` up at its turn `at`, counted from now on."""
    Gate.here, Gate.at, Gate.turns = here, at, 0
