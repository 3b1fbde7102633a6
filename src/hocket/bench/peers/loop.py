"""How every library is timed: the same loop for all of them, in each of its ranks.

A rank connects to the Unix socket that the controller (hocket.bench.session) listens on, says who it is, and then
sleeps in `recv` until it gets a task, so that a library that is not being timed costs nothing. One line of JSON per
task, one per answer.

One **sample**: the rank writes its whole input, so that no cache, page or result of the last sample helps; all ranks
meet in the library's own barrier; the rank reads the clock, makes its call and reads the clock again; and all meet once
more. Without that a rank that is through would go on to its next input, or to its answer, on a core on which the rank
beside it is still in its call. A call of a few KiB is over before a clock is read: there a sample is `batch` calls
in a row, in every library. The time of a sample is that of its slowest rank, which the controller finds. Where only
that counts which a call takes beyond another one (`BARE`), the other one is timed in the same way right before, and the
controller subtracts. The root of a rooted collective moves on by one with every call: a fixed root would run ahead of
the others, and its calls would tell how fast it can give, not how long it takes.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import socket
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, islice
from typing import Any, Protocol

import numpy as np

from .data import (
    BARE,
    GETS_BLOCK,
    GIVES_BLOCK,
    Array,
    Task,
    block,
    expected,
    kind,
    partner,
    vector,
    wrong,
)

Run = Callable[[], Any]


class Library(Protocol):
    """What a library is, to this loop. `front`: an in-place reduce_scatter leaves its result in front of its vector."""

    name: str
    rank: int
    size: int
    front: bool

    def barrier(self) -> Any: ...

    def empty(self, count: int, dtype: np.dtype[Any], memory: str) -> Array: ...

    def prepare(self, task: Task, x: Array, y: Array, root: int) -> Run | None:
        """What makes the call once, from x into y; None where the library has no such call. In place, the one is the
        other or a part of it."""

    def ran(self, task: Task) -> str:
        """The algorithm, where it can tell."""

    def predicts(self, task: Task) -> float | None:
        """Seconds that it expects a call to take, where it can tell."""


def serve(library: Library, address: str, before: dict[str, int]) -> None:
    """Answer the controller's tasks until it hangs up. `before` is `memory()` from before the library was started."""
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rw") as stream:
        connection.connect(address)

        def say(answer: dict[str, Any]) -> None:
            stream.write(json.dumps(answer) + "\n")
            stream.flush()

        gc.collect()
        gc.freeze()  # what is there by now need not be gone through before every measurement
        say({"library": library.name, "rank": library.rank, "size": library.size})
        for line in stream:
            asked = json.loads(line)
            what = asked.pop("what")
            try:
                if what == "time":
                    say(measure(library, Task(**asked)))
                elif what == "wait":
                    say(wait(library, asked["seconds"]))
                else:
                    say({"before": before, "after": memory()})
            except Exception:
                say({"error": traceback.format_exc()})


def measure(library: Library, task: Task) -> dict[str, Any]:
    """Seconds per sample on this rank, those of the bare call beside, and how many elements of the checked calls were
    wrong; or that it lacks it."""
    try:
        x, y = buffers(library, task)
    except ImportError:  # of bfloat16
        return {"lacks": True}
    roots = range(library.size) if task.rooted else range(1)
    calls = [library.prepare(task, x, y, root) for root in roots]
    runs = [call for call in calls if call is not None]
    if len(runs) < len(calls):
        return {"lacks": True}
    without = BARE.get(task.collective)
    beside = library.prepare(replace(task, collective=without), x, y, 0) if without else None

    def sample(batch: list[Run]) -> float:
        library.barrier()
        start = time.perf_counter()
        for call in batch:
            call()
        taken = time.perf_counter() - start
        library.barrier()
        return taken / len(batch)

    turns, seconds, bare = cycle(runs), [], []
    gc.collect()
    gc.disable()
    begin = time.perf_counter()
    for i in range(-task.warmup, task.times):
        refill(x, 1 + (library.rank + i) % 8)
        bare.append(sample([beside] * task.batch) if beside else 0.0)
        seconds.append(sample(list(islice(turns, task.batch))))
    gc.enable()
    wall, kept = time.perf_counter() - begin, slice(task.warmup, None)
    faults = [check(library, task, runs[turn % len(runs)], x, y, turn) for turn in range(task.check)]
    answer = {"wall": wall, "wrong": sum(faults), "algorithm": library.ran(task), "predicted": library.predicts(task)}
    return {"seconds": seconds[kept], "bare": bare[kept], **answer}


