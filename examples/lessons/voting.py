"""Ranks that decide together: a sum is a vote, a maximum is a consensus, and a logical and is unanimity.

    hocket run -n 4 examples/lessons/voting.py

Every rank gets the same result, so all of them go on in the same way without anybody who leads. This is what makes an
`if` safe in a parallel program: what is asked is not "am I done?" but "are we?".
"""

import numpy as np
from by_hand import everyone, say

import hocket

CANDIDATES = ["stop", "go on", "save"]


def main(group):
    vote = (group.rank**2 + 1) % 3
    done = group.rank != 1
    newest = 10 + group.rank * 3 % 4  # of the versions that this rank has
    knows = 0b1011 | 1 << group.rank  # one bit for each thing that it can do
    for rank, (v, d, n, k) in enumerate(everyone(group, [vote, done, newest, knows])):
        say(group, f"r{rank}: votes {CANDIDATES[v]!r}, done {bool(d)}, has version {n}, knows {k:04b}")

    votes = group.all_reduce(np.eye(3, dtype=int)[vote])  # a one for each rank's candidate
    won = int(votes.argmax())  # of equals the first, on all ranks alike
    say(group, f"\nsum   votes {votes}: {CANDIDATES[won]!r} has the most")
    say(group, f"land  all are done: {bool(group.all_reduce(np.array(done), op='land'))}")
    say(group, f"lor   any is done: {bool(group.all_reduce(np.array(done), op='lor'))}")
    highest, lowest = (group.all_reduce(np.array(newest), op=op) for op in ("max", "min"))
    say(group, f"max   the newest version anywhere is {highest}")
    say(group, f"min   the newest version that all have reached is {lowest}")
    say(group, f"max and min agree: {highest == lowest}, so the ranks {'do' if highest == lowest else 'do not'}")
    say(group, f"band  what all know: {group.all_reduce(np.array(knows), op='band'):04b}")
    say(group, f"bor   what any knows: {group.all_reduce(np.array(knows), op='bor'):04b}")


if __name__ == "__main__":
    with hocket.init() as group:
        main(group)
