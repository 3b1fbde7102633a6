"""A plan is a value: it has a canonical text, a fingerprint, and equals another that moves the same things."""

from __future__ import annotations

import json

import numpy as np
import pytest
from oracle import NAMES

from hocket.errors import PlanError
from hocket.plans.algorithms import plan
from hocket.plans.plan import Front, Plan, copy, inp, join, out, reduce, tmp


@pytest.mark.parametrize("name", NAMES, ids="-".join)
def test_json_and_back(name: tuple[str, str]) -> None:
    for n in (1, 2, 3, 6, 8):
        made = plan(*name, n)
        again = Plan.from_json(made.to_json())
        assert again == made
        assert hash(again) == hash(made)
        assert again.to_json() == made.to_json()
        assert again.tmp_chunks == made.tmp_chunks


def test_fingerprints_are_all_different() -> None:
    """No two algorithms, sizes or roots share one."""
    plans = [plan(*name, n) for name in NAMES for n in range(1, 17)]
    plans += [plan("scatter", "binomial_tree", 8, root) for root in range(1, 8)]
    assert len({made.fingerprint for made in plans}) == len(plans)


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    """It goes over the wire, so it must not depend on Python's hash seed, the machine or the version of hocket."""
    assert plan("all_reduce", "ring", 4).fingerprint == "7923111cf39d78b676504b3aed6f6653"


@pytest.mark.parametrize(
    "change", ["collective", "algorithm", "size", "root", "chunks", "steps"], ids="what differs: {}".format
)
def test_any_difference_shows_in_the_fingerprint(change: str) -> None:
    made = plan("scatter", "binomial_tree", 8)
    data = json.loads(made.to_json())
    if change == "steps":
        data["steps"].append(data["steps"].pop(0))
    else:
        data[change] = data[change] + ("x" if isinstance(data[change], str) else 1)
    assert Plan.from_json(json.dumps(data)) != made


def test_where_steps_end_shows_in_the_fingerprint() -> None:
    a, b = copy(out(1), inp(0)), copy(out(2), inp(0))
    one = Plan("broadcast", "x", 3, 0, 1, lambda: [join(a, b)])
    two = Plan("broadcast", "x", 3, 0, 1, lambda: [a, b])
    assert one != two


def test_what_is_no_plan_is_refused() -> None:
    text = plan("all_reduce", "ring", 2).to_json()
    for broken in (
        "",
        "{}",
        "[]",
        "null",
        text[:-1],
        text.replace('"chunks":2', '"chunks":"many"'),
        text.replace("1]", '"x"]'),
        text.replace("1]", "1.5]"),
        text.replace("1]", "true]"),
        text.replace("1]", f"{1 << 64}]"),
        text.replace("1]", "]").replace(",]", "]"),
        text.replace('"size":2', '"size":0'),
        text.replace('"size":2', '"size":true'),
        text.replace('"size":2', '"size":1000000000'),
        text.replace('"root":0', '"root":-1'),
        text.replace('"collective":"all_reduce"', '"collective":7'),
        text.replace('"algorithm":"ring"', r'"algorithm":"\u001b[2Jring"'),  # what a terminal would obey
        text.replace('"steps":', '"stops":'),
        text.replace('"steps":[', '"steps":[7,'),
        "[" * 100000,
    ):
        with pytest.raises(PlanError, match="not a plan"):
            Plan.from_json(broken)
    with pytest.raises(PlanError, match="fields are"):
        Plan.from_json(text.replace('"dst_buf","dst_rank"', '"dst_rank","dst_buf"'))


def test_steps_without_moves_are_left_out() -> None:
    nothing = copy(out(np.zeros(0, np.int64)), inp(0))
    made = Plan("broadcast", "x", 2, 0, 1, lambda: [nothing, (nothing, copy(out(1), out(0)))])
    assert [len(front) for front in made.fronts()] == [1]


def test_moves_in_words() -> None:
    front: Front = join(reduce(out(1, 2), tmp(0, 2)), copy(out(3, 0, 2), inp(0, 4, 2)))
    assert str(front) == "r1.out[2] += r0.tmp[2]  r3.out[0:2] <- r0.inp[4:6]"


def test_names_that_are_not() -> None:
    with pytest.raises(ValueError, match="there is no collective 'all_confuse'; there are all_reduce, reduce,"):
        plan("all_confuse", "ring", 2)
    with pytest.raises(ValueError, match="scatter has no algorithm 'ring'; it has direct, binomial_tree"):
        plan("scatter", "ring", 2)
    for size, root in ((0, 0), (2, 2), (2, -1)):
        with pytest.raises(ValueError, match="scatter cannot be"):
            plan("scatter", "direct", size, root)
    with pytest.raises(ValueError, match="all_reduce cannot be over 4 ranks with root 1"):
        plan("all_reduce", "ring", 4, 1)


def test_plans_are_kept() -> None:
    assert plan("all_reduce", "ring", 4) is plan("all_reduce", "ring", 4)
