"""Heat in a plate that is cut into strips, one for each rank; neighbours tell each other their edges.

    hocket run -n 4 examples/lessons/halo_exchange.py

A cell becomes the mean of its four neighbours, and for the outermost row of a strip one of these lies on another rank.
So each strip has one row more on either side, the halo, in which the neighbour's edge is put before each step. What
travels grows with the edge of a strip, what is computed with its area.
"""

import numpy as np
from by_hand import say

import hocket

ROWS, COLUMNS, STEPS = 12, 40, 200
SHADES = " .:-=+*#%@"


def exchange(group, strip):
    """Edges into the neighbours' halos. Receives are begun first, so that what comes has a place to go to."""
    works = []
    for neighbour, halo, edge in ((group.rank - 1, strip[0], strip[1]), (group.rank + 1, strip[-1], strip[-2])):
        if 0 <= neighbour < group.size:  # the first and the last have the plate's own edge there
            works.append(group.recv(neighbour, out=halo, async_op=True))
            works.append(group.send(edge, neighbour, async_op=True))
    for work in works:
        work.wait()


def step(strip):
    """Inner cells from what was there before; the plate's edges stay as they are."""
    strip[1:-1, 1:-1] = (strip[:-2, 1:-1] + strip[2:, 1:-1] + strip[1:-1, :-2] + strip[1:-1, 2:]) / 4


def show(group, title, strip):
    """The plate without its edges, as one picture on rank 0."""
    plate = group.gather(strip[1:-1], sizes=sizes(group.size))
    if plate is not None:
        say(group, f"{title}: {plate.sum():.4f} in all, {plate.max():.4f} at most")
        for row in plate[:, 1:-1]:
            say(group, "  |" + "".join(SHADES[min(9, int(10 * cell))] for cell in row) + "|")


def sizes(n):
    return [len(rows) for rows in np.array_split(np.arange(ROWS), n)]


def main(group):
    n, rank = group.size, group.rank
    strip = np.zeros((sizes(n)[rank] + 2, COLUMNS + 2))  # with halos
    if rank == 0:
        strip[0, 10:30] = 1  # heated from above, in the middle
    strip[:, -1] = 1  # and from the right
    show(group, "before", strip)
    for _ in range(STEPS):
        exchange(group, strip)
        step(strip)
    show(group, f"after {STEPS} steps", strip)
    say(group, f"in each step a rank sends up to {2 * strip[0].nbytes} bytes and computes {strip[1:-1].nbytes}")


if __name__ == "__main__":
    with hocket.init() as group:
        main(group)
