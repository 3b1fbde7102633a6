"""Communicate and compute at the same time: begin, compute, wait.

    python examples/lessons/with_torch/overlap.py 2

A call with `async_op=True`, and every isend and irecv, gives back a Work at once. Until that has been waited for, the
tensors of the call are not to be touched: what is computed meanwhile uses others. Communication also takes a core, so
all of it is hidden only where there are two cores for each rank.
"""

import os

import torch
import torch.distributed as dist
from start import everyone, say, seconds, start

LENGTH, SIDE = 1 << 18, 192  # of what travels, and of the matrices that are multiplied meanwhile


def main():
    n, rank = dist.get_world_size(), dist.get_rank()
    x = torch.full((LENGTH,), rank + 1.0)
    y, came = x.clone(), torch.empty(LENGTH)
    a, product = torch.full((SIDE, SIDE), 2.0), torch.empty(SIDE, SIDE)

    def compute():
        for _ in range(8):
            torch.matmul(a, a, out=product)

    def reduce():
        return [dist.all_reduce(y, async_op=True)]

    def shift():
        """To the right neighbour, and from the left one. With `send` in the place of `isend` all would wait for each
        other: nobody would come to receive."""
        return [dist.isend(x, (rank + 1) % n), dist.irecv(came, (rank - 1) % n)]

    def wait(works):
        for work in works:
            work.wait()

    def in_turn(begin):
        wait(begin())
        compute()

    def together(begin):
        works = begin()
        compute()
        wait(works)

    say(f"before       x on the ranks: {everyone(x[0])}")
    one = seconds(compute)
    say(f"{'':13}{'alone':>12}{'compute':>12}{'in turn':>12}{'together':>12}")
    for name, begin, result in ("all_reduce", reduce, y), ("send, recv", shift, came):
        times = [seconds(lambda b=begin: wait(b())), one]
        times += [seconds(lambda b=begin, way=way: way(b)) for way in (in_turn, together)]
        say(f"{name:13}" + "".join(f"{time * 1e3:9.2f} ms" for time in times))
        y.copy_(x)  # which has been summed up in place, again and again
        came.zero_()
        product.zero_()
        together(begin)
        same = (result == result[0]).all() and (product == product[0, 0]).all()
        values = everyone([result[0].item(), product[0, 0].item(), same.item()])
        whole = values[:, 2].all()
        say(f"after        came: {values[:, 0]}, computed: {values[0, 1]:.0f}, whole: {whole}")
    say(f"cores        {len(os.sched_getaffinity(0))}, and {2 * n} would be needed to hide all")


if __name__ == "__main__":
    start(main)
