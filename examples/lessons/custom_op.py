"""Operators of one's own: NumPy's, pairs, one that does not commute; and what happens where ranks differ.

    hocket run -n 4 examples/lessons/custom_op.py

`op` may be any binary NumPy ufunc, or a function f(a, b, out) that puts the combination of two arrays into a third,
element by element. It must be associative: (a · b) · c = a · (b · c). It need not commute, since by default operands
are folded in the order of the ranks. An element that holds two numbers is a complex one.
"""

import re
import textwrap

import numpy as np
from by_hand import everyone, say

import hocket


def maxloc(a, b, out):
    """Of pairs (value, place) the larger value, of equal ones the smaller place: MPI's MAXLOC. (op="maxloc" is that of
    elements with two fields.)"""
    take_b = (b.real > a.real) | ((b.real == a.real) & (b.imag < a.imag))
    out[...] = np.where(take_b, b, a)


def compose(a, b, out):
    """Of pairs (p, q), each of which stands for the function x -> p x + q: first a, then b."""
    out[...] = a.real * b.real + 1j * (a.imag * b.real + b.imag)


def backwards(a, b, out):
    """First b, then a: another operator, which one rank may give by mistake."""
    compose(b, a, out)


def main(group):
    rank = group.rank
    x = np.array([3.0, 4.0, 12.0, 84.0])[rank % 4]
    say(group, "x               ", everyone(group, x))
    say(group, f"hypot            {group.all_reduce(x, op=np.hypot):.4f}: the length of the vector of all x")
    say(group, f"logaddexp        {group.all_reduce(np.log(x), op=np.logaddexp):.4f}: log of the sum, nowhere exp")

    pairs = np.array([5 - (rank - 1) ** 2, rank % 2]) + 1j * rank  # (value, place), for two questions at once
    say(group, "\npairs           ", *(f"r{r} {row}" for r, row in enumerate(everyone(group, pairs.real))))
    best = group.all_reduce(pairs, op=maxloc)
    say(group, "maxloc          ", *(f" {b.real:.0f} on r{b.imag:.0f}" for b in best))

    function = np.array(rank + 2 + 1j * rank)
    say(group, "\nfunctions       ", *(f" {f.real:.0f}x+{f.imag:.0f}" for f in everyone(group, function)))
    for name, op in {"in order": compose, "backwards": backwards}.items():
        f = group.all_reduce(function, op=op)
        say(group, f"{name:17}{f.real:.0f}x+{f.imag:.0f}")

    # Ranks that give two operators have made a mistake, and all are told. It ends the group: so a smaller one is used.
    other = group.subgroup(range(group.size))
    try:
        other.all_reduce(function, op=backwards if rank == group.size - 1 else compose)
        told = "nothing at all"
    except hocket.MismatchError as error:
        told = re.sub(r" \(pid [^)]*\)", "", str(error))
    finally:
        other.close()
    raised = group.all_reduce(np.array(told != "nothing at all"), op="land")
    say(group, f"\nmixed            MismatchError on all ranks: {bool(raised)}; r0 reads")
    for line in told.splitlines():
        say(group, textwrap.fill(line.strip(), 76, initial_indent="  ", subsequent_indent="    "))


if __name__ == "__main__":
    with hocket.init() as group:
        main(group)
