"""Combining plans keeps them right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import NAMES

from hocket.plans.algorithms import ALGORITHMS, combine, plan, recursive_doubling, ring
from hocket.plans.check import check
from hocket.plans.collectives import COLLECTIVES
from hocket.plans.count import count
from hocket.plans.plan import Plan, Steps, copy, inp, join, out, reduce, tmp

RENAMED = [name for name in NAMES if not COLLECTIVES[name[0]].scans]  # to which the order of ranks is all


@settings(max_examples=150, deadline=None)
@given(data=st.data(), name=st.sampled_from(RENAMED), n=st.integers(1, 12))
def test_a_plan_under_other_names_stays_right(data: st.DataObject, name: tuple[str, str], n: int) -> None:
    """Ranks in any order; where they own blocks, the chunks with them; where they do not, chunks in any order."""
    spec, original = COLLECTIVES[name[0]], plan(*name, n)
    ranks = data.draw(st.permutations(range(n)))
    per = original.chunks // n
    blocks = [rank * per + k for rank in ranks for k in range(per)]
    chunks = blocks if spec.blocks else data.draw(st.none() | st.permutations(range(original.chunks)))
    made = Plan(*name, n, ranks[0], original.chunks, lambda: combine.onto(original.source(), ranks, chunks))
    facts, before = check(made), check(original)
    assert (facts.same_everywhere, facts.in_place) == (before.same_everywhere, before.in_place)
    assert facts.size_invariant == before.size_invariant
    a, b = count(made), count(original)
    assert (a.rounds, a.steps, a.messages) == (b.rounds, b.steps, b.messages)
    for mine, its in ((a.messages_sent, b.messages_sent), (a.chunks_sent, b.chunks_sent)):
        assert [mine[r] for r in ranks] == list(its)


def test_onto_keeps_spans_together_where_it_can() -> None:
    span = copy(tmp(1, 2, 4), inp(0, 2, 4))
    (turned,) = combine.onto([span], [5, 7], [3, 4, 5, 0, 1, 2])
    assert str(turned) == "r7.tmp[5] <- r5.inp[5]  r7.tmp[0:3] <- r5.inp[0:3]"
    (second,) = combine.onto([copy(tmp(1, 6, 6), inp(0, 0, 6))], [0, 1], [3, 4, 5, 0, 1, 2])  # the second row of tmp
    assert str(second) == "r1.tmp[9:12] <- r0.inp[3:6]  r1.tmp[6:9] <- r0.inp[0:3]"


def test_beside_takes_the_steps_of_each_together() -> None:
    first, second, third = copy(tmp(1), inp(0)), copy(tmp(2), inp(1)), copy(tmp(3), inp(2))
    made = [str(front) for front in combine.fronts(combine.beside([first], [second, third]))]
    assert made == ["r1.tmp[0] <- r0.inp[0]  r2.tmp[0] <- r1.inp[0]", "r3.tmp[0] <- r2.inp[0]"]


def test_spans_joins_what_touches_at_both_ends_and_nothing_else() -> None:
    moves = [
        copy(out(1, 0, 2), inp(0, 0)),
        copy(out(1, 2), inp(0, 2)),
        copy(out(1, 3), inp(0, 4)),
        reduce(out(1, 4), inp(0, 5)),
        reduce(out(2, 5), inp(0, 6)),
        reduce(out(2, 6), tmp(0, 7)),
    ]
    joined = "r1.out[0:3] <- r0.inp[0:3]  r1.out[3] <- r0.inp[4]  r1.out[4] += r0.inp[5]"
    assert str(combine.spans(join(*moves))) == f"{joined}  r2.out[5] += r0.inp[6]  r2.out[6] += r0.tmp[7]"
    assert len(combine.spans(join())) == 0


def test_scattered_makes_the_first_half_of_an_all_reduce_a_reduce_scatter() -> None:
    """Chunk c at rank c, although it was summed in memory that a reduce-scatter has not."""

    def to_owner(n: int) -> Steps:
        for hop in range(n - 1):
            c = np.arange(n)
            yield reduce(out((c + hop + 2) % n, c), out((c + hop + 1) % n, c))

    for n in range(1, 9):
        made = Plan("reduce_scatter", "scattered", n, 0, n, lambda n=n: combine.scattered(to_owner(n), n))  # type: ignore[misc]
        facts, ring = check(made), plan("reduce_scatter", "ring", n)
        assert facts == check(ring)
        assert count(made) == count(ring)


def test_then_is_one_after_the_other() -> None:
    """An all-reduce on a ring is a reduce-scatter and then an all-gather, in as many rounds."""

    def twice(n: int) -> Steps:
        return combine.then(ring.reduce_scatter(n), ring.all_gather(n))

    for n in range(1, 9):
        made = Plan("all_reduce", "twice round", n, 0, n, lambda n=n: twice(n))  # type: ignore[misc]
        assert check(made) == check(plan("all_reduce", "ring", n))
        assert count(made).rounds == count(plan("all_reduce", "ring", n)).rounds
        assert count(made).bytes_per_rank == count(plan("all_reduce", "ring", n)).bytes_per_rank


@pytest.mark.parametrize("n", [*range(1, 34), 64, 100])
def test_folded_makes_powers_of_two_into_every_number(n: int) -> None:
    """Also an algorithm that cuts the vector, into as many chunks as there are ranks inside."""

    @combine.folded
    def two_shot(two: int) -> Steps:
        assert two & (two - 1) == 0
        r = np.arange(two)
        yield copy(tmp(r, r), inp(0, r)), *(reduce(tmp(r, r), inp(s, r)) for s in range(1, two))
        q, c = np.divmod(np.arange(two * two), two)
        yield copy(out(q, c), tmp(c, c))

    chunks = 1 << (n.bit_length() - 1)
    facts = check(Plan("all_reduce", "folded", n, 0, chunks, lambda: two_shot(n)))
    assert facts.rank_order
    assert facts.size_invariant
    assert facts.in_place


def test_folded_leaves_powers_of_two_alone() -> None:
    inside = recursive_doubling.all_reduce.__wrapped__  # type: ignore[attr-defined]
    for n in (1, 2, 4, 16):
        assert Plan("all_reduce", "recursive_doubling", n, 0, 1, lambda n=n: inside(n)) == plan(  # type: ignore[misc]
            "all_reduce", "recursive_doubling", n
        )


def test_every_algorithm_is_one_that_the_collectives_know() -> None:
    assert {collective for collective, _ in ALGORITHMS} == set(COLLECTIVES)
