"""The same bits: on every rank, in every run, and for every split of the message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hocket.plans.algorithms import names, plan
from hocket.plans.check import check
from worlds import Worlds

SEED = 20240612
COUNT = 50_000


def numbers(rank: int, dtype: str) -> np.ndarray:
    """Floats over many orders of magnitude, so that every other order of additions gives other bits somewhere."""
    rng = np.random.default_rng((SEED, rank))
    scale = 4 if dtype == "float16" else 12
    return (rng.standard_normal(COUNT) * 10.0 ** rng.integers(-scale // 2, scale // 4, COUNT)).astype(dtype)


def splits(group: Any, algorithm: str | None, dtype: str, op: str) -> list[bytes]:
    """The bits of the whole, and those of the same message in pieces of all sizes, joined."""
    x = numbers(group.rank, dtype)
    results = []
    for cuts in ((), (1,), (17, 1000), (24_999,), tuple(range(3000, COUNT, 3000)), (1, 2, 3, 5, 8, 13, 8192, 40_000)):
        pieces = np.split(x, cuts)
        results.append(np.concatenate([group.all_reduce(p, op, algorithm=algorithm) for p in pieces]).tobytes())
    again = group.all_reduce(x, op, algorithm=algorithm, out=x).tobytes()
    return [*results, again]


def places_of(group: Any) -> tuple[int, ...]:
    return tuple(group.topology.places)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_bits_do_not_depend_on_rank_run_or_split(world: Worlds, size: int, dtype: str) -> None:
    (places, *_) = world(size).run(places_of)
    plans = {name: plan("all_reduce", name, size, places=places) for name in names("all_reduce")}
    invariant = [name for name, each in plans.items() if check(each).size_invariant]
    is_even = len({places.count(host) for host in places}) == 1 and sorted(places) == list(places)
    if (
        dtype == "float16" and not is_even
    ):  # some parts are folded in more passes than others there, and rounded in each
        invariant = [name for name in invariant if not name.startswith("hierarchical")]
    assert {"one_shot", "two_shot", "binomial_tree"} <= set(invariant)
    for algorithm in (None, *invariant):
        for op in ("sum", "mean"):
            results = {bits for rank in world(size).run(splits, algorithm, dtype, op) for bits in rank}
            assert len(results) == 1, (algorithm, op)
    auto = world(size).run(splits, None, dtype, "sum")[0][0]
    assert auto == world(size).run(splits, "one_shot", dtype, "sum")[0][0]  # nor does the choice of algorithm show
    assert auto == world(size).run(splits, "two_shot", dtype, "sum")[0][0]


def test_a_ring_depends_on_the_split_but_not_on_the_rank(world: Worlds) -> None:
    """What the fact is for: chunk c of a ring is summed from rank c on, so that the place in the message decides."""
    assert not check(plan("all_reduce", "ring", 4)).size_invariant
    ranks = world(4).run(splits, "ring", "float32", "sum")
    assert all(rank == ranks[0] for rank in ranks)
    whole, *pieces, again = ranks[0]
    assert again == whole
    assert any(piece != whole for piece in pieces)


def test_the_data_tell_one_order_from_another() -> None:
    x = [numbers(rank, "float32") for rank in range(4)]
    assert (((x[0] + x[1]) + x[2]) + x[3]).tobytes() != ((x[0] + x[1]) + (x[2] + x[3])).tobytes()
