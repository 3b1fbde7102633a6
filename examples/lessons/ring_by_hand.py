"""An all-reduce with nothing but send and recv; then the same as a plan, and beside three others, counted and timed.

    hocket run -n 4 examples/lessons/ring_by_hand.py

The vector is cut into N chunks. For N-1 steps every rank sends a chunk to its right neighbour and adds to its own the
one that comes from the left: then each rank has one chunk that is whole. For N-1 more they are passed on.
"""

import numpy as np
from by_hand import Counted, carry_out, everyone, moved, say, seconds

import hocket

ALGORITHMS = ["ring", "naive", "binomial_tree", "hierarchical"]
ELEMENTS = 12 << 10


def ring(link, x):
    """The sum of all ranks' `x`."""
    me, n = link.rank, link.size
    right, left = (me + 1) % n, (me - 1) % n
    y = x.copy()
    chunks = np.array_split(y, n)  # views into y
    for step in range(2 * n - 2):
        sending = link.send(chunks[(me - step) % n], right)
        came, chunk = link.recv(left), chunks[(me - step - 1) % n]
        chunk[...] = chunk + came if step < n - 1 else came
        sending.wait()  # only now may what was sent be changed
    return y


def tell(group, name, run):
    """One line: is it right, what went through `send` or through hocket's engine, and how long it took."""
    x, link, n = np.arange(ELEMENTS) * (group.rank + 1), Counted(group), group.size
    results = []
    by_engine, *_ = moved(group, lambda: results.append(run(link, x)))
    right = (results[0] == np.arange(ELEMENTS) * (n * (n + 1) // 2)).all()
    messages, sent, rights = everyone(group, [link.messages_sent, link.bytes_sent + by_engine, right]).T
    took = f"{messages.sum():9} {messages.max():9}" if messages.any() else " " * 19
    time = seconds(group, lambda: run(link, x))
    line = f"{name:30} {'right' if rights.all() else 'WRONG'} {took} {sent.max() / x.nbytes:9.4f} D"
    say(group, f"{line} {time * 1e6:8.0f} µs")


def measured(group):
    say(group, f"{'':36}  messages  messages     bytes")
    say(group, f"{'all_reduce':36}  in total  per rank  per rank        time")
    tell(group, "ring, by hand", ring)
    for name in ALGORITHMS:
        plan = hocket.plan("all_reduce", name, group.size)
        hocket.check(plan)  # proved: every rank's contribution, exactly once
        tell(group, f"{name}, a plan by hand", lambda link, x, plan=plan: carry_out(plan, link, x))
        tell(group, f"{name}, by hocket", lambda link, x, plan=plan: group.all_reduce(x, algorithm=plan))
        c = hocket.count(plan)
        counted = f"{c.messages:9} {c.messages_per_rank:9} {float(c.bytes_per_rank):9.4f} D"
        say(group, f"{'  hocket.count(plan)':36} {counted}")


def published(group):
    """Nothing is sent for this table: it is counted from plans."""
    sizes = 2, 4, 8, 16, 32
    say(group, "\nmessages, N =" + "".join(f"{n:9}" for n in sizes))
    for name in ALGORITHMS:
        counts = [hocket.count(hocket.plan("all_reduce", name, n)) for n in sizes]
        say(group, f"{name:13}" + "".join(f"{c.messages:9}" for c in counts) + "  in total")
        say(group, f"{'':13}" + "".join(f"{c.messages_per_rank:9}" for c in counts) + "  busiest rank")
    say(group, MIXED)


MIXED = """
Books say "ring: 2(N-1) messages, naive: 2(N-1) messages". Both are there, but
not in one line: naive takes 2(N-1) in total, a ring takes 2(N-1) on every rank,
2N(N-1) in total, each N times smaller. What they have in common is chance; what
tells them apart is what the busiest rank sends, D(N-1) against 2D(N-1)/N."""


def main(group):
    measured(group)
    published(group)


if __name__ == "__main__":
    with hocket.init() as group:
        main(group)
