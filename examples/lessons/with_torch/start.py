"""What the lessons with torch share: setup, spawn and cleanup, as programs with torch.distributed have them; printing.

    python examples/lessons/with_torch/cheatsheet.py 4                                   # starts 4 ranks itself
    torchrun --standalone --nproc-per-node 4 examples/lessons/with_torch/cheatsheet.py   # torchrun starts them
    hocket run -n 4 examples/lessons/with_torch/cheatsheet.py                            # hocket starts them

`--backend gloo` takes that in hocket's place. The backend's name is all that differs.
"""

import argparse
import os
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import hocket.torch  # noqa: F401  # torch 2.14 finds hocket without this line


def setup(backend, **where):
    """Meet the other ranks. A launcher says in the environment where (MASTER_ADDR, RANK and so on)."""
    torch.set_num_threads(1)  # each rank is a process already
    dist.init_process_group(backend, **where)


def cleanup():
    """Leave them. Not in a `finally`: a rank that fails leaves by failing, so that the others learn of its error."""
    dist.destroy_process_group()


def worker(rank, size, meeting, backend, main):
    """One of the processes that `start` makes."""
    setup(backend, init_method=meeting, rank=rank, world_size=size)
    main()
    cleanup()


def start(main):
    """Run `main` on every rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("ranks", type=int, nargs="?", default=4, help="where no launcher says how many")
    parser.add_argument("--backend", default="hocket")
    given = parser.parse_args()
    if "RANK" in os.environ:  # a launcher has made this process, and the others
        setup(given.backend)
        main()
        cleanup()
    else:
        with tempfile.TemporaryDirectory() as folder:  # to meet in a file: a port might be taken
            mp.spawn(worker, (given.ranks, f"file://{folder}/store", given.backend, main), nprocs=given.ranks)


def say(*words):
    """Print, on rank 0 only."""
    if dist.get_rank() == 0:
        print(*words)


def everyone(x):
    """What `x` is on each rank, as an array with one row per rank, on all of them."""
    x = torch.as_tensor(np.asarray(x))
    rows = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, x)
    return torch.stack(rows).numpy()


def seconds(call, rounds=5):
    """Of one call: the slowest rank's, the median of some rounds after a first one that is not counted."""
    times = []
    for _ in range(rounds + 1):
        dist.barrier()
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    median = torch.tensor(times[1:]).median()
    dist.all_reduce(median, dist.ReduceOp.MAX)
    return median.item()
