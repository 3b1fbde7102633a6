"""Hide communication behind computation: an all-reduce runs while matrices are multiplied.

    hocket run -n 2 examples/overlap.py

Each rank computes on one thread while hocket's engine communicates on another, so that all of it can be hidden only
where there are two cores per rank. With fewer the two take turns, and little is gained: the last line says which it is.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

import numpy as np

import hocket

ROUNDS = 21
gradient = np.ones(4 << 20, np.float32)  # 16 MiB
a, b, c = (np.ones((256, 256), np.float32) for _ in range(3))


def measure(group: hocket.Group, run: Callable[[], object]) -> float:
    """Seconds of the slowest rank, the median of some rounds."""
    rounds = []
    for _ in range(ROUNDS):
        gradient.fill(group.rank)
        group.barrier()
        start = time.perf_counter()
        run()
        rounds.append(time.perf_counter() - start)
    return float(group.all_reduce(np.array(statistics.median(rounds)), op="max"))


with hocket.init() as group:
    if group.size == 1:
        raise SystemExit("alone there is nothing to communicate: hocket run -n 2 examples/overlap.py")

    def communicate() -> None:
        group.all_reduce(gradient, out=gradient)

    def compute() -> None:
        for _ in range(products):
            np.matmul(a, b, out=c)  # without Python's lock, as most of NumPy's work on arrays

    def both() -> None:
        work = group.all_reduce(gradient, out=gradient, async_op=True)
        compute()
        work.wait()

    # As much to compute as to communicate: then there is most to gain.
    products = 20
    measure(group, communicate)
    products = max(1, round(products * measure(group, communicate) / measure(group, compute)))
    one, other, together = (measure(group, run) for run in (compute, communicate, both))

    if group.rank == 0:
        hidden = (one + other - together) / min(one, other)
        cores, wanted = len(os.sched_getaffinity(0)), 2 * group.size
        enough = "enough" if cores >= wanted else f"too few to hide all: that takes {wanted}"
        print(f"compute only       {one * 1e3:7.2f} ms")
        print(f"communicate only   {other * 1e3:7.2f} ms")
        print(f"both at once       {together * 1e3:7.2f} ms")
        print(f"overlap            {hidden:7.0%} of the shorter one ({cores} cores: {enough})")
