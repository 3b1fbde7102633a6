"""All-reduce of gloo, as torch.distributed offers it on CPUs: in place. See measure.py."""

import torch
import torch.distributed as dist
from measure import run

dist.init_process_group("gloo")
run(
    f"gloo (torch {torch.__version__.split('+')[0]})",
    dist.get_rank(),
    dist.get_world_size(),
    lambda x, _: dist.all_reduce(x),
    dist.barrier,
    wrap=torch.from_numpy,
    in_place=True,
)
dist.destroy_process_group()
