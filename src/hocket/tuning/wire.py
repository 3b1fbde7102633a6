"""What a link between hosts carries in the time of a round: the one number that tells whether fewer rounds or fewer
bytes are worth more there.

    time of a call = rounds * round + bytes on the busiest link * time of a byte          wire = round / time of a byte

It is measured where a group is formed, by gathering small rows and longer ones, and all ranks get the same. No more is
believed than that with which the sizes of `choose` were found; with less they shrink.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from .topology import KIB, WIRE

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

LEAST = 2 * KIB
LONG = 128 * KIB  # bytes on the busiest link
TIMES = 12
ENOUGH = 0.01  # seconds, after which no more is tried


def measure(gather: Callable[[Array], Array], crossing: int, clock: Callable[[], float] = time.perf_counter) -> int:
    """Bytes, a power of two, the same on every rank. `gather(row)` gives all ranks' rows, of which `crossing` go over
    the busiest link."""

    def seconds(nbytes: int) -> float:
        """Those of the slowest rank, and of its times the one that three quarters are longer than: most of what
        disturbs makes them longer, and what makes the first ones shorter is a bucket that is not empty yet."""
        row, taken = np.zeros((1, nbytes), np.uint8), list[float]()
        gather(row)  # the first of its kind is planned
        while len(taken) < TIMES and sum(taken) < ENOUGH:
            start = clock()
            gather(row)
            taken.append(float(gather(np.array([[clock() - start]])).max()))
        return sorted(taken)[len(taken) // 4]

    block = max(8, LONG // crossing)
    round_ = seconds(8)
    return rounded(round_ * block * crossing, seconds(block) - round_)


def rounded(carried: float, beyond: float) -> int:
    """`carried / beyond`, as the nearest power of two within the bounds; without logarithms, which processors may take
    differently."""
    wire = carried / beyond if beyond > 0 else WIRE
    mantissa, exponent = math.frexp(min(max(wire, LEAST), WIRE))
    return 1 << (exponent - (mantissa < math.sqrt(0.5)))