def refill(x: Array, value: int) -> None:
    """Write all of x, as whole numbers of the same size: NumPy fills bfloat16 one element at a time."""
    bits = np.dtype(f"u{x.itemsize}") if x.itemsize <= 8 else x.dtype
    x.view(bits).fill(np.asarray(value, x.dtype).view(bits)[()])


def buffers(library: Library, task: Task) -> tuple[Array, Array]:
    """x and y, written once, so that their pages are there. In place they are one, or one is a part of the other."""
    n, dtype = library.size, kind(task.dtype)
    sizes = [task.count // (n if task.collective in names else 1) for names in (GIVES_BLOCK, GETS_BLOCK)]
    if not task.in_place:
        pair = [library.empty(size, dtype, task.memory) for size in sizes]
        for array in pair:
            array.fill(0)
        return pair[0], pair[1]
    whole = library.empty(max(sizes), dtype, task.memory)
    whole.fill(0)
    if sizes[0] == sizes[1]:
        return whole, whole
    place = 0 if library.front and task.collective == "reduce_scatter" else library.rank
    part = whole[block(task.count, place, n)]
    return (part, whole) if sizes[0] < sizes[1] else (whole, part)


def check(library: Library, task: Task, call: Run, x: Array, y: Array, turn: int) -> int:
    """Make one call on data that tells every rank and position apart. How many elements came out wrong here."""
    root = turn % library.size if task.rooted else 0
    y.fill(99)
    x[...] = vector(task, library.rank, turn, x.size)
    library.barrier()
    call()
    want = expected(task, library.rank, library.size, turn, root)
    return 0 if want is None else wrong(y, want)


def ping_pong(
    library: Library, send: Callable[[Array, int], Any], receive: Callable[[Array, int], Any], x: Array, y: Array
) -> Run:
    """One message there and back, between pairs of ranks."""
    other = partner(library.rank, library.size)
    if other is None:
        return lambda: None

    def first() -> None:
        send(x, other)
        receive(y, other)

    def second() -> None:
        receive(y, other)
        send(y, other)

    return first if library.rank < other else second


def pickled(
    library: Library, calls: dict[str, Callable[[Any, int], Any]], task: Task, x: Array, y: Array, root: int
) -> Run | None:
    """A call of objects, by what a library has for each."""
    if task.form != "call":
        return None
    name, here = task.collective.removesuffix("_object"), root == library.rank
    call, deals = calls[name], name == "scatter"
    parts = [block(x.size, rank, library.size) for rank in range(library.size)]

    def run() -> None:
        given = [x[part].tobytes() for part in parts] if deals and here else x.tobytes()
        got = call(None if not here and name in ("broadcast", "scatter") else given, root)
        if got is not None:
            y[...] = np.frombuffer(b"".join(got) if type(got) is list else got, y.dtype)

    return run


def wait(library: Library, seconds: float) -> dict[str, Any]:
    """How much processor time this rank burns in a barrier that rank 0 enters `seconds` later than the others."""
    library.barrier()
    if library.rank == 0:
        time.sleep(seconds)
    begin, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    library.barrier()
    end, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - start
    return {"busy": end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime, "wall": wall}


def memory() -> dict[str, int]:
    """Bytes of this process: resident, and its proportional share of anonymous and of shared memory. What the C library
    keeps of freed arrays, in case they are wanted again, is given back first."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    fields = {"Rss": 0, "Pss_Anon": 0, "Pss_Shmem": 0}
    with open(f"/proc/{os.getpid()}/smaps_rollup") as lines:  # noqa: PTH123
        for line in lines:
            name, _, rest = line.partition(":")
            if name in fields:
                fields[name] = int(rest.split()[0]) * 1024
    return fields
