"""Algorithms that know where the ranks lie: right however they lie, and sparing with the wire."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pytest
from oracle import NAMES, floats, given, same

from hocket.plans.algorithms import Algorithm, plan, ring
from hocket.plans.algorithms.lanes import lanes
from hocket.plans.check import check
from hocket.plans.collectives import COLLECTIVES
from hocket.plans.count import bytes_per_host, count
from hocket.plans.interpret import interpret
from hocket.plans.plan import Steps, copy, out
from hocket.plans.prove import proved

BY_PLACES = [name for name in NAMES if name[1].startswith("hierarchical")]
SHAPES = [
    (1,),
    (2,),
    (1, 1),
    (2, 2),
    (3, 1),
    (1, 3),
    (3, 2),
    (4, 4),
    (1, 1, 1),
    (2, 2, 2),
    (3, 1, 2),
    (8, 7),
    (5, 4, 3, 2),
]


def arrangements() -> Iterator[tuple[int, ...]]:
    """Neighbours on one host; the same, with hosts numbered as it comes; and shuffled."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for shape in SHAPES:
        numbers = draw.sample(range(9), len(shape))
        blocks = [host for host, ranks in zip(numbers, shape, strict=True) for _ in range(ranks)]
        yield tuple(blocks)
        yield tuple(draw.sample(blocks, len(blocks)))


def in_blocks(places: tuple[int, ...]) -> bool:
    """Whether each host's ranks are neighbours."""
    return 1 + sum(a != b for a, b in itertools.pairwise(places)) == len(set(places))


