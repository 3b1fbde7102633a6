"""A call fails: catch the error, recover with those that are left, and do it again.

    hocket run -n 4 examples/lessons/retry.py

Whatever ends a group, all ranks that are left get the same error, and none has a result that the others lack without
being told (`error.settled`). So all may do the same: form a new group, and repeat the step. What is lost with a rank is
its share of the work, if it is dealt out once and for all. Here it is dealt anew to those that are there.
"""

import numpy as np
from by_hand import say

import hocket

NUMBERS = np.arange(1, 61)


def step(work, number, tries):
    """The sum of all numbers, times the step's: each rank adds up every n-th of them."""
    mine = NUMBERS[work.rank :: work.size].sum() * number
    last = work.rank == work.size - 1 > 0
    if last and number == 3 and tries == 1:
        return work.all_reduce(np.ones(7))  # a mistake: the others give one number
    if last and number == 5 and tries == 1:
        raise SystemExit(0)  # this rank has had enough
    return work.all_reduce(mine)


def main(group):
    work = group.subgroup(range(group.size))  # the lesson's own: an error ends it, and not `group`
    for number in range(1, 7):
        for tries in range(1, 4):
            try:
                total = step(work, number, tries)
                say(work, f"step {number}    the sum is {total}, by {work.size} of us")
                break
            except hocket.HocketError as error:
                kind, lost = type(error).__name__, ", ".join(map(str, error.lost)) or "nobody"
                say(work, f"step {number}    {kind}: lost is {lost}")
                work = work.recover()
            except SystemExit:
                work.close()
                return
    say(work, "history  ", *(f"lost: {', '.join(map(str, loss.ranks)) or 'nobody'};" for loss in work.history))
    work.close()


if __name__ == "__main__":
    with hocket.init() as group:
        main(group)
