"""Communicate and compute at the same time: send, compute, wait.

    hocket run -n 2 examples/lessons/overlap.py

A call with `async_op=True` gives back a `Work` at once. Until it has been waited for, the arrays of the call are not to
be touched: what is computed meanwhile uses others. Communication also takes a core, so all of it is hidden only where
there are two cores for each rank; examples/overlap.py measures that with care.
"""

import os

import numpy as np
from by_hand import everyone, say, seconds

import hocket

LENGTH, SIDE = 1 << 18, 192  # of what travels, and of the matrices that are multiplied meanwhile


def main(group):
    n, rank = group.size, group.rank
    x, y, came = np.full(LENGTH, rank + 1.0), np.empty(LENGTH), np.empty(LENGTH)
    a, product = np.full((SIDE, SIDE), 2.0), np.empty((SIDE, SIDE))

    def compute():
        for _ in range(8):
            np.matmul(a, a, out=product)

    def reduce():
        return [group.all_reduce(x, out=y, async_op=True)]

    def shift():
        """To the right neighbour, and from the left one. Two blocking sends of so much would wait for each other."""
        sending = group.send(x, (rank + 1) % n, async_op=True)
        return [sending, group.recv((rank - 1) % n, out=came, async_op=True)]

    def wait(works):
        for work in works:
            work.wait()

    def in_turn(begin):
        wait(begin())
        compute()

    def together(begin):
        works = begin()  # send
        compute()
        wait(works)

    say(group, f"before       x on the ranks: {everyone(group, x[0])}")
    one = seconds(group, compute)
    say(group, f"{'':13}{'alone':>12}{'compute':>12}{'in turn':>12}{'together':>12}")
    for name, begin in {"all_reduce": reduce, "send, recv": shift}.items():
        times = seconds(group, lambda b=begin: wait(b())), one, seconds(group, lambda b=begin: in_turn(b))
        times += (seconds(group, lambda b=begin: together(b)),)
        say(group, f"{name:13}" + "".join(f"{time * 1e3:9.2f} ms" for time in times))
        y[...] = came[...] = product[...] = 0
        together(begin)
        result = y if begin is reduce else came
        same = bool((result == result[0]).all() and (product == product[0, 0]).all())
        values = everyone(group, [result[0], product[0, 0], same])
        say(group, f"after        came: {values[:, 0]}, computed: {values[0, 1]:.0f}, whole: {values[:, 2].all()}")
    say(group, f"cores        {len(os.sched_getaffinity(0))}, and {2 * n} would be needed to hide all")


if __name__ == "__main__":
    with hocket.init() as group:
        main(group)
