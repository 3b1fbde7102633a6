"""What is longer than caches is copied past them where nobody reads it soon: every byte is right, and none beside."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from worlds import Worlds

MIB = 1 << 20
WHOLE = 34 * MIB + 2 * 17  # of 2 ranks, each of whose parts is beyond what the core takes for long
SHARED = 6 * MIB + 3 * 17  # of 3 ranks, who together write as much


@cache
def pattern(rank: int, count: int = WHOLE) -> Any:
    """Bytes that differ by rank and position, and do not come again with a period of a power of two."""
    return ((np.arange(count, dtype=np.uint32) * 2654435761) >> 13).astype(np.uint8) + np.uint8(rank * 71)


def room(count: int, offset: int) -> tuple[Any, Any]:
    """An array that begins so many bytes into a page, and all that it lies in."""
    whole = np.full(count + 2 * 4096, 93, np.uint8)
    begin = -whole.ctypes.data % 4096 + offset
    return whole[begin : begin + count], whole


def moves(group: Any, offset: int, whole: int) -> None:
    n, rank = group.size, group.rank
    mine, part = pattern(rank, whole), whole // n
    all_of_them = np.concatenate([pattern(r, part) for r in range(n)])
    own = slice(rank * part, (rank + 1) * part)

    def check(call: Any, count: int, wanted: Any, before: Any = None) -> None:
        out, around = room(count, offset)
        if before is not None:
            out[before[0]] = before[1]
        call(out)
        assert wanted is None or (out == wanted).all()
        if wanted is not None:
            out[:] = 93
        assert (around == 93).all()

    check(lambda out: group.all_gather(mine[:part], out=out), whole, all_of_them)
    check(lambda out: group.all_gather(out[own], out=out), whole, all_of_them, (own, mine[:part]))
    sent = np.concatenate([pattern(r, whole)[own] for r in range(n)])
    check(lambda out: group.all_to_all(mine, out=out), whole, sent)
    check(lambda out: group.all_to_all(out, out=out), whole, sent, (slice(None), mine))
    for root in (0, n - 1):
        at_root = rank == root
        gathered = all_of_them if at_root else None
        check(lambda out, r=root: group.gather(mine[:part], out=out if rank == r else None, root=r), whole, gathered)
        x = mine if at_root else None
        check(lambda out, r=root, x=x: group.scatter(x, out=out, root=r), part, pattern(root, whole)[own])
        there = (slice(None), mine) if at_root else None
        check(lambda out, r=root: group.broadcast(out, root=r, out=out), whole, pattern(root, whole), there)
    right, left = (rank + 1) % n, (rank - 1) % n
    check(lambda out: group.sendrecv(mine, right, left, out=out), whole, pattern(left, whole))
    total = sum(pattern(r, whole) for r in range(n))  # wraps around
    check(lambda out: group.all_reduce(mine, out=out), whole, total)
    check(lambda out: group.all_reduce(out, out=out), whole, total, (slice(None), mine))


@pytest.mark.parametrize("offset", [16, 4081])
@pytest.mark.parametrize(("size", "whole"), [(2, WHOLE), (3, SHARED)])
def test_long_ones_are_moved_whole(world: Worlds, size: int, whole: int, offset: int) -> None:
    world(size).run(moves, offset, whole)
