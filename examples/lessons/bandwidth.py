"""Long vectors and many short ones: one all_reduce, chunks of 1 MiB, one call per tensor, and buckets of tensors.

    hocket run -n 4 examples/lessons/bandwidth.py
    hocket run -n 4 examples/lessons/bandwidth.py 64        # MiB in all, 8 by default

GB/s are those of nccl-tests. *algbw* is the vector's bytes by the time: what a program sees. *busbw* is algbw times
2(N-1)/N, what of it each rank must at least send and receive: it can be compared with what the hardware does, and
between numbers of ranks. Columns *first* and *last* are what these numbers of the vector became: the same in all ways.
"""

import sys

import numpy as np
from by_hand import everyone, say, seconds

import hocket

MIB = 1 << 20
SMALL = 4 << 10  # bytes of each of the many small tensors
BUCKET = MIB


def buckets(tensors):
    """For as few arrays of at most BUCKET bytes as will do: the array, and each tensor with its place there."""
    lists, held = [[]], 0
    for tensor in tensors:  # in the same order everywhere, so the buckets are the same everywhere
        if held + tensor.nbytes > BUCKET and lists[-1]:
            lists.append([])
            held = 0
        lists[-1].append(tensor)
        held += tensor.nbytes
    for tensors in lists:
        bucket = np.concatenate(tensors)
        ends = np.cumsum([tensor.size for tensor in tensors])[:-1]
        yield bucket, list(zip(tensors, np.split(bucket, ends), strict=True))


def in_buckets(group, packed):
    """Copy the tensors into their buckets, reduce these, copy them out again."""
    for bucket, pairs in packed:
        for tensor, place in pairs:
            place[...] = tensor
        group.all_reduce(bucket, out=bucket)
        for tensor, place in pairs:
            tensor[...] = place


ADVICE = """
A bucket saves calls and pays for two copies. Over a network a call costs
far more than copying 4 KiB does; in shared memory it may not pay.
Tensors that lie side by side from the start (views of one array, as here) need
no copies: they are the second line."""


def main(group, mib=8):
    n = group.size
    x = np.empty(mib * MIB // 4, np.float32)
    chunks, small = np.split(x, x.nbytes // MIB), np.split(x, x.nbytes // SMALL)  # views of x
    packed = list(buckets(small))
    ways = {
        "one call": (1, lambda: group.all_reduce(x, out=x)),
        "chunks of 1 MiB": (len(chunks), lambda: [group.all_reduce(part, out=part) for part in chunks]),
        "small tensors": (len(small), lambda: [group.all_reduce(part, out=part) for part in small]),
        "in buckets": (len(packed), lambda: in_buckets(group, packed)),
    }
    say(group, f"all_reduce of {x.nbytes} bytes over {n} ranks; small tensors have {SMALL} bytes\n")
    say(group, f"{'':18}{'calls':>6}{'first':>8}{'last':>8}{'ms':>10}{'algbw':>9}{'busbw':>9}  GB/s")
    for name, (calls, run) in ways.items():
        x[...] = np.arange(x.size) % 97 + group.rank
        run()
        first, last = x[[0, -1]].astype(int)
        same = (everyone(group, [x.sum(dtype=np.int64)]) == x.sum(dtype=np.int64)).all()
        x[...] = 0  # a sum in place of ones would grow with each round, and become inf
        time = seconds(group, run, rounds=3)
        algbw = x.nbytes / time / 1e9
        line = f"{name:18}{calls:6}{first:8}{last:8}{time * 1e3:10.2f}{algbw:9.3f}{algbw * 2 * (n - 1) / n:9.3f}"
        say(group, line + ("" if same else "  DIFFERS between ranks"))
    say(group, ADVICE)


if __name__ == "__main__":
    with hocket.init() as group:
        main(group, *map(int, sys.argv[1:]))
