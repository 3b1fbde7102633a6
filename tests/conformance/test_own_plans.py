"""Plans of one's own, which are right and look like none of hocket's."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from hocket.errors import MismatchError
from hocket.plans import copy, inp, out, reduce, tmp
from hocket.tuning.choose import segment_bytes, slots_bytes
from hocket.tuning.topology import ANY_HOST, this_host
from worlds import Worlds

SIZE, HOSTS = 4, (this_host(), ANY_HOST)
CHUNKS = 4 * max(slots_bytes(SIZE, host) // segment_bytes(SIZE, host) for host in HOSTS)
BYTES = max(segment_bytes(SIZE, host) for host in HOSTS)  # of a chunk: as long as a message can be


class Unequal:
    """Rank 0 folds `CHUNKS` chunks, one message after the other, and every other rank one, of all ranks at once."""

    __name__ = "unequal"

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, n: int) -> Any:
        owner = np.random.default_rng(self.seed).permutation([*[0] * CHUNKS, *range(1, n)])
        c = np.arange(len(owner))
        yield tuple((copy if rank == 0 else reduce)(tmp(owner, c), inp(rank, c)) for rank in range(n))
        yield tuple(copy(out(rank, c), tmp(owner, c)) for rank in range(n))


def summed(group: Any, seed: int) -> None:
    count = (CHUNKS + group.size - 1) * BYTES // 4
    x = np.arange(count, dtype=np.int32)
    y = group.all_reduce(x * (group.rank + 1), algorithm=Unequal(seed))
    assert np.array_equal(y, x * sum(range(1, group.size + 1)))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_more_than_fits_into_the_slots_may_be_sent_in_a_step(world: Worlds, seed: int) -> None:
    """However much one rank waits for while others fold: nobody waits in a circle."""
    world(SIZE).run(summed, seed, fresh=True, timeout=20)


def star_at(centre: int) -> Any:
    def star(n: int) -> Any:
        others = [rank for rank in range(n) if rank != centre]
        yield tuple(reduce(out(centre), inp(rank)) for rank in others)
        yield tuple(copy(out(rank), out(centre)) for rank in others)

    return star


def meet(group: Any, centres: list[int]) -> Any:
    return group.all_reduce(np.arange(9.0) + group.rank, algorithm=star_at(centres[group.rank]))


def test_two_plans_of_one_name_are_told_apart(world: Worlds) -> None:
    for result in world(3).run(meet, [1, 1, 1], fresh=True):
        assert np.array_equal(result, np.arange(9.0) * 3 + 3)
    for outcome in world(3).outcomes(meet, [0, 0, 1], fresh=True):
        assert isinstance(outcome, MismatchError), outcome
        words = r"all_reduce\(float64\[9\], op='sum', algorithm='star'; plan (\w{8})\)"
        assert len(set(re.findall(words, str(outcome)))) == 2, outcome
