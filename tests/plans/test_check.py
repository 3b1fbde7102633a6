"""Each invariant has a plan that breaks it, and the message says where."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hocket.errors import PlanError
from hocket.plans.algorithms import plan
from hocket.plans.check import check
from hocket.plans.plan import COPY, OUT, Front, Plan, Step, copy, inp, out, reduce, tmp


def made(*steps: Step, collective: str = "all_reduce", size: int = 3, chunks: int = 1, root: int = 0) -> Plan:
    return Plan(collective, "made up", size, root, chunks, lambda: steps)


def row(*columns: int) -> Front:
    """One move, given as the eight columns of a front."""
    return Front(*(np.array([x]) for x in columns))


BROKEN: dict[str, tuple[Plan, str]] = {
    "tmp is read before it is written": (
        made(copy(out(0), tmp(1))),
        "step 0, move 0 (r0.out[0] <- r1.tmp[0]): rank 1's tmp[0] is read, and was never written",
    ),
    "out without a seed is read before it is written": (
        made(copy(out(1), out(2)), collective="broadcast"),
        "step 0, move 0 (r1.out[0] <- r2.out[0]): rank 2's out[0] is read, and was never written",
    ),
    "a reduce into nothing": (
        made(reduce(tmp(1), inp(0))),
        "move 0 (r1.tmp[0] += r0.inp[0]): rank 1's tmp[0] is reduced into, and was never written",
    ),
    "inp is written": (
        made(reduce(inp(0), inp(1))),
        "move 0 (r0.inp[0] += r1.inp[0]): rank 0's inp[0] is written",
    ),
    "a span is too long": (
        made(copy(tmp(0), inp(0)), copy(out(0, 1, 3), inp(1, 1, 3)), chunks=3),
        "step 1, move 0 (r0.out[1:4] <- r1.inp[1:4]): the span from rank 0's out[1] on leaves the chunks 0 to 2",
    ),
    "a chunk is negative": (
        made(copy(tmp(0, -1), inp(0, -1))),
        "move 0 (r0.tmp[-1] <- r0.inp[-1]): the span from rank 0's tmp[-1] on leaves the chunks",
    ),
    "a span is empty": (
        made(row(COPY, OUT, 1, 0, OUT, 0, 0, 0)),
        "step 0, move 0 (r1.out[0:0] <- r0.out[0:0]): the span",
    ),
    "a rank is too large": (
        made(copy(out(3), inp(0))),
        "move 0 (r3.out[0] <- r0.inp[0]): rank 3's out[0] is on none of the ranks 0 to 2",
    ),
    "a rank is negative": (made(copy(out(0), inp(-1))), "rank -1's inp[0] is on none of the ranks 0 to 2"),
    "one rank speaks to another at size 1": (made(copy(out(0), inp(1)), size=1), "is on none of the ranks 0 to 0"),
    "an unknown buffer": (made(row(COPY, 3, 0, 0, OUT, 1, 0, 1)), "the buffer is none of inp, out and tmp"),
    "an unknown verb": (made(row(2, OUT, 0, 0, OUT, 1, 0, 1)), "the verb is neither copy nor reduce"),
    "a slot that the collective does not have": (
        made(copy(out(1), inp(0)), collective="reduce"),
        "move 0 (r1.out[0] <- r0.inp[0]): rank 1's out[0] is no slot of this collective",
    ),
    "an input that the rank does not give": (
        made(copy(out(1), inp(1)), collective="broadcast"),
        "rank 1's inp[0] is no slot of this collective",
    ),
    "a chunk into a chunk of another size": (
        made(copy(tmp(0, 1), inp(0, 0)), chunks=3),
        "rank 0's tmp[1] and rank 0's inp[0] need not be equally large",
    ),
    "a block of all_to_all into a block of another size": (
        made(copy(out(1, 0), inp(2, 1)), collective="all_to_all", chunks=6),
        "rank 1's out[0] and rank 2's inp[1] need not be equally large",
    ),
    "a move reads what its front writes": (
        made((copy(out(1), out(0)), copy(out(2), out(1)))),
        "step 0, move 1 (r2.out[0] <- r1.out[0]): rank 1's out[0] is read, and a move of the same step writes it",
    ),
    "a move reads what it writes": (
        made(reduce(out(1), out(1))),
        "rank 1's out[0] is read, and a move of the same step",
    ),
    "two copies into one slot": (
        made((copy(out(1), inp(0)), copy(out(1), inp(2)))),
        "move 1 (r1.out[0] <- r2.inp[0]): rank 1's out[0] is copied to after another move of this step wrote it",
    ),
    "a copy after a reduce into one slot": (
        made((reduce(out(1), inp(0)), copy(out(1), inp(2)))),
        "move 1 (r1.out[0] <- r2.inp[0]): rank 1's out[0] is copied to after another",
    ),
    "a span that overlaps itself": (
        made(copy(out(0, 1, 2), out(0, 0, 2)), chunks=3),
        "rank 0's out[1] and rank 0's out[0] need not be equally large",
    ),
    "conflicts inside of spans": (
        made((copy(out(1, 0, 3), inp(0, 0, 3)), copy(out(2, 1), out(1, 1))), chunks=3),
        "move 1 (r2.out[1] <- r1.out[1]): rank 1's out[1] is read",
    ),
    "the end of a span that was never written": (
        made(copy(tmp(1), inp(0)), copy(out(2, 0, 3), tmp(1, 0, 3)), chunks=3),
        "step 1, move 0 (r2.out[0:3] <- r1.tmp[0:3]): rank 1's tmp[1] is read, and was never written",
    ),
    "nothing happens": (
        made(size=2),
        "rank 0's out[0] ends wrong: rank 1's contribution (chunk 0) is missing (no move ever writes it)",
    ),
    "a contribution comes twice, another never": (
        made(reduce(out(0), inp(1)), reduce(out(0), inp(1))),
        "rank 0's out[0] ends wrong: rank 1's contribution (chunk 0) came twice, "
        "rank 2's contribution (chunk 0) is missing (last written in step 1 by r0.out[0] += r1.inp[0])",
    ),
    "a contribution comes three times by way of a tmp": (
        made(copy(tmp(0), inp(1)), reduce(tmp(0), inp(1)), (reduce(out(0), inp(1)), reduce(out(0), tmp(0)))),
        "rank 1's contribution (chunk 0) came 3 times, rank 2's contribution (chunk 0) is missing",
    ),
    "the wrong rank's chunk": (
        made(copy(out(1), inp(2, 0)), collective="reduce_scatter", size=3, chunks=3),
        "is no slot of this collective",
    ),
    "another's block arrives": (
        made(copy(out(2, 0), out(0, 0)), copy(out(1, 0), inp(1, 0)), collective="all_reduce", size=3),
        "rank 0's out[0] ends wrong: rank 1's",
    ),
    "more tmp than can be meant": (made(copy(tmp(0, 1 << 50), inp(0))), "more than can be meant"),
    "more tmp in one span than can be meant": (made(copy(tmp(0, 0, 1 << 40), inp(0))), "more than can be meant"),
    "an unknown collective": (made(collective="all_confuse"), "there is no collective 'all_confuse'"),
    "chunks that are no blocks": (made(collective="scatter", chunks=4), "4 chunks do not make 3 equal blocks"),
    "a root that is no rank": (made(root=3), "root 3 is not one of the ranks 0 to 2"),
    "no ranks": (made(size=0), "at least one rank"),
}


@pytest.mark.parametrize("why", BROKEN)
def test_a_broken_plan_is_refused(why: str) -> None:
    broken, text = BROKEN[why]
    with pytest.raises(PlanError, match=re.escape(text)) as error:
        check(broken)
    assert "made up" in str(error.value)  # which plan it was


def test_a_contribution_that_comes_2_to_the_64_plus_1_times_is_refused() -> None:
    """The sum of 64-bit names does not see multiples of 2^64: this is why contributions are counted too."""
    doubling: list[Step] = [copy(tmp(0, 1), tmp(0, 0)), reduce(tmp(0, 0), tmp(0, 1))]
    steps = [copy(tmp(0, 0), inp(1)), *64 * doubling, reduce(out(0), inp(1)), reduce(out(0), tmp(0, 0))]
    with pytest.raises(PlanError, match=r"rank 1's contribution \(chunk 0\) came 18446744073709551616 times"):
        check(made(*steps, collective="reduce", size=2))


def test_a_plan_from_json_is_checked_like_any_other() -> None:
    good = plan("all_reduce", "ring", 4)
    again = Plan.from_json(good.to_json())
    assert check(again) == check(good)
    text = good.to_json().replace("[1,1,1,0,1,0,0,1]", "[0,1,1,0,1,0,0,1]", 1)  # a copy where there was a reduce
    with pytest.raises(PlanError, match=r"rank 1's contribution \(chunk 0\) is missing"):
        check(Plan.from_json(text))
