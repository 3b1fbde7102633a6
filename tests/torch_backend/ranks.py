"""Ranks of torch.distributed: four processes that live as long as the session, of which each test uses the first few.

    ranks(3).run(f, x)              f(x) on ranks 0, 1 and 2 of a default group of three -> [f's result there, ...]
    ranks(3).outcomes(f, x)         as run, but errors are returned in the place of results
    ranks(3, "gloo").run(f, x)      the same with another backend, for something to compare with

`f` is a function at the top of a test module. The group is made anew when size or backend change, and after an error.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from worlds import World

SIZES = (2, 3, 4)
TIMEOUT = 30.0  # seconds, of the groups


class Job(NamedTuple):
    """The default group that a command wants."""

    name: str
    size: int
    backend: str
    store: Path
    timeout: float


class Ranks:
    """The processes, and the group that they are in by now."""

    def __init__(self, folder: Path, transport: str) -> None:
        self.world = World(max(SIZES), transport)
        self._folder = folder
        self._names = itertools.count()
        self._job: Job | None = None

    def __call__(self, size: int, backend: str = "hocket", timeout: float = TIMEOUT) -> Part:
        return Part(self, size, backend, timeout)

    def job(self, size: int, backend: str, timeout: float) -> Job:
        """The present group if it will do, or a new one."""
        if self._job is None or (self._job.size, self._job.backend, self._job.timeout) != (size, backend, timeout):
            name = f"{os.getpid()}.{next(self._names)}"
            self._job = Job(name, size, backend, self._folder / name, timeout)
        return self._job

    def forget(self) -> None:
        """Make a new group for the next command."""
        self._job = None

    def restart(self) -> None:
        """Take new processes for the next command."""
        self.world.close()
        self.forget()


class Part(NamedTuple):
    """The first `size` ranks, in one group."""

    ranks: Ranks
    size: int
    backend: str
    timeout: float

    def outcomes(self, function: Callable[..., Any], *args: Any, deadline: float = 120.0) -> list[Any]:
        """Result or error by rank."""
        job = self.ranks.job(self.size, self.backend, self.timeout)
        outcomes = self.ranks.world.outcomes(_run, job, function, args, deadline=deadline)[: self.size]
        if any(isinstance(outcome, BaseException) for outcome in outcomes):
            self.ranks.forget()
        return outcomes

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Results by rank. Raises the first error that is no consequence of another rank's."""
        outcomes = self.outcomes(function, *args)
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if errors:
            later = ("PeerLost", "GroupBroken")
            raise min(errors, key=lambda error: (type(error).__name__ in later, error.__dict__["arrival"]))
        return outcomes


# ---- in the process of a rank ----

_name = ""  # of the group that this process is in


def _run(group: Any, job: Job, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    if group.rank >= job.size:
        return None
    import torch

    torch.set_num_threads(1)
    try:
        _enter(job, group.rank)
        torch.manual_seed(group.rank)
        return function(*args)
    except BaseException as error:
        _leave(error)
        raise


def let_gloo_reach_all() -> None:
    """Have it talk over the network that these ranks share."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo" if os.environ["MASTER_ADDR"] == "127.0.0.1" else "eth0"


def _enter(job: Job, rank: int) -> None:
    import torch.distributed as dist

    import hocket.torch

    global _name
    if _name != job.name:
        _leave(None)
        let_gloo_reach_all()
        timeout = timedelta(seconds=job.timeout)
        store = dist.FileStore(str(job.store), job.size)
        dist.init_process_group(job.backend, store=store, rank=rank, world_size=job.size, timeout=timeout)
        _name = job.name
    assert hocket.torch.ProcessGroup


def _leave(error: BaseException | None) -> None:
    import torch.distributed as dist

    global _name
    _name = ""
    if dist.is_initialized():
        with suppress(Exception):
            if error is not None and hasattr(dist.group.WORLD, "leave"):
                dist.group.WORLD.leave(error)
            dist.destroy_process_group()
