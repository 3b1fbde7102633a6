"""Where sums can come home in the slots that their parts went out in: found in plans that are so, and in no others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hocket.plans.algorithms import ALGORITHMS, plan
from hocket.plans.check import check
from hocket.plans.lower import lower
from hocket.plans.plan import Plan, Steps, copy, inp, out, reduce, tmp
from hocket.plans.program import NOTHING, Share

PAIRED = ("two_shot", "ring", "recursive_halving", "circulant", "torus", "double_binary_tree")
EXCHANGES = {(name, 2) for name in PAIRED}


def loans(share: Share) -> list[tuple[int, int]]:
    """Which send comes home with which receive."""
    return [(number, send.home) for number, send in enumerate(share.sends) if send.home != NOTHING]


def answers(share: Share) -> list[tuple[int, int]]:
    """Which receive makes what which send would answer."""
    return [(number, r.answer) for number, r in enumerate(share.receives) if r.answer != NOTHING]


def test_the_exchanges_in_the_book() -> None:
    found = set()
    for collective, name in ALGORITHMS:
        for size in range(1, 9):
            try:
                value = plan(collective, name, size)
            except ValueError:  # not for this size
                continue
            for rank in range(size):
                share = lower(value, rank, spans=False)
                if loans(share) or answers(share):
                    found.add((name, size))
                    assert collective == "all_reduce"
                    assert (loans(share), answers(share)) == ([(0, 1)], [(0, 1)])
    assert found == EXCHANGES


def fold(n: int) -> Steps:
    """Each rank folds its own chunk."""
    yield reduce(out(0, 0), inp(1, 0)), reduce(out(1, 1), inp(0, 1))


def honest(n: int) -> Steps:
    """And gives the sum back."""
    yield from fold(n)
    yield copy(out(1, 0), out(0, 0)), copy(out(0, 1), out(1, 1))


def one_gives_its_own(n: int) -> Steps:
    """Rank 1 answers with what it had before."""
    yield from fold(n)
    yield copy(out(1, 0), out(0, 0)), copy(out(0, 1), inp(1, 1))


def folded_again(n: int) -> Steps:
    """Rank 1 folds once more before it answers."""
    yield from fold(n)
    yield reduce(out(1, 1), inp(1, 1))
    yield copy(out(1, 0), out(0, 0)), copy(out(0, 1), out(1, 1))


def crossed(n: int) -> Steps:
    """Each rank gets the other sum, where it has folded one itself."""
    yield from fold(n)
    yield copy(out(1, 1), out(0, 0)), copy(out(0, 0), out(1, 1))


def later(n: int) -> Steps:
    """A step in between: what is lent would be away for longer than the slots are made for."""
    yield from fold(n)
    yield copy(tmp(2, 0), inp(2, 0))
    yield copy(out(1, 0), out(0, 0)), copy(out(0, 1), out(1, 1))


def others(n: int) -> Steps:
    """A third rank folds what rank 1 gave."""
    yield reduce(out(0, 0), inp(1, 0)), reduce(out(2, 1), inp(0, 1))
    yield copy(out(1, 0), out(0, 0)), copy(out(0, 1), out(2, 1))


def three(n: int) -> Steps:
    """Of three parts one comes from elsewhere: its slot cannot be the only one."""
    yield reduce(out(0, 0), inp(1, 0)), reduce(out(0, 0), inp(2, 0)), reduce(out(1, 1), inp(0, 1))
    yield copy(out(1, 0), out(0, 0)), copy(out(0, 1), out(1, 1))


def kept(n: int) -> Steps:
    """A scan in which rank 0 keeps what it has, and gets rank 1's sum for nothing: where its output is not its input,
    it copies that, and does more than exchange."""
    yield copy(tmp(0, 0), inp(0, 0)), reduce(tmp(0, 0), inp(1, 0)), reduce(out(1, 1), inp(0, 1))
    yield copy(out(1, 0), tmp(0, 0)), copy(tmp(0, 1), out(1, 1))


@pytest.mark.parametrize("spans", [False, True])
def test_who_lends_knows_that_the_other_expects_it(spans: bool) -> None:
    """Whatever either of them has in place."""
    value = Plan("scan", "kept", 2, 0, 2, lambda: kept(2))
    assert check(value).in_place
    for rank in range(2):
        for in_place in (False, True):
            share = lower(value, rank, in_place=in_place, spans=spans)
            assert (loans(share), answers(share)) == ([], []), (rank, in_place)


@pytest.mark.parametrize("source", [one_gives_its_own, folded_again, crossed, later, others, three])
def test_what_only_looks_like_one_is_none(source: Callable[[int], Steps]) -> None:
    size = 3 if source in (later, others, three) else 2
    value = Plan("all_reduce", source.__name__, size, 0, 2, lambda: source(size))
    for rank in range(size):
        for in_place in (False, True):
            share = lower(value, rank, in_place=in_place, spans=False)
            assert (loans(share), answers(share)) == ([], [])
    value = Plan("all_reduce", "honest", 2, 0, 2, lambda: honest(2))
    for rank in range(2):
        for in_place in (False, True):
            assert loans(lower(value, rank, in_place=in_place, spans=False)) == [(0, 1)]
