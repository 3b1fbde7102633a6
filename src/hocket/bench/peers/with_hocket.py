"""hocket's calls. See loop.py."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

import hocket
from hocket import _core
from hocket.arrays.ops import DTYPES, NAMES, OPS, ROUNDED
from hocket.plans.algorithms import ALGORITHMS
from hocket.plans.authored import authored
from hocket.tuning.choose import choose
from hocket.tuning.predict import predict

from .data import OBJECTS, REDUCES, SCANS, Array, Task, block, kind
from .loop import Run, pickled, ping_pong


class Hocket:
    front = False

    def __init__(self, group: hocket.Group) -> None:
        self.name, self.group = f"hocket {hocket.__version__}", group
        self.rank, self.size, self.barrier = group.rank, group.size, group.barrier
        self.files: dict[int, int] = {}  # of shared memory outside the arena, by its address

    def empty(self, count: int, dtype: np.dtype[Any], memory: str) -> Array:
        if memory == "arena":
            return self.group.empty(count, dtype)
        if memory == "private":
            return np.empty(count, dtype)
        file = os.memfd_create("vector")
        os.ftruncate(file, count * dtype.itemsize)
        array = np.frombuffer(mmap.mmap(file, count * dtype.itemsize), dtype)
        self.files[array.ctypes.data] = file
        return array

    def prepare(self, task: Task, x: Array, y: Array, root: int) -> Run | None:
        group, name = self.group, task.collective
        if task.form in LIMITS:
            return LIMITS[task.form](self, task, x)
        if name == "barrier":
            persistent = group.barrier_init() if task.form == "persistent" else None
            return persistent or (waited(group.barrier) if task.form == "async" else group.barrier)
        if name in OBJECTS:
            return pickled(self, self.objects(), task, x, y, root)
        if name in SCANS and task.op == "mean":
            return None
        if name == "send_recv":
            return ping_pong(self, group.send, lambda array, source: group.recv(source, out=array), x, y)
        options: dict[str, Any] = (
            {"op": task.op if task.op in NAMES else getattr(np, task.op)} if name in REDUCES else {}
        )
        if task.rooted:
            options["root"] = root
        if task.algorithm:
            options["algorithm"] = authored(task.algorithm)
        if task.form == "protect":
            options["protect"] = True
        if task.form == "persistent":
            made: Run = getattr(group, f"{name}_init")(x, out=y, **options)
            return made
        call = partial(getattr(group, name), x, out=y, **options)
        return waited(call) if task.form == "async" else call

    def objects(self) -> dict[str, Callable[[Any, int], Any]]:
        return {
            "broadcast": lambda obj, root: self.group.broadcast_object(obj, root=root),
            "scatter": lambda objs, root: self.group.scatter_object(objs, root=root),
            "gather": lambda obj, root: self.group.gather_object(obj, root=root),
            "all_gather": lambda obj, root: self.group.all_gather_object(obj),
        }

    def ran(self, task: Task) -> str:
        if task.collective in ("send_recv", *OBJECTS) or task.form in LIMITS:
            return ""
        dtype = kind(task.dtype)
        nbytes, one_pass = task.count * dtype.itemsize, dtype in ROUNDED
        chosen = choose(task.collective, nbytes, self.size, self.group.topology, one_pass=one_pass)
        return task.algorithm or chosen.algorithm

    def predicts(self, task: Task) -> float | None:
        if task.form != "call" or task.memory != "private" or task.op not in NAMES:
            return None  # another way than that which was measured
        algorithm, nbytes = self.ran(task), task.count * kind(task.dtype).itemsize
        is_known = (task.collective, algorithm) in ALGORITHMS and task.collective != "barrier"
        return predict(task.collective, algorithm, nbytes, self.group.topology) if is_known else None


def waited(call: Callable[..., Any]) -> Run:
    return lambda: call(async_op=True).wait()


def fused(library: Hocket, task: Task, x: Array) -> Run:
    """The limit of an in-place all-reduce of two ranks: each folds its half of both vectors, where they lie, straight
    into both. There is no waiting for the other, so it is for timing only."""
    half = block(x.size, library.rank, 2)
    pair = [vector[half] for vector in in_order(library, x, of_the_other(library, x))]
    return fold(task, pair[0], pair[1], pair)


def staged(library: Hocket, task: Task, x: Array) -> Run:
    """The limit where only its own rank can read a vector, so that what the other needs of it goes through memory that
    both map: copies and folds, in three bare steps, as much at a time as a cache holds."""
    mine = library.empty(x.size, x.dtype, "shared")
    mine.fill(0)
    theirs = of_the_other(library, mine)
    half = x.size // 2
    own, others = x[block(x.size, library.rank, 2)], x[block(x.size, 1 - library.rank, 2)]
    steps = []
    for begin in range(0, half, at_once := (1 << 20) // x.itemsize):
        part, behind = (
            slice(begin, min(begin + at_once, half)),
            slice(half + begin, min(half + begin + at_once, 2 * half)),
        )
        sources = in_order(library, own[part], theirs[part])
        reduced = fold(task, own[part], mine[behind], sources)
        steps.append((mine[part], others[part], reduced, others[part], theirs[behind]))

    def run() -> None:
        for given, taken, reduce, result, found in steps:
            np.copyto(given, taken)
            library.barrier()
            reduce()
            library.barrier()
            np.copyto(result, found)

    return run


def fold(task: Task, to: Array, also: Array, sources: list[Array]) -> Run:
    """The kernel by itself."""
    addresses = [source.ctypes.data for source in sources]
    where = (to.ctypes.data, also.ctypes.data, addresses, to.size, 1)
    arguments = (DTYPES[to.dtype], OPS[task.op], _core.isas()[-1], *where)

    def run(alive: Any = (to, also, sources)) -> None:
        _core.fold(*arguments)

    return run


def in_order(library: Hocket, mine: Array, theirs: Array) -> list[Array]:
    return [mine, theirs] if library.rank == 0 else [theirs, mine]


def of_the_other(library: Hocket, array: Array) -> Array:
    """Of two ranks, the other one's shared array of the same size."""
    assert library.size == 2
    mine = np.array([os.getpid(), library.files[array.ctypes.data]], np.int64)
    pid, file = library.group.all_gather(mine).reshape(2, 2)[1 - library.rank].tolist()
    with open(f"/proc/{pid}/fd/{file}", "r+b") as opened:  # noqa: PTH123
        return np.frombuffer(mmap.mmap(opened.fileno(), array.nbytes), array.dtype)


LIMITS = {"fused": fused, "staged": staged}


@contextmanager
def started(rank: int | None = None, size: int | None = None, *, address: str) -> Iterator[Hocket]:
    """By `hocket run`; or, told their places, they meet beside the controller's socket, in a folder."""
    meeting = None if rank is None else f"file://{address}.meeting"
    with hocket.init(rank=rank, size=size, rendezvous=meeting) as group:
        yield Hocket(group)
