"""The definition against NumPy: every collective, uneven and empty, in place and not, whatever the operator."""

from __future__ import annotations

from functools import reduce
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from oracle import NAMES, ROOTED, after, even, expected, floats, given, maps, numbers, same

from hocket.errors import PlanError
from hocket.plans.algorithms import plan
from hocket.plans.check import check
from hocket.plans.collectives import COLLECTIVES
from hocket.plans.interpret import interpret
from hocket.plans.plan import Plan, copy, inp, out, tmp

SIZED = [name for name in NAMES if COLLECTIVES[name[0]].blocks]


def random(name: tuple[str, str]) -> np.random.Generator:
    seed = crc32("-".join(name).encode())
    print(f"seed {seed}")
    return np.random.default_rng(seed)


@pytest.mark.parametrize("name", NAMES, ids="-".join)
def test_as_numpy_says(name: tuple[str, str]) -> None:
    rng = random(name)
    for n in (1, 2, 3, 5, 8):
        for count in {0, 1, n - 1, n, n + 1, 41}:
            arrays = given(name[0], n, count, 0, lambda k: numbers(rng, k))
            wanted = expected(name[0], arrays, 0, np.add)
            made, is_cut_evenly = plan(*name, n), name[0] != "all_to_all" or count % n == 0
            if not is_cut_evenly and not check(made).uneven:
                continue
            for in_place in (False, True) if is_cut_evenly and check(made).in_place else (False,):
                got = interpret(made, arrays, np.add, in_place=in_place)
                assert same(got, wanted), (n, count, in_place)


@pytest.mark.parametrize("name", ROOTED, ids="-".join)
def test_from_every_root(name: tuple[str, str]) -> None:
    rng = random(name)
    for n in (2, 3, 5, 8):
        for root in range(n):
            arrays = given(name[0], n, 3 * n + 1, root, lambda k: numbers(rng, k))
            for in_place in (False, True):
                got = interpret(plan(*name, n, root), arrays, np.add, in_place=in_place)
                assert same(got, expected(name[0], arrays, root, np.add)), (n, root, in_place)


@pytest.mark.parametrize("name", SIZED, ids="-".join)
def test_uneven_blocks(name: tuple[str, str]) -> None:
    """The "v" variants: blocks of any sizes, some of them empty."""
    rng = random(name)
    for n in (1, 2, 3, 5, 8):
        if not check(plan(*name, n)).uneven:
            continue
        shape = (n, n) if COLLECTIVES[name[0]].transposed else n
        sizes: Any = (rng.integers(0, 5, shape) * rng.integers(0, 2, shape)).tolist()
        count = sum(sizes) if isinstance(shape, int) else 0
        arrays = given(name[0], n, count, 0, lambda k: numbers(rng, k), sizes)
        for in_place in (False, True) if isinstance(shape, int) else (False,):
            got = interpret(plan(*name, n), arrays, np.add, sizes=sizes, in_place=in_place)
            assert same(got, expected(name[0], arrays, 0, np.add, sizes)), (n, sizes, in_place)


@pytest.mark.parametrize("name", [name for name in NAMES if COLLECTIVES[name[0]].reduces], ids="-".join)
def test_rank_order_means_that_operators_need_not_commute(name: tuple[str, str]) -> None:
    rng = random(name)
    for n in (2, 3, 5, 6, 7, 8):
        for root in range(n) if COLLECTIVES[name[0]].rooted else (0,):
            made = plan(*name, n, root)
            arrays = given(name[0], n, 2 * n + 1, root, lambda k: maps(rng, k))
            right = same(interpret(made, arrays, after), expected(name[0], arrays, root, after))
            assert right == check(made).rank_order, (n, root)


@pytest.mark.parametrize("name", [name for name in NAMES if name[0] == "all_reduce"], ids="-".join)
def test_the_facts_about_bits_hold_for_floats(name: tuple[str, str]) -> None:
    """All ranks hold the same bits; and bits that do not depend on the size do not, while those of a ring do."""
    rng = random(name)
    for n in (3, 5, 6, 8):
        made = plan(*name, n)
        arrays = [floats(rng, 500) for _ in range(n)]
        whole = interpret(made, arrays, np.add)
        assert same(whole, whole[:1] * n)
        assert whole[0] is not None
        shown = []
        for count in (1, n - 1, n, n + 1, 77, 499):
            part = interpret(made, [x[:count] for x in arrays], np.add)
            shown.append(same(part, [whole[0][:count]] * n))
        swapped = name[1] == "circulant" and n & (n - 1) == 0  # only operands are, which floats do not show
        assert all(shown) == (check(made).size_invariant or swapped), n


