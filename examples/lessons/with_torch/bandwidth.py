"""Long tensors and many short ones: one all_reduce, chunks of 1 MiB, one call per tensor, and buckets of tensors.

    python examples/lessons/with_torch/bandwidth.py 4

DDP reduces gradients in buckets of 25 MB (bucket_cap_mb): this is why. GB/s are those of nccl-tests: *algbw* is the
tensor's bytes by the time, *busbw* is algbw times 2(N-1)/N, what of it each rank must at least send and receive.
Columns *first* and *last* are what these numbers of the tensor became: the same in all ways.
"""

import torch
import torch.distributed as dist
from start import everyone, say, seconds, start

MIB = 1 << 20
SMALL = 4 << 10  # bytes of each of the many small tensors


def each(tensors):
    for tensor in tensors:
        dist.all_reduce(tensor)


def in_buckets(buckets):
    """Copy tensors into a bucket, reduce it, copy them out again."""
    for tensors in buckets:
        bucket = torch.cat(tensors)
        dist.all_reduce(bucket)
        for tensor, part in zip(tensors, bucket.split([len(tensor) for tensor in tensors]), strict=True):
            tensor.copy_(part)


def main(mib=8):
    n = dist.get_world_size()
    x = torch.empty(mib * MIB // 4)
    bytes_of_x = x.numel() * x.itemsize
    chunks, small = x.split(MIB // 4), x.split(SMALL // 4)  # views of x
    fit = MIB // SMALL  # in a bucket of 1 MiB
    buckets = [small[i : i + fit] for i in range(0, len(small), fit)]
    ways = {
        "one call": (1, lambda: dist.all_reduce(x)),
        "chunks of 1 MiB": (len(chunks), lambda: each(chunks)),
        "small tensors": (len(small), lambda: each(small)),
        "in buckets": (len(buckets), lambda: in_buckets(buckets)),
    }
    say(f"all_reduce of {bytes_of_x} bytes over {n} ranks; small tensors have {SMALL} bytes\n")
    say(f"{'':18}{'calls':>6}{'first':>8}{'last':>8}{'ms':>10}{'algbw':>9}{'busbw':>9}  GB/s")
    for name, (calls, run) in ways.items():
        x[:] = torch.arange(x.numel()) % 97 + dist.get_rank()
        run()
        first, last = x[[0, -1]].int().tolist()
        sums = everyone(x.sum(dtype=torch.float64))
        x.zero_()  # a sum in place of ones would grow with each round, and become inf
        time = seconds(run, rounds=3)
        algbw = bytes_of_x / time / 1e9
        line = f"{name:18}{calls:6}{first:8}{last:8}{time * 1e3:10.2f}{algbw:9.3f}{algbw * 2 * (n - 1) / n:9.3f}"
        say(line + ("" if (sums == sums[0]).all() else "  DIFFERS between ranks"))


if __name__ == "__main__":
    start(main)
