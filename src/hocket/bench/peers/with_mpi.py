# mypy: disable-error-code=import-not-found
"""The calls of Open MPI, MPICH or Intel MPI, through mpi4py's buffers. See loop.py."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from mpi4py import MPI

from .data import OBJECTS, REDUCES, SCANS, Array, Task, kind, ufunc
from .loop import Run, pickled, ping_pong

OPS = {"sum": MPI.SUM, "mean": MPI.SUM, "product": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX}
OPS |= {"band": MPI.BAND, "bor": MPI.BOR, "bxor": MPI.BXOR, "land": MPI.LAND, "lor": MPI.LOR, "lxor": MPI.LXOR}
NAMES = {
    "all_reduce": "Allreduce",
    "reduce": "Reduce",
    "reduce_scatter": "Reduce_scatter_block",
    "broadcast": "Bcast",
    "scatter": "Scatter",
    "gather": "Gather",
    "all_gather": "Allgather",
    "all_to_all": "Alltoall",
    "barrier": "Barrier",
    "scan": "Scan",
    "exscan": "Exscan",
}
SIGNS = {"Open MPI": "Open MPI", "Intel(R) MPI": "Intel MPI"}  # of a library, in what it says of its version

# From its second start on it leaves out a rank's own part: 2021.18.
BROKEN = ("Intel MPI", "all_gather", "persistent")


class Mpi:
    front = True

    def __init__(self) -> None:
        text = MPI.Get_library_version()
        number = re.search(r"\d+\.\d+(\.\d+)?", text)
        self.library = next((name for sign, name in SIGNS.items() if sign in text), "MPICH")
        self.name = f"{self.library} {number.group() if number else ''}".strip()
        self.world = MPI.COMM_WORLD
        self.rank, self.size, self.barrier = self.world.rank, self.world.size, self.world.Barrier

    def empty(self, count: int, dtype: np.dtype[Any], memory: str) -> Array:
        return np.empty(count, dtype)

    def prepare(self, task: Task, x: Array, y: Array, root: int) -> Run | None:
        world, name = self.world, task.collective
        if not known(x.dtype) or (name == "broadcast" and not task.in_place):
            return None
        if (self.library, name, task.form) == BROKEN:
            return None
        if name in OBJECTS:
            calls = {"broadcast": world.bcast, "scatter": world.scatter, "gather": world.gather}
            return pickled(self, {**calls, "all_gather": lambda obj, _: world.allgather(obj)}, task, x, y, root)
        if name in SCANS and task.op == "mean":
            return None
        if name == "send_recv":
            return ping_pong(self, world.Send, world.Recv, x, y)
        arguments = self.arguments(task, x, y, root)
        call = form(world, NAMES[name], task.form, arguments)
        if task.op != "mean" or name not in REDUCES or call is None or (name == "reduce" and root != self.rank):
            return call
        divide = np.floor_divide if x.dtype.kind in "iu" else np.divide
        plain, part = call, y

        def mean() -> None:  # which MPI has not: as its users write it
            plain()
            divide(part, self.size, out=part)

        return mean

    def arguments(self, task: Task, x: Array, y: Array, root: int) -> tuple[Any, ...]:
        """What the call takes, in the order in which mpi4py takes it."""
        name, here = task.collective, root == self.rank
        given, got = (MPI.IN_PLACE if task.in_place else array for array in (x, y))
        op = (OPS[task.op] if task.op in OPS else custom(task.op, task.dtype),) if name in REDUCES else ()
        return {
            "all_reduce": (given, y, *op),
            "reduce": (given, y, *op, root) if here else (x, None, *op, root),
            "reduce_scatter": (given, x if task.in_place else y, *op),
            "broadcast": (x, root),
            "scatter": (x, got, root) if here else (None, y, root),
            "gather": (given, y, root) if here else (x, None, root),
            "all_gather": (given, y),
            "all_to_all": (given, y),
            "barrier": (),
            "scan": (given, y, *op),
            "exscan": (given, y, *op),
        }[name]

    def ran(self, task: Task) -> str:
        return ""

    def predicts(self, task: Task) -> None:
        return None


def known(dtype: np.dtype[Any]) -> bool:
    try:
        MPI.Datatype.fromcode(dtype.char)
    except (KeyError, ValueError):
        return False
    return True


def form(world: Any, name: str, form: str, arguments: tuple[Any, ...]) -> Run | None:
    """The call itself, the nonblocking one with its wait, or the persistent one."""
    if form == "persistent":
        request = getattr(world, f"{name}_init")(*arguments)

        def again() -> None:
            request.Start()
            request.Wait()

        return again
    method: Callable[..., Any] = getattr(world, f"I{name.lower()}" if form == "async" else name)
    if form == "async":
        return lambda: method(*arguments).Wait()
    return lambda: method(*arguments)


@cache  # mpi4py has room for sixteen
def custom(op: str, element: str) -> Any:
    """A NumPy function as an operator. It is said to commute, as those are that are timed here."""
    function, dtype = ufunc(op), kind(element)

    def fold(a: Any, b: Any, _: Any) -> None:
        out = np.frombuffer(b, dtype)
        function(np.frombuffer(a, dtype), out, out=out)

    return MPI.Op.Create(fold, commute=True)


@contextmanager
def started(*, address: str) -> Iterator[Mpi]:
    yield Mpi()
