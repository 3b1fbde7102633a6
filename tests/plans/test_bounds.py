"""No plan takes less than the least there is, and those that the literature calls optimal take just that."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import count

import pytest
from oracle import NAMES

from hocket.plans.algorithms import plan
from hocket.plans.bounds import certificate, least_bytes, least_rounds

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17)


@pytest.mark.parametrize(("collective", "algorithm"), NAMES, ids="-".join)
def test_no_algorithm_takes_less(collective: str, algorithm: str) -> None:
    for n in SIZES:
        made = certificate(plan(collective, algorithm, n))
        assert made.rounds >= made.least_rounds, n
        assert collective == "barrier" or made.bytes_per_rank >= made.least_bytes, n


OPTIMAL = {
    ("all_reduce", "ring"): (False, True),
    ("all_reduce", "one_shot"): (True, False),
    ("all_gather", "bruck"): (True, True),
    ("all_gather", "direct"): (True, True),
    ("reduce_scatter", "circulant"): (True, True),
    ("broadcast", "binomial_tree"): (True, False),
    ("scatter", "binomial_tree"): (True, True),
    ("reduce", "binomial_tree"): (True, True),
    ("gather", "direct"): (True, True),
    ("all_to_all", "pairwise"): (False, True),
}


@pytest.mark.parametrize("name", OPTIMAL, ids="-".join)
def test_what_is_optimal_is(name: tuple[str, str]) -> None:
    assert [certificate(plan(*name, n)).is_optimal for n in (8, 16)] == [OPTIMAL[name]] * 2


def test_the_least_rounds_are_a_logarithm() -> None:
    for n in range(1, 200):
        for k in (1, 2, 3, 10):
            assert least_rounds(n, k) == next(t for t in count() if (k + 1) ** t >= n)
    assert least_rounds(1024) == math.log2(1024)


def test_the_least_bytes_are_those_of_the_literature() -> None:
    assert least_bytes("all_reduce", 4) == Fraction(3, 2)
    assert [least_bytes(name, 4) for name in ("broadcast", "reduce", "gather", "all_to_all", "barrier")] == [
        1,
        1,
        Fraction(1, 4),
        Fraction(3, 4),
        0,
    ]
    with pytest.raises(ValueError, match="there is no collective 'allreduce'"):
        least_bytes("allreduce", 4)
