"""What shows that a group works, whoever is in it."""

from __future__ import annotations

from typing import Any

import numpy as np


def works(group: Any, members: list[int]) -> None:
    """Calls of all kinds among the members, by the numbers that they once had, against NumPy."""
    assert group.size == len(members)
    mine = members[group.rank]
    for count in (1, 1000, 300_001):
        every = [np.arange(count) % 1009.0 + 7 * r for r in members]
        x = np.arange(count) % 1009.0 + 7 * mine
        assert (group.all_reduce(x) == np.sum(every, axis=0)).all()
        assert (group.all_gather(x) == np.concatenate(every)).all()
        assert (group.broadcast(x if group.rank == 0 else None) == every[0]).all()
        assert (group.all_reduce(x, async_op=True).wait() == np.sum(every, axis=0)).all()
    arena = group.empty(1000)
    arena[:] = mine
    assert (group.all_reduce(arena, out=arena) == sum(members)).all()
    if group.size > 1:
        after, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
        assert group.sendrecv(mine, after, before) == members[before]
    with group.split(0) as part:
        assert part.all_reduce(mine) == sum(members)
