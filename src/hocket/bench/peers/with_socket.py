"""No library: what is between the hosts, with nothing around it but a bare loop over a socket (lean.cpp). See loop.py.

*lean* is the all-reduce of two ranks in such a loop. *pump* only moves as many bytes as an all-reduce has to move
between H hosts: the first rank of each gives 2(H-1)/H S to the next, while as many come to it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .data import Array, Task, kind
from .loop import Run

SOURCE = Path(__file__).with_name("lean.cpp")
PIECE = 256 << 10
SPIN = 200  # µs that a rank looks again and again before it sleeps, where each has a core
STARTING = 60.0


class Ring(NamedTuple):
    """The sockets to the next rank and from the one before: between two ranks, one for both ways."""

    to: int
    come: int


class Bare:
    front = False

    def __init__(self, way: str, rank: int, size: int, *, address: str, stack: ExitStack) -> None:
        self.name = {"lean": "lean loop", "pump": "raw pump"}[way]
        self.way, self.rank, self.size = way, rank, size
        self.code, self.spin = compiled(f"{address}.{rank}.so"), SPIN if size <= len(os.sched_getaffinity(0)) else 0
        self.memory = [ctypes.create_string_buffer(PIECE) for _ in range(2)]
        listeners = [stack.enter_context(listening()) for _ in range(2)]
        hosts, places = met(rank, size, listeners, address)
        self.first = [hosts.index(host) for host in dict.fromkeys(hosts)]
        self.all, self.between = (
            ring(rank, members, listener, [place[which] for place in places], stack)
            for which, (members, listener) in enumerate(zip((range(size), self.first), listeners, strict=True))
        )

    def barrier(self) -> None:
        for _ in range(self.size - 1):
            self.pump(self.all, 1)

    def pump(self, way: Ring, nbytes: int) -> None:
        heard(self.code.pump(*way, *self.memory, ctypes.c_size_t(nbytes), self.spin))

    def empty(self, count: int, dtype: np.dtype[Any], memory: str) -> Array:
        return np.empty(count, dtype)

    def prepare(self, task: Task, x: Array, y: Array, root: int) -> Run | None:
        if task.collective != "all_reduce" or task.form != "call" or len(self.first) < 2:
            return None
        if self.way == "pump":
            nbytes = 2 * (len(self.first) - 1) * x.nbytes // len(self.first)
            return partial(self.pump, self.between, nbytes) if self.rank in self.first else lambda: None
        if self.size != 2 or task.op != "sum" or kind(task.dtype) != np.float32 or not task.in_place:
            return None
        vector, count, room = ctypes.c_void_p(x.ctypes.data), ctypes.c_size_t(x.size), self.memory[0]
        return lambda: heard(self.code.all_reduce(self.all.to, vector, room, count, self.spin))

    def ran(self, task: Task) -> str:
        return ""

    def predicts(self, task: Task) -> None:
        return None


def heard(result: int) -> None:
    if result:
        raise ConnectionError("the other end of a connection is gone")


def compiled(path: str, source: Path = SOURCE) -> ctypes.CDLL:
    """The loops, compiled for this very processor."""
    compiler = next((found for name in ("c++", "g++", "clang++") if (found := shutil.which(name))), None)
    if compiler is None:
        sys.exit("the bare loops are compiled when they are timed, and there is no c++, g++ or clang++")
    subprocess.run([compiler, "-O3", "-march=native", "-shared", "-fPIC", "-o", path, source], check=True)
    return ctypes.CDLL(path)


def listening() -> socket.socket:
    """On this host's own address, which its name leads to."""
    return socket.create_server((socket.gethostbyname(socket.gethostname()), 0))


def met(
    rank: int, size: int, listeners: Sequence[socket.socket], address: str
) -> tuple[list[str], list[list[tuple[str, int]]]]:
    """The host of each rank, and where each listens: they tell one another in files beside the controller's socket."""
    names = [Path(f"{address}.{each}") for each in range(size)]
    note = "\n".join([socket.gethostname(), *(f"{host} {port}" for host, port in (s.getsockname() for s in listeners))])
    (fresh := Path(f"{address}.{rank}.new")).write_text(note)
    fresh.rename(names[rank])
    deadline = time.monotonic() + STARTING
    while not all(name.exists() for name in names):
        if time.monotonic() > deadline:
            sys.exit("the other ranks have not come")
        time.sleep(0.01)
    notes = [name.read_text().split("\n") for name in names]
    places = [[(host, int(port)) for host, port in map(str.split, lines)] for _, *lines in notes]
    return [host for host, *_ in notes], places


def ring(
    rank: int, members: Sequence[int], listener: socket.socket, places: Sequence[tuple[str, int]], stack: ExitStack
) -> Ring:
    """Each member's connections to the next and from the one before. Of two, the first connects, once for both ways."""
    if rank not in members or len(members) < 2:
        return Ring(-1, -1)
    at = members.index(rank)
    pair, links = len(members) == 2, []
    if not pair or at == 0:
        links.append(socket.create_connection(places[members[(at + 1) % len(members)]], STARTING))
    if not pair or at == 1:
        listener.settimeout(STARTING)
        links.append(listener.accept()[0])
    for link in links:
        stack.enter_context(link)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setblocking(False)
    return Ring(links[0].fileno(), links[-1].fileno())


@contextmanager
def started(way: str, rank: int, size: int, *, address: str) -> Iterator[Bare]:
    with ExitStack() as stack:
        yield Bare(way, rank, size, address=address, stack=stack)
