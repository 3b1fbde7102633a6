"""No library: the least that ranks of one host can do to sum their vectors: bare loops (bare.cpp). See loop.py."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from . import LIMITS, ROUNDS
from .data import Array, Task, kind
from .loop import Run
from .with_socket import STARTING, compiled

SOURCE = Path(__file__).with_name("bare.cpp")


class Bare:
    front = False

    def __init__(self, way: str, rank: int, size: int, memory: mmap.mmap, code: ctypes.CDLL) -> None:
        self.name, self.rank, self.size, self.code = (LIMITS | ROUNDS)[way].name, rank, size, code
        self.fits = size == 2 or (size > 2 and way in ROUNDS)
        ctypes.c_int.in_dll(code, "crowded").value = size > len(os.sched_getaffinity(0))
        self.run = getattr(code, way)
        self.run.restype = ctypes.c_uint64
        self.memory = ctypes.c_char.from_buffer(memory)  # which keeps it mapped
        self.sides = ctypes.byref(self.memory)
        self.met = self.pieces = 0

    def barrier(self) -> None:
        self.met += 1
        self.code.barrier(self.sides, self.size, self.rank, ctypes.c_uint64(self.met))

    def empty(self, count: int, dtype: np.dtype[Any], memory: str) -> Array:
        return np.empty(count, dtype)

    def prepare(self, task: Task, x: Array, y: Array, root: int) -> Run | None:
        asked = (task.collective, task.form, task.op, task.in_place, kind(task.dtype))
        if not self.fits or asked != ("all_reduce", "call", "sum", True, np.dtype(np.float32)):
            return None
        vector, count = ctypes.c_void_p(x.ctypes.data), ctypes.c_size_t(x.size)

        def run() -> None:
            self.pieces = self.run(self.sides, self.size, self.rank, vector, count, ctypes.c_uint64(self.pieces))

        return run

    def ran(self, task: Task) -> str:
        return ""

    def predicts(self, task: Task) -> None:
        return None


def shared(rank: int, address: str, size: int) -> mmap.mmap:
    """Memory of all ranks: rank 0 makes it, and says where beside the controller's socket."""
    place = Path(f"{address}.memory")
    if rank == 0:
        fd = os.memfd_create("bare")
        os.ftruncate(fd, size)
        (fresh := Path(f"{address}.fresh")).write_text(f"/proc/{os.getpid()}/fd/{fd}")
        fresh.rename(place)
        return mmap.mmap(fd, size)
    deadline = time.monotonic() + STARTING
    while not place.exists():
        if time.monotonic() > deadline:
            raise TimeoutError("rank 0 has not come")
        time.sleep(0.01)
    with open(place.read_text(), "r+b") as file:  # noqa: PTH123
        return mmap.mmap(file.fileno(), size)


@contextmanager
def started(way: str, rank: int, size: int, *, address: str) -> Iterator[Bare]:
    code = compiled(f"{address}.{rank}.so", SOURCE)
    code.shared_bytes.restype = ctypes.c_size_t
    yield Bare(way, rank, size, shared(rank, address, code.shared_bytes(size)), code)