def test_plans_with_one_bracket_give_the_same_bits() -> None:
    """All that fold in rank order from the left agree; all that fold along the binomial tree; doubling and halving."""
    rng = random(("", ""))
    for n in (2, 3, 5, 8):
        arrays = [floats(rng, 50) for _ in range(n)]
        left = reduce(np.add, arrays)
        for algorithm in ("naive", "one_shot", "two_shot"):
            assert same(interpret(plan("all_reduce", algorithm, n), arrays, np.add), [left] * n)
        assert same(
            interpret(plan("reduce_scatter", "direct", n), arrays, np.add), np.split(left, np.cumsum(even(50, n))[:-1])
        )
        tree = interpret(plan("all_reduce", "binomial_tree", n), arrays, np.add)[0]
        for root in range(n):
            assert same([interpret(plan("reduce", "direct", n, root), arrays, np.add)[root]], [left])
            assert same([interpret(plan("reduce", "binomial_tree", n, root), arrays, np.add)[root]], [tree])
        doubling, halving = (
            interpret(plan("all_reduce", f"recursive_{what}", n), arrays, np.add)[0] for what in ("doubling", "halving")
        )
        assert same([doubling], [halving])
        for root in range(n):
            assert same([interpret(plan("reduce", "recursive_halving", n, root), arrays, np.add)[root]], [halving])
        if n in (2, 8):
            assert same(interpret(plan("all_reduce", "recursive_doubling", n), arrays, np.add)[:1], [tree])


def test_a_fold_may_be_rounded_once() -> None:
    """float16 folded in float32: 2048 + 1 + 1 is 2050, where each sum rounded to float16 would stay at 2048."""
    arrays = [np.array([x], np.float16) for x in (2048, 1, 1)]
    made = plan("all_reduce", "two_shot", 3)
    rounded, kept = (interpret(made, arrays, np.add, accumulate=kind) for kind in (None, np.float32))
    assert [x[0] for x in (rounded[0], kept[0]) if x is not None] == [2048, 2050]
    assert all(x is not None and x.dtype == np.float16 for x in kept)


def test_the_given_arrays_are_not_written() -> None:
    arrays = [np.arange(7) + 10 * r for r in range(3)]
    before = [x.copy() for x in arrays]
    interpret(plan("all_reduce", "ring", 3), arrays, np.add, in_place=True)
    assert same(arrays, before)


def test_a_front_reads_before_it_writes() -> None:
    """Two ranks swap what they have, in place: this works in one front and does not in two."""
    swap = [copy(out(0, 1), inp(1, 0)), copy(out(1, 0), inp(0, 1))]
    arrays = [np.array([1, 2]), np.array([3, 4])]
    wanted = [np.array([1, 3]), np.array([2, 4])]
    for steps, right in (([tuple(swap)], True), (swap, False)):
        made = Plan("all_to_all", "swap", 2, 0, 2, lambda steps=steps: steps)  # type: ignore[misc]
        assert same(interpret(made, arrays), wanted)
        assert same(interpret(made, arrays, in_place=True), wanted) == right
        assert check(made).in_place == right


def test_a_broken_plan_gives_garbage_or_says_what_is_not_there() -> None:
    arrays = [np.array([1.0, 2.0, 3.0])] * 2
    made = Plan("all_reduce", "x", 2, 0, 1, lambda: [copy(out(0), tmp(1))])
    first, second = interpret(made, arrays, np.add)
    assert np.isnan(first).all()  # type: ignore[arg-type]
    assert same([second], arrays[1:])
    for slot in (out(0, 1), out(2, 0), inp(-1, 0), tmp(0, -1), tmp(5, 0)):
        made = Plan("all_reduce", "x", 2, 0, 1, lambda slot=slot: [copy(out(0), slot)])  # type: ignore[misc]
        with pytest.raises(PlanError, match="there is no slot"):
            interpret(made, arrays, np.add)
    with pytest.raises(ValueError, match="not in place: rank 0 gives 1 elements where it gets 2"):
        interpret(plan("all_to_all", "direct", 2), arrays, in_place=True)
    made = Plan("all_reduce", "x", 2, 0, 2, lambda: [copy(out(0, 0), inp(1, 1))])
    with pytest.raises(PlanError, match="1 elements do not fit a slot of 2"):
        interpret(made, arrays, np.add)
