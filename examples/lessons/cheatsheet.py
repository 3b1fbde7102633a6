"""The eight collectives: who has what before and after, in a new array and in place; then what each of them moves.

    hocket run -n 4 examples/lessons/cheatsheet.py

Rank r holds the numbers 1, 2, 3, ... times 10^r: a digit tells which piece it is, its place whose. A dot is a place in
which there is nothing.
"""

from functools import partial
from math import ceil, log2

import numpy as np
from by_hand import everyone, moved, say

import hocket

# Who gives what (the root everything, each rank its own piece, everyone everything), and the call: new, and in place.
# It is text, so that what is shown is what is called.
CALLS = {
    "broadcast": ("root", "group.broadcast(x)", "group.broadcast(x, out=x)"),
    "scatter": ("root", "group.scatter(x)", "group.scatter(x, out=x[own])"),
    "gather": ("own", "group.gather(x[own])", "group.gather(x[own], out=x)"),
    "all_gather": ("own", "group.all_gather(x[own])", "group.all_gather(x[own], out=x)"),
    "reduce": ("all", "group.reduce(x)", "group.reduce(x, out=x)"),
    "all_reduce": ("all", "group.all_reduce(x)", "group.all_reduce(x, out=x)"),
    "reduce_scatter": ("all", "group.reduce_scatter(x)", "group.reduce_scatter(x, out=x[own])"),
    "all_to_all": ("all", "group.all_to_all(x)", "group.all_to_all(x, out=x)"),
}

# What the rank that sends most sends, and what the one that receives most receives; D is the whole vector, N the ranks.
VOLUMES = {
    ("broadcast", "direct"): ("D*(N-1)", "D"),
    ("broadcast", "binomial_tree"): ("D*ceil(log2(N))", "D"),
    ("scatter", "direct"): ("D*(N-1)/N", "D/N"),
    ("gather", "direct"): ("D/N", "D*(N-1)/N"),
    ("all_gather", "direct"): ("D*(N-1)/N", "D*(N-1)/N"),
    ("all_gather", "ring"): ("D*(N-1)/N", "D*(N-1)/N"),
    ("reduce", "direct"): ("D", "D*(N-1)"),
    ("all_reduce", "naive"): ("D*(N-1)", "D*(N-1)"),
    ("all_reduce", "one_shot"): ("D*(N-1)", "D*(N-1)"),
    ("all_reduce", "two_shot"): ("2*D*(N-1)/N", "2*D*(N-1)/N"),
    ("all_reduce", "ring"): ("2*D*(N-1)/N", "2*D*(N-1)/N"),
    ("reduce_scatter", "direct"): ("D*(N-1)/N", "D*(N-1)/N"),
    ("all_to_all", "direct"): ("D*(N-1)/N", "D*(N-1)/N"),
}


def picture(group, name):
    gives, new, in_place = CALLS[name]
    own, before = slice(group.rank, group.rank + 1), np.zeros(group.size, np.int64)
    mine = own if gives == "own" else slice(0, 0) if gives == "root" and group.rank else slice(None)
    before[mine] = (np.arange(group.size)[mine] + 1) * 10**group.rank
    x, after = before.copy(), np.zeros_like(before)
    y = eval(new, {"group": group, "x": x, "own": own})
    assert (x == before).all(), "a call without out= leaves its input alone"
    if y is not None:  # as reduce and gather give it to the root only
        after[own if len(y) < group.size else slice(None)] = y
    eval(in_place, {"group": group, "x": x, "own": own})

    width = max(group.size * (group.size + 1), 8) + 2
    say(group, f"\ny = {new}   or   {in_place}")
    say(group, f"    {'x before':{width}}{'y':{width}}x, in place")
    for rank, row in enumerate(everyone(group, [before, after, x])):
        cells = ["".join(f"{value or '·':>{group.size}} " for value in part.tolist()) for part in row]
        say(group, f"r{rank}  " + "".join(f"{text:{width}}" for text in cells).rstrip())


def volumes(group, D):
    """Measured by the counters of `group.metrics()`."""
    N = group.size
    whole = np.ones(D // 8)
    say(group, f"\nWhat moves, in bytes, as counted by hocket: D = {D}, N = {N}.")
    say(group, "* is the algorithm that it takes by itself for this D.\n")
    say(group, f"{'':28}{'sent by the busiest':>24}{'received by the busiest':>26}")
    for (name, algorithm), formulas in VOLUMES.items():
        call, x = getattr(group, name), whole[: len(whole) // N] if CALLS[name][0] == "own" else whole
        *bytes_moved, _ = moved(group, partial(call, x, algorithm=algorithm))
        *_, by_default = moved(group, partial(call, x))
        line = f"{'*' if algorithm in by_default else ' '} {name:15}{algorithm:14}"
        for formula, got in zip(formulas, everyone(group, bytes_moved).max(axis=0).tolist(), strict=True):
            said = eval(formula, {"D": D, "N": N, "ceil": ceil, "log2": log2})
            line += f"{got:7} {'=' if got == said else '≠'} {formula:15}"
        say(group, line.rstrip())


ADVICE = """
Who is right, where books differ:
  all_gather D(N-1) or D(N-1)/N?  Both: the first calls D what one rank gives,
    the second (as here) what every rank gets in the end, which is N times that.
  broadcast D?  That is what each rank receives. The root sends N-1 or log2 N
    times as much, unless the vector is cut up and passed on piece by piece.
  scatter D/N, gather D/N?  What each rank gets, or gives. The root moves
    D(N-1)/N: its own piece goes nowhere. So it is with all_to_all: not D.
  all_reduce 2D(N-1)/N?  The busiest rank of no all_reduce can send less. But
    naive takes D(N-1) at the root, and one_shot at every rank: which is worth
    it while D is small, for one round in the place of two or more."""


def main(group):
    for name in CALLS:
        picture(group, name)
    volumes(group, 3072 * group.size)
    say(group, ADVICE)


if __name__ == "__main__":
    with hocket.init() as group:
        main(group)
