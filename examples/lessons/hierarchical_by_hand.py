"""An all-reduce over two hosts in three calls on smaller groups: within the host, across, and back.

    hocket run -n 4 examples/lessons/hierarchical_by_hand.py

Between hosts a wire is slow, within a host it is not: so a host's ranks add up first, one of each host, its leader,
speaks to the other leaders, and tells its own. Where all ranks are on one host, here half of them play another.
hocket's plan for this has no leaders: every rank takes a part of the vector across.
"""

from contextlib import ExitStack

import numpy as np
from by_hand import Counted, carry_out, everyone, say, seconds

import hocket

ELEMENTS = 12 << 10


def show(group, title, x):
    """The first numbers of `x` on each rank, if it has any."""
    for rank, row in enumerate(everyone(group, np.full(4, -1) if x is None else x[:4])):
        say(group, f"{title if rank == 0 else '':22} r{rank}  {'nothing' if row[0] < 0 else row}")


def main(group):
    n, rank = group.size, group.rank
    hosts = group.topology.places if group.topology.hosts > 1 else tuple(r * 2 // n for r in range(n))
    x = np.arange(ELEMENTS) + 1000 * rank
    say(group, "hosts of the ranks    ", *hosts)
    show(group, "before", x)

    with ExitStack() as stack:
        local = stack.enter_context(group.split(hosts[rank]))  # the ranks of this host
        leaders = group.split(0 if local.rank == 0 else None)  # the first of each host; None elsewhere
        if leaders is not None:
            stack.enter_context(leaders)

        y = local.reduce(x)  # on the leader; None elsewhere
        show(group, "1  within the host", y)
        if leaders is not None:
            leaders.all_reduce(y, out=y)
        show(group, "2  across, by leaders", y)
        y = local.broadcast(y)
        show(group, "3  back to the others", y)

        def in_three_calls():
            y = local.reduce(x)
            local.broadcast(leaders.all_reduce(y) if leaders is not None else None)

        by_hand = seconds(group, in_three_calls)
        crossed = [0]  # bytes from this rank to other hosts
        if leaders is not None:
            link = Counted(leaders)
            carry_out(hocket.plan("all_reduce", "two_shot", leaders.size), link, x)
            crossed = [link.bytes_sent]

    plan = hocket.plan("all_reduce", "hierarchical", n, places=hosts)
    link = Counted(group)
    z = carry_out(plan, link, x)
    show(group, "the plan's result", z)
    crossed.append(sum(link.sent_to[r] for r in range(n) if hosts[r] != hosts[rank]))
    planned = seconds(group, lambda: group.all_reduce(x, algorithm=plan))

    leading, lanes = everyone(group, crossed).T
    say(group, f"\nbytes to other hosts, of a vector of {x.nbytes}, from r0 r1 ...:")
    say(group, "by leaders            ", *(f"{sent:7}" for sent in leading), f"  in {by_hand * 1e6:.0f} µs")
    say(group, "by the plan           ", *(f"{sent:7}" for sent in lanes), f"  in {planned * 1e6:.0f} µs")
    assert (y == z).all(), "both are the sum"


if __name__ == "__main__":
    with hocket.init() as group:
        main(group)
