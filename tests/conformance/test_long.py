"""What is longer than caches is copied past them where nobody reads it soon: every byte is right, and none beside."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from worlds import Worlds

MIB = 1 << 20
WHOLE = 34 * MIB + 2 * 17  # of 2 ranks, each of whose parts is beyond what the core takes for long


@cache
def pattern(rank: int, count: int = WHOLE) -> Any:
    """Bytes that differ by rank and position, and do not come again with a period of a power of two."""
    return ((np.arange(count, dtype=np.uint32) * 2654435761) >> 13).astype(np.uint8) + np.uint8(rank * 71)


def room(count: int, offset: int) -> tuple[Any, Any]:
    """An array that begins so many bytes into a page, and all that it lies in."""
    whole = np.full(count + 2 * 4096, 93, np.uint8)
    begin = -whole.ctypes.data % 4096 + offset
    return whole[begin : begin + count], whole


def moves(group: Any, offset: int) -> None:
    n, rank = group.size, group.rank
    mine, part = pattern(rank), WHOLE // n
    all_of_them = np.concatenate([pattern(r, part) for r in range(n)])
    own = slice(rank * part, (rank + 1) * part)

    def check(call: Any, count: int, wanted: Any, before: Any = None) -> None:
        out, whole = room(count, offset)
        if before is not None:
            out[before[0]] = before[1]
        call(out)
        assert wanted is None or (out == wanted).all()
        if wanted is not None:
            out[:] = 93
        assert (whole == 93).all()

    check(lambda out: group.all_gather(mine[:part], out=out), WHOLE, all_of_them)
    check(lambda out: group.all_gather(out[own], out=out), WHOLE, all_of_them, (own, mine[:part]))
    sent = np.concatenate([pattern(r)[own] for r in range(n)])
    check(lambda out: group.all_to_all(mine, out=out), WHOLE, sent)
    check(lambda out: group.all_to_all(out, out=out), WHOLE, sent, (slice(None), mine))
    for root in (0, n - 1):
        at_root = rank == root
        gathered = all_of_them if at_root else None
        check(lambda out, r=root: group.gather(mine[:part], out=out if rank == r else None, root=r), WHOLE, gathered)
        x = mine if at_root else None
        check(lambda out, r=root, x=x: group.scatter(x, out=out, root=r), part, pattern(root)[own])
        there = (slice(None), mine) if at_root else None
        check(lambda out, r=root: group.broadcast(out, root=r, out=out), WHOLE, pattern(root), there)
    right, left = (rank + 1) % n, (rank - 1) % n
    check(lambda out: group.sendrecv(mine, right, left, out=out), WHOLE, pattern(left))
    total = sum(pattern(r) for r in range(n))  # wraps around
    check(lambda out: group.all_reduce(mine, out=out), WHOLE, total)
    check(lambda out: group.all_reduce(out, out=out), WHOLE, total, (slice(None), mine))


@pytest.mark.parametrize("offset", [16, 4081])
def test_long_ones_are_moved_whole(world: Worlds, offset: int) -> None:
    world(2).run(moves, offset)
