"""The calls of torch.distributed on CPUs, over gloo or over hocket. See loop.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from .data import BARE, TORCH_OPS, TRAINING, Array, Task
from .loop import Run, ping_pong
from .training import step

OPS = {name: getattr(dist.ReduceOp, "SUM" if name == "mean" else name.upper()) for name in TORCH_OPS}


class Torch:
    front = False

    def __init__(self, backend: str, rank: int, size: int) -> None:
        self.name = f"{backend} (torch {torch.__version__.split('+')[0]})"
        self.rank, self.size, self.barrier = rank, size, dist.barrier

    def empty(self, count: int, dtype: np.dtype[Any], memory: str) -> Array:
        return np.empty(count, dtype)

    def prepare(self, task: Task, x: Array, y: Array, root: int) -> Run | None:
        name = task.collective
        if task.op not in OPS or task.form == "persistent":
            return None
        if name in (*TRAINING, *BARE.values()):
            return step(name) if task.form == "call" else None
        if name == "send_recv":
            given, got = tensor(x), tensor(y)
            return ping_pong(
                self, lambda a, to: dist.send(given if a is x else got, to), lambda _, r: dist.recv(got, r), x, y
            )
        call = self.call(task, tensor(x), tensor(y), root)
        if call is None:
            return None
        if task.form == "async":
            return lambda: call(async_op=True).wait()
        return call

    def call(self, task: Task, x: Any, y: Any, root: int) -> Callable[..., Any] | None:
        name, here, op = task.collective, root == self.rank, OPS[task.op]
        calls: dict[str, Callable[..., Any]] = {
            "all_gather": lambda **how: dist.all_gather_into_tensor(y, x, **how),
            "reduce_scatter": lambda **how: dist.reduce_scatter_tensor(y, x, op, **how),
            "gather": lambda **how: dist.gather(x, list(y.chunk(self.size)) if here else None, root, **how),
            "scatter": lambda **how: dist.scatter(y, list(x.chunk(self.size)) if here else None, root, **how),
            "barrier": lambda **how: dist.barrier(**how),
        }
        if task.in_place:
            calls |= {
                "all_reduce": lambda **how: dist.all_reduce(x, op, **how),
                "reduce": lambda **how: dist.reduce(x, root, op, **how),
                "broadcast": lambda **how: dist.broadcast(x, root, **how),
            }
        else:
            calls |= {"all_to_all": lambda **how: dist.all_to_all_single(y, x, **how)}
        call = calls.get(task.collective)
        if task.op != "mean" or call is None or (name == "reduce" and not here):
            return call
        if task.form == "async":
            return None
        plain, trunc = call, None if x.is_floating_point() or x.is_complex() else "trunc"

        def mean() -> None:  # which gloo has not: as its users write it, so that it will do for every backend
            plain()
            y.div_(self.size, rounding_mode=trunc)

        return mean

    def ran(self, task: Task) -> str:
        return ""

    def predicts(self, task: Task) -> None:
        return None


def tensor(array: Array) -> Any:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


@contextmanager
def started(backend: str, rank: int, size: int, *, address: str) -> Iterator[Torch]:
    """The ranks meet through a file beside the controller's socket: no port, and gone with it."""
    torch.set_num_threads(1)
    name = backend
    if backend == "hocket":
        import hocket.torch

        name = f"hocket {hocket.__version__}"
    place, limit = f"file://{address}.meeting", timedelta(seconds=60)
    dist.init_process_group(backend, init_method=place, rank=rank, world_size=size, timeout=limit)
    yield Torch(name, rank, size)
    dist.destroy_process_group()
