"""Every algorithm is proved for every number of ranks from 1 to 64, in place and not, and its facts are as expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from oracle import NAMES, ROOTED

from hocket.plans.algorithms import plan
from hocket.plans.check import Facts, check
from hocket.plans.plan import Plan, copy, inp, out, reduce, tmp
from hocket.plans.prove import proved

ALL = Facts(in_place=True, same_everywhere=True, size_invariant=True, rank_order=True)
# On a circle each chunk starts at another rank, so that each has another bracket, and only one is in rank order.
CIRCLE = Facts(in_place=True, same_everywhere=True, size_invariant=False, rank_order=False)
EXPECTED: dict[tuple[str, str], Callable[[int], Facts]] = {
    (of, name): lambda n: CIRCLE if n > 1 else ALL
    for of in ("all_reduce", "reduce_scatter")
    for name in ("ring", "circulant", "torus")
}
# The two halves of the vector have different trees, once there is room for two.
for of in ("all_reduce", "reduce"):
    EXPECTED[of, "double_binary_tree"] = lambda n: replace(ALL, size_invariant=n < 3)
# Blocks rest on the way where there may be blocks of other sizes; and some come into what is, in place, the memory of
# those that have not left yet.
EXPECTED["all_to_all", "bruck"] = lambda n: replace(ALL, in_place=n & (n - 1) == 0, uneven=n < 4)
# What is handed on is made of a rank's input after its output has come.
EXPECTED["exscan", "chain"] = lambda n: replace(ALL, in_place=n < 3)
# A rank's bracket is not that of the rank before with one operand more, once there is a choice.
EXPECTED["scan", "hillis_steele"] = lambda n: replace(ALL, same_everywhere=n < 3)
EXPECTED["scan", "brent_kung"] = lambda n: replace(ALL, same_everywhere=n < 4)
EXPECTED["exscan", "hillis_steele"] = lambda n: replace(ALL, same_everywhere=n < 4)
EXPECTED["exscan", "brent_kung"] = lambda n: replace(ALL, same_everywhere=n < 5)


def expected(name: tuple[str, str], n: int) -> Facts:
    return EXPECTED[name](n) if name in EXPECTED else ALL


@pytest.mark.parametrize("name", NAMES, ids="-".join)
def test_proved_for_1_to_64_ranks(name: tuple[str, str]) -> None:
    for n in range(1, 65):
        assert proved(*name, n).facts == expected(name, n), n


@pytest.mark.parametrize("name", ROOTED, ids="-".join)
def test_proved_for_every_root(name: tuple[str, str]) -> None:
    for n in (2, 3, 5, 8, 13):
        for root in range(n):
            made, facts = proved(*name, n, root)
            assert made.root == root
            assert facts == expected(name, n), (n, root)


@pytest.mark.parametrize("name", [("all_reduce", "ring"), ("all_reduce", "one_shot"), ("reduce_scatter", "ring")])
def test_proved_for_1024_ranks(name: tuple[str, str]) -> None:
    """A million moves, and no loop over them."""
    assert check(plan(*name, 1024)) == expected(name, 1024)


def test_a_size_of_one_moves_nothing_between_ranks() -> None:
    for name in NAMES:
        for front in plan(*name, 1).fronts():
            assert (front.dst_rank == front.src_rank).all(), name


def test_in_place_is_found_wrong() -> None:
    """The well-known pairwise exchange sends to r+h what r-h has overwritten, when input and output are one."""

    r = np.arange(5)
    shifted = [copy(out((r + h) % 5, r), inp(r, (r + h) % 5)) for h in range(1, 5)]
    facts = check(Plan("all_to_all", "shifted", 5, 0, 5, lambda: shifted))
    assert facts == Facts(in_place=False, same_everywhere=True, size_invariant=True, rank_order=True)


@pytest.mark.parametrize(("rank", "uneven"), [(0, True), (1, False), (2, False)])
def test_blocks_that_must_be_equal_are_found(rank: int, uneven: bool) -> None:
    """Rank 0's block for rank 2 rests in a slot as large as what `rank` has for rank 2."""
    (front,) = plan("all_to_all", "direct", 3).fronts()
    others = front.take((front.src_rank != 0) | (front.dst_rank != 2))
    steps = [(others, copy(tmp(rank, 2), inp(0, 2))), copy(out(2, 0), tmp(rank, 2))]
    assert check(Plan("all_to_all", "by way", 3, 0, 3, lambda: steps)).uneven == uneven


def test_same_everywhere_is_found_wrong() -> None:
    """Everyone adds to its own what comes from the right: each sum has another bracket."""
    r = np.arange(3)
    front = tuple(reduce(out(r), inp((r + k) % 3)) for k in (1, 2))
    facts = check(Plan("all_reduce", "selfish", 3, 0, 1, lambda: [front]))
    assert facts == Facts(in_place=True, same_everywhere=False, size_invariant=False, rank_order=False)


def test_rank_order_and_size_are_found_wrong_one_by_one() -> None:
    """One bracket for all, but backwards; and two chunks in rank order, but with two brackets."""
    backwards = (copy(out(0), inp(2)), reduce(out(0), inp(1)), reduce(out(0), inp(0)))
    assert check(Plan("reduce", "backwards", 3, 0, 1, lambda: [backwards])) == Facts(True, True, True, False)
    left = reduce(out(0, 0), inp([1, 2], 0))  # type: ignore[arg-type]  # (0 1) 2
    right = [(copy(tmp(0, 1), inp(1, 1)), reduce(tmp(0, 1), inp(2, 1))), reduce(out(0, 1), tmp(0, 1))]  # 0 (1 2)
    assert check(Plan("reduce", "lopsided", 3, 0, 2, lambda: [left, *right])) == Facts(True, True, False, True)
