"""Plans with one thing wrong. Whatever the interpreter shows to be wrong on data, `check` must refuse.

And whatever `check` accepts is run on data too: facts that it states of a mutant must hold as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from oracle import NAMES, after, expected, given, maps, numbers, same

from hocket.errors import PlanError
from hocket.plans.algorithms import plan
from hocket.plans.check import Facts, check
from hocket.plans.collectives import COLLECTIVES
from hocket.plans.interpret import interpret
from hocket.plans.plan import FIELDS, TMP, Front, Plan

Rows = list[list[int]]  # the moves of a front, each a list of its eight columns
Random = np.random.Generator

SIZES = (2, 3, 4, 5, 8)
EACH = 70  # mutants of each algorithm at each size
tally: Counter[str] = Counter()


def delete(rng: Random, front: Rows, row: int, top: Plan) -> None:
    del front[row]


def double(rng: Random, front: Rows, row: int, top: Plan) -> None:
    front.insert(row, list(front[row]))


def swap_verb(rng: Random, front: Rows, row: int, top: Plan) -> None:
    front[row][0] = 1 - front[row][0]


def turn_round(rng: Random, front: Rows, row: int, top: Plan) -> None:
    front[row][1:7] = front[row][4:7] + front[row][1:4]


def redirect_rank(rng: Random, front: Rows, row: int, top: Plan) -> None:
    front[row][rng.choice([2, 5])] = int(rng.integers(0, top.size))


def redirect_chunk(rng: Random, front: Rows, row: int, top: Plan) -> None:
    end = rng.choice([3, 6])
    front[row][end] = int(rng.integers(0, max(1, top.tmp_chunks) if front[row][end - 2] == TMP else top.chunks))


def redirect_both_chunks(rng: Random, front: Rows, row: int, top: Plan) -> None:
    front[row][3] = front[row][6] = int(rng.integers(0, top.chunks))


def redirect_buffer(rng: Random, front: Rows, row: int, top: Plan) -> None:
    front[row][rng.choice([1, 4])] = int(rng.integers(0, 3))


def stretch(rng: Random, front: Rows, row: int, top: Plan) -> None:
    front[row][7] = max(0, front[row][7] + int(rng.choice([-1, 1])))


def stray(rng: Random, front: Rows, row: int, top: Plan) -> None:
    front[row][rng.choice([2, 3, 5, 6])] = int(rng.choice([-1, top.size, top.chunks + top.tmp_chunks]))


MUTATIONS: list[Callable[[Random, Rows, int, Plan], None]] = [
    delete,
    double,
    swap_verb,
    turn_round,
    redirect_rank,
    redirect_chunk,
    redirect_both_chunks,
    redirect_buffer,
    stretch,
    stray,
]


@cache
def rows(original: Plan) -> list[Rows]:
    return [np.stack(front.columns(), axis=1).tolist() for front in original.fronts()]


def mutant(rng: Random, original: Plan) -> Plan:
    """The plan with one thing changed, now and then with two. It keeps the number of chunks."""
    steps = [[list(move) for move in front] for front in rows(original)]
    for _ in range(int(rng.choice([1, 1, 1, 2]))):
        kind = int(rng.integers(0, len(MUTATIONS) + 3))
        here, there = (int(i) for i in rng.integers(0, len(steps), 2))
        if kind < len(MUTATIONS):
            if steps[here]:
                MUTATIONS[kind](rng, steps[here], int(rng.integers(0, len(steps[here]))), original)
        elif kind == len(MUTATIONS):  # two fronts change places
            steps[here], steps[there] = steps[there], steps[here]
        elif kind == len(MUTATIONS) + 1:  # a move comes in another front
            if steps[here]:
                steps[there].append(steps[here].pop(int(rng.integers(0, len(steps[here])))))
        else:  # the moves of a front come in another order
            rng.shuffle(steps[here])
    fronts = tuple(Front(*np.array(moves, np.int64).reshape(-1, len(FIELDS)).T.copy()) for moves in steps)
    head = (original.collective, f"{original.algorithm} with a fault", original.size, original.root, original.chunks)
    return Plan(*head, lambda: fronts)


def right(made: Plan, make: Callable[[int], Any], op: Callable[[Any, Any], Any], in_place: bool = False) -> bool:
    """Whether the interpreter finds the plan right on data, cut unevenly."""
    count = 2 * made.chunks + (made.collective != "all_to_all")  # whose blocks are equal if it is to be in place
    arrays = given(made.collective, made.size, count, made.root, make)
    try:
        got = interpret(made, arrays, op, in_place=in_place)
    except PlanError:
        return False
    return same(got, expected(made.collective, arrays, made.root, op))


def verdict(made: Plan) -> Facts | None:
    try:
        return check(made)
    except PlanError:
        return None


@pytest.mark.parametrize("name", NAMES, ids="-".join)
def test_no_wrong_mutant_survives(name: tuple[str, str]) -> None:
    seed = crc32("-".join(name).encode())
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for n in SIZES:
        for number in range(EACH):
            made = mutant(rng, plan(*name, n, int(rng.integers(0, n)) if COLLECTIVES[name[0]].rooted else 0))
            facts = verdict(made)
            tally.update(tried=1, refused=facts is None)
            if facts is None and number % 4:
                continue  # of those that are refused, data are asked about some: most must be as wrong as they seem
            wrong = not right(made, lambda k: numbers(rng, k), np.add)
            tally.update(asked=1, wrong=wrong, survivors=wrong and facts is not None)
            assert not (wrong and facts), made.to_json()
            if facts:
                assert not facts.in_place or right(made, lambda k: numbers(rng, k), np.add, in_place=True), (
                    made.to_json()
                )
                assert not facts.rank_order or right(made, lambda k: maps(rng, k), after), made.to_json()


def test_the_mutants_were_many(capsys: pytest.CaptureFixture[str]) -> None:
    if tally["tried"] < len(NAMES) * len(SIZES) * EACH:
        pytest.skip("counted where all of this file runs")
    with capsys.disabled():
        print("\nmutants: {tried} tried, {refused} refused; ".format(**tally), end="")
        print("{asked} run on data, {wrong} wrong, {survivors} survivors".format(**tally))
    assert tally["refused"] > tally["tried"] // 2
    refused = tally["asked"] - (tally["tried"] - tally["refused"])  # and asked about
    assert tally["wrong"] > refused * 3 // 4  # the rest read or write what does not show in this result
    assert tally["survivors"] == 0
