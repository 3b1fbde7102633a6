"""How every library is timed: the same loop, the same numbers, the same lines of JSON.

A peer is a script `with_<library>.py`, started once per rank by the library's own launcher, that hands its all-reduce
and its barrier to `run` below. Its arguments are sizes and how often each is repeated, as BYTES:TIMES:

    mpirun -n 2 python with_mpi.py 8:1000 67108864:5

Rank 0 prints one JSON object per size:

    {"library": "Open MPI 5.0.11", "ranks": 2, "bytes": 8, "times": 1000, "wrong": 0, "microseconds": 1.3,
     "microseconds_10": 1.2, "microseconds_90": 1.6}

One repetition: every rank writes its whole input (so that no cache, page or result of the last repetition helps), all
meet in a barrier, and each rank times its own call. The time of a repetition is that of its slowest rank, and
`microseconds` is the median over repetitions, with the 10th and 90th percentiles beside it. `wrong` counts wrong
elements, over all ranks, in the result of the last repetition.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

WARMUP = 3


def run(
    library: str,
    rank: int,
    ranks: int,
    all_reduce: Callable[[Any, Any], object],
    barrier: Callable[[], object],
    *,
    wrap: Callable[[np.ndarray], Any] = lambda array: array,
    in_place: bool = False,
) -> None:
    """Time `all_reduce(x, y)`, which sums float32 arrays over the ranks into y, for each size on the command line.

    `wrap` turns a NumPy array into what the library takes, sharing its memory. With `in_place`, y is x. The times
    themselves travel by `all_reduce`, as one entry per rank and repetition.
    """
    for argument in sys.argv[1:]:
        size, times = (int(number) for number in argument.split(":"))
        x = np.zeros(size // 4, np.float32)
        y = x if in_place else np.zeros_like(x)
        wx, wy = wrap(x), wrap(y)
        seconds = np.zeros((ranks, times), np.float32)
        for i in range(-WARMUP, times):
            x.fill(rank + i % 8)
            barrier()
            start = time.perf_counter()
            all_reduce(wx, wy)
            seconds[rank, max(i, 0)] = time.perf_counter() - start
        wrong = np.zeros((ranks, 1), np.float32)
        wrong[rank] = np.count_nonzero(y != sum(range(ranks)) + ranks * ((times - 1) % 8))
        mine = np.hstack([seconds, wrong]).ravel()
        everyone = mine if in_place else np.zeros_like(mine)
        all_reduce(wrap(mine), wrap(everyone))
        if rank == 0:
            table = everyone.reshape(ranks, times + 1)
            low, median, high = np.percentile(table[:, :-1].max(axis=0) * 1e6, (10, 50, 90)).round(2).tolist()
            line = {"library": library, "ranks": ranks, "bytes": size, "times": times, "wrong": int(table[:, -1].sum())}
            line |= {"microseconds": median, "microseconds_10": low, "microseconds_90": high}
            print(json.dumps(line), flush=True)
