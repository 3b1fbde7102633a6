"""Heat in a plate that is cut into strips, one for each rank; neighbours tell each other their edges.

    python examples/lessons/with_torch/halo_exchange.py 4

A cell becomes the mean of its four neighbours, which is a convolution; for the outermost row of a strip one of these
lies on another rank. So each strip has one row more on either side, the halo, in which the neighbour's edge is put
before each step. `batch_isend_irecv` begins all messages of a step at once, so that nobody waits in a circle.
"""

import torch
import torch.distributed as dist
from start import say, start
from torch.nn.functional import conv2d

ROWS, COLUMNS, STEPS = 12, 40, 200
SHADES = " .:-=+*#%@"
NEIGHBOURS = torch.tensor([[0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=torch.float64)[None, None] / 4


def exchange(strip):
    """Edges into the neighbours' halos."""
    rank, messages = dist.get_rank(), []
    for neighbour, halo, edge in ((rank - 1, strip[0], strip[1]), (rank + 1, strip[-1], strip[-2])):
        if 0 <= neighbour < dist.get_world_size():  # the first and the last have the plate's own edge there
            messages += [dist.P2POp(dist.irecv, halo, neighbour), dist.P2POp(dist.isend, edge, neighbour)]
    if messages:
        for work in dist.batch_isend_irecv(messages):
            work.wait()


def step(strip):
    """Inner cells from what was there before; the plate's edges stay as they are."""
    strip[1:-1, 1:-1] = conv2d(strip[None, None], NEIGHBOURS)[0, 0]


def show(title, strip):
    """The plate without its edges, as one picture on rank 0. Strips may differ in size, so they travel as objects."""
    strips = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(strip[1:-1], strips, dst=0)
    if strips is not None:
        plate = torch.cat(strips)
        say(f"{title}: {plate.sum():.4f} in all, {plate.max():.4f} at most")
        for row in plate[:, 1:-1]:
            say("  |" + "".join(SHADES[min(9, int(10 * cell))] for cell in row) + "|")


def main():
    n, rank = dist.get_world_size(), dist.get_rank()
    rows = len(torch.arange(ROWS).tensor_split(n)[rank])
    strip = torch.zeros(rows + 2, COLUMNS + 2, dtype=torch.float64)  # with halos
    if rank == 0:
        strip[0, 10:30] = 1  # heated from above, in the middle
    strip[:, -1] = 1  # and from the right
    show("before", strip)
    for _ in range(STEPS):
        exchange(strip)
        step(strip)
    show(f"after {STEPS} steps", strip)
    say(f"in each step a rank sends up to {2 * strip[0].nbytes} bytes and computes {strip[1:-1].nbytes}")


if __name__ == "__main__":
    start(main)
