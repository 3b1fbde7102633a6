"""A schedule in GOAL as a plan: who hears of whom, and what is wrong with those that cannot be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from oracle import NAMES

from hocket.errors import PlanError
from hocket.plans.algorithms import plan
from hocket.plans.check import check
from hocket.plans.count import count
from hocket.plans.interchange import read_plan
from hocket.plans.interchange.goal import goal
from hocket.plans.interchange.goal_read import schedule

TO_ALL = [name for name in NAMES if name[0] in ("all_reduce", "all_gather", "all_to_all", "barrier")]

PAIR = """\
/* two ranks
   that swap */
num_ranks 2

rank 0 {
  l1: send 8b to 1 tag 3 cpu 0 nic 0
  l2: recv 8b from 1 tag 3
  work: calc 100  // what is done with it
  work requires l2
}
rank 1 {
  l1: send 8b to 0 tag 3
  l2: recv 8b from 0 tag 3
  l2 irequires l1
}
"""


@pytest.mark.parametrize("name", TO_ALL, ids="-".join)
def test_whatever_all_give_all_is_a_barrier(name: tuple[str, str]) -> None:
    for n in (1, 2, 3, 5, 8, 13):
        made = plan(*name, n)
        read = schedule(goal(made, 1000))
        check(read)
        assert (read.collective, read.size) == ("barrier", n)
        counts, counted = count(read), count(made)
        assert counts.rounds <= counted.rounds
        assert counts.messages <= counted.messages  # two that may be in one step are one
        if n & (n - 1) == 0:
            assert counts.messages == counted.messages


@pytest.mark.parametrize("algorithm", ["direct", "binomial_tree", "scatter_all_gather"])
def test_from_a_root_it_is_a_broadcast(algorithm: str) -> None:
    for n, root in ((2, 1), (7, 3), (8, 0)):
        made = schedule(goal(plan("broadcast", algorithm, n, root), 1000), root)
        check(made)
        assert (made.collective, made.root) == ("broadcast", root)


def test_each_message_of_a_ring_is_needed_and_each_wait() -> None:
    whole = goal(plan("all_gather", "ring", 4), 4)
    check(schedule(whole))
    for rank in range(4):
        for tag in range(3):
            without = cut(whole, rank, f"send 1b to {(rank + 1) % 4} tag {tag}")
            with pytest.raises(PlanError, match=r"contribution .* is missing"):
                check(schedule(cut(without, (rank + 1) % 4, f"recv 1b from {rank} tag {tag}")))
    blocks = whole.split("rank 2 {")
    for waits in re.findall(r"  l\d+ requires l\d+\n", blocks[1].partition("}")[0]):
        with pytest.raises(PlanError, match=r"contribution .* is missing"):
            check(schedule("rank 2 {".join((blocks[0], blocks[1].replace(waits, "", 1)))))


def cut(text: str, rank: int, deed: str) -> str:
    """Without what a rank does there, nor whatever waits for it."""
    before, block, after = re.split(rf"(rank {rank} {{\n.*?\n}})", text, maxsplit=1, flags=re.DOTALL)
    (label,) = re.findall(rf"(l\d+): {deed}\n", block)
    return before + re.sub(rf"  {label}: .*\n|  {label} requires \w+\n|  \w+ requires {label}\n", "", block) + after


WRONG = {
    "no number": (("num_ranks 2", ""), r"line 5: rank 0, and num_ranks is 0"),
    "a huge number": (("num_ranks 2", "num_ranks 999999999"), r"line 3: num_ranks is 1 to 16384, not 999999999"),
    "a rank too many": (("rank 1 {", "rank 2 {"), r"line 11: rank 2, and num_ranks is 2"),
    "a peer too many": (("to 1 tag", "to 2 tag"), r"line 6: rank 0 speaks to rank 2, and there are 2"),
    "itself": (("to 1 tag", "to 0 tag"), r"line 6: rank 0 speaks to rank 0"),
    "another size": (("send 8b to 1", "send 9b to 1"), r"rank 0's l1 \(line 6\) and rank 1's l2 \(line 13\) differ"),
    "another tag": (("to 0 tag 3", "to 0 tag 4"), r"rank 1's l1 \(line 12\): rank 0 receives nothing that fits it"),
    "no receive": (("  l2: recv 8b from 0 tag 3\n  l2 irequires l1\n", ""), r"l1 \(line 6\): rank 1 receives nothing"),
    "twice": (("l2: recv 8b from 1", "l1: recv 8b from 1"), r"line 7: rank 0 has two l1"),
    "nobody": (("work requires l2", "work requires l9"), r"rank 0's work \(line 8\) requires l9, which there is not"),
    "before": (("work requires l2", "l9 requires l2"), r"line 9: rank 0 has no l9 above it"),
    "a circle": (("l2 irequires l1", "l1 requires l2"), None),
    "anybody": (("recv 8b from 1", "recv 8b from any"), r"line 7 is no line of a schedule here: 'l2: recv 8b from any"),
    "outside": (("\nrank 0 {", "\nl1: calc 3\nrank 0 {"), r"line 5 is no line of a schedule here: 'l1: calc 3'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told(case: str) -> None:
    check(schedule(PAIR))
    change, words = WRONG[case]
    text = PAIR.replace(*change)
    assert text != PAIR
    if words is None:  # both wait for the other before they send
        text = text.replace("work requires l2", "work requires l2\n  l1 requires l2")
        words = r"wait for each other in a circle: .*rank 1's l1 \(line 13\)"
    with pytest.raises(PlanError, match=words):
        schedule(text)


def test_what_a_root_has_not_said_cannot_be_passed_on() -> None:
    with pytest.raises(PlanError, match=r"rank 1's l1 \(line 12\) sends before it has heard of rank 0"):
        schedule(PAIR, 0)
    with pytest.raises(PlanError, match="the root is 2, and there are 2 ranks"):
        schedule(PAIR, 2)


def test_a_file_is_known_by_its_ending(tmp_path: Path) -> None:
    file = tmp_path / "trace.goal"
    file.write_text(PAIR)
    assert read_plan(file) == schedule(PAIR)
    file.write_text("")
    with pytest.raises(PlanError, match=r"trace\.goal: no line says num_ranks"):
        read_plan(file)