@pytest.mark.parametrize("name", BY_PLACES, ids="-".join)
def test_proved_wherever_the_ranks_lie(name: tuple[str, str]) -> None:
    for places in arrangements():
        n = len(places)
        for root in {0, n // 2, n - 1} if COLLECTIVES[name[0]].rooted else {0}:
            facts = check(plan(*name, n, root, places))
            assert facts.in_place, (places, root)
            assert facts.same_everywhere, (places, root)
            assert facts.size_invariant, (places, root)
            assert facts.rank_order or not in_blocks(places), (places, root)


def test_the_chain_has_the_bits_of_a_fold_from_the_first_rank_to_the_last() -> None:
    for places in filter(in_blocks, arrangements()):
        rng, n = np.random.default_rng(len(places)), len(places)
        arrays = given("all_reduce", n, 501, 0, lambda count, rng=rng: floats(rng, count))  # type: ignore[misc]
        wanted = [reduce(np.add, arrays)] * n
        chain = plan("all_reduce", "hierarchical_chain", n, places=places)
        assert same(interpret(chain, arrays, np.add), wanted), places
        if n > 4 and len(set(places)) > 1:  # not so where hosts are summed first: what tells them apart
            other = interpret(plan("all_reduce", "hierarchical", n, places=places), arrays, np.add)
            assert not same(other, wanted), places


# The bytes that the busiest of H hosts sends to others, for the whole vector's S; k of all n ranks are on it.
WIRE: dict[tuple[str, str], Callable[[int, int, int], Fraction | int]] = {
    ("all_reduce", "hierarchical"): lambda hosts, n, k: Fraction(2 * (hosts - 1), hosts),
    ("all_reduce", "hierarchical_chain"): lambda hosts, n, k: min(hosts - 1, 2),
    ("reduce", "hierarchical_chain"): lambda hosts, n, k: min(hosts - 1, 1),
    ("broadcast", "hierarchical"): lambda hosts, n, k: hosts - 1,
    ("all_gather", "hierarchical"): lambda hosts, n, k: Fraction(k * (hosts - 1), n),
    ("reduce_scatter", "hierarchical"): lambda hosts, n, k: Fraction(n - k, n),
    ("barrier", "hierarchical"): lambda hosts, n, k: Fraction(k * (hosts - 1), n),
}


@pytest.mark.parametrize("name", BY_PLACES, ids="-".join)
def test_what_the_wire_carries_does_not_depend_on_the_ranks_of_a_host(name: tuple[str, str]) -> None:
    for places in arrangements():
        hosts, n = len(set(places)), len(places)
        made = plan(*name, n, places=places)
        busiest = max(WIRE[name](hosts, n, places.count(host)) for host in places)
        assert bytes_per_host(made, places) == busiest, places


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("hosts", [17, 32])
def test_over_many_hosts_nobody_speaks_to_all_of_them(hosts: int, ranks: int) -> None:
    places = tuple(host for host in range(hosts) for _ in range(ranks))
    made = plan("all_reduce", "hierarchical", len(places), places=places)
    facts = check(made)
    assert facts.in_place
    assert facts.same_everywhere
    assert facts.size_invariant
    assert facts.rank_order
    counts = count(made)
    assert counts.rounds == 2 * (ranks > 1) + 10
    assert max(counts.messages_sent) <= 2 * (ranks - 1) + 2 * 10
    assert bytes_per_host(made, places) <= Fraction(2 * 31, 32)


def test_many_hosts_with_unequally_many_ranks() -> None:
    places = (*[0] * 3, *range(1, 20), *[20] * 2)
    facts = check(plan("all_reduce", "hierarchical", len(places), places=places))
    assert facts.same_everywhere
    assert facts.rank_order


@pytest.mark.parametrize("name", [("all_reduce", "recursive_halving"), ("reduce_scatter", "recursive_halving")])
def test_halving_speaks_to_near_ranks_first(name: tuple[str, str]) -> None:
    """It is told nothing of hosts, and where they and their ranks are powers of two sends as if each were one rank."""
    for hosts, ranks in itertools.product((2, 4, 8), (1, 2, 4)):
        each_way = 2 if name[0] == "all_reduce" else 1
        places = tuple(host for host in range(hosts) for _ in range(ranks))
        assert bytes_per_host(plan(*name, hosts * ranks), places) == Fraction(each_way * (hosts - 1), hosts)


def test_every_chunk_has_a_rank_on_every_host_and_every_rank_a_fair_part() -> None:
    for places in arrangements():
        found = lanes(len(places), places)
        assert sorted(np.concatenate(found.hosts)) == list(range(len(places)))
        for ranks, owner in zip(found.hosts, found.owner, strict=True):
            assert len({places[rank] for rank in ranks}) == 1
            parts = [int((owner == rank).sum()) for rank in ranks]
            assert sum(parts) == found.owner.shape[1]
            assert max(parts) <= 1.25 * min(parts) + 1, (places, parts)


@pytest.mark.parametrize("name", BY_PLACES, ids="-".join)
def test_by_default_two_halves(name: tuple[str, str]) -> None:
    assert plan(*name, 5) == plan(*name, 5, places=(0, 0, 0, 1, 1))
    assert plan(*name, 1) == plan(*name, 1, places=(7,))


def test_an_algorithm_of_ones_own_is_told_where_the_ranks_lie() -> None:
    seen: list[Any] = []

    def mine(n: int, places: tuple[int, ...] = (0,)) -> Steps:
        seen.append((n, places))
        return ring.all_reduce(n)

    class Own:
        """One that cannot be found again."""

        __hash__ = None  # type: ignore[assignment]

        def __call__(self, n: int, places: tuple[int, ...]) -> Steps:
            return mine(n, places)

    plain: Algorithm = ring.all_reduce
    for algorithm in (mine, Own()):
        made = proved("all_reduce", algorithm, 3, places=(0, 0, 4)).plan
        assert set(seen) == {(3, (0, 0, 4))}
        assert made.algorithm in ("mine", "Own")
        seen.clear()
    assert proved("all_reduce", mine, 3, places=(0, 0, 4)).plan is proved("all_reduce", mine, 3, places=(0, 0, 4)).plan
    assert proved("all_reduce", plain, 3, places=(0, 0, 4)).plan is proved("all_reduce", plain, 3).plan


def test_a_root_is_rank_0_to_an_algorithm_and_so_are_the_places() -> None:
    def near_first(n: int, places: tuple[int, ...] = ()) -> Steps:
        """The ranks of the root's host, then the others."""
        near = np.array([rank for rank in range(1, n) if places[rank] == places[0]], np.int64)
        yield copy(out(near), out(0))
        yield copy(out(np.setdiff1d(np.arange(1, n), near)), out(0))

    made = proved("broadcast", near_first, 5, 3, places=(4, 4, 1, 1, 1)).plan
    assert [front.dst_rank.tolist() for front in made.fronts()] == [[4, 2], [0, 1]]
