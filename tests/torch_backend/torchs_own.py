"""Torch's own tests of a backend, those of torch/testing/_internal/distributed/distributed_test.py, over three ranks.

    pip install expecttest
    python tests/torch_backend/torchs_own.py hocket
    python tests/torch_backend/torchs_own.py gloo -k broadcast
    python tests/torch_backend/torchs_own.py hocket --lift

Most of these tests are only for backends whose names they list. So hocket is put in gloo's place: torch's tests believe
that it is gloo which they begin, save those few that ask for its name. What is skipped is skipped for want of a GPU, or
since gloo does not have it.

`--lift`, for either backend, runs over four ranks what is skipped by a backend's name, too: where torch asks what the
backend is called it is told "gloo", tests that list mpi or nccl are run, and those of them that are about CUDA tensors
on tensors of the CPU. What then still wants a GPU is skipped.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import unittest
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

import hocket.torch  # noqa: F401

BACKEND = sys.argv.pop(1)
LIFT = "--lift" in sys.argv
SIZE = "4" if LIFT else "3"
os.environ.update(BACKEND="gloo", WORLD_SIZE=SIZE, TEMP_DIR=tempfile.mkdtemp(), INIT_METHOD="env://")
begin = dist.init_process_group


def in_its_place(backend: Any = None, *args: Any, **options: Any) -> None:
    """`init_process_group`, in which gloo is another name of the backend that is tested."""
    begin(BACKEND if backend == "gloo" else backend, *args, **options)


dist.init_process_group = in_its_place

if LIFT:
    from torch.testing._internal import common_distributed, common_utils

    sys.argv.remove("--lift")
    common_distributed.get_timeout = lambda test: 60  # seconds that a test may hang
    skip_if, move = common_utils.skip_but_pass_in_sandcastle_if, torch.Tensor.to
    no_gpu = common_distributed.skip_if_no_gpu
    NAMED = re.compile("(?i)only (mpi|nccl) supports|nccl .*(recv )?only|to be one of {'nccl'}")
    WANTS_GPU = re.compile(
        "(?i)not compiled with CUDA|accelerator device when none|NCCL built in|invalid device string|no NVIDIA driver"
    )

    def lifted(condition: bool, reason: str) -> Callable[[Any], Any]:
        """Skips, but for what only a name is the reason of."""
        return on_cpu if condition and NAMED.search(reason) else skip_if(condition, reason)

    def on_cpu(test: Any) -> Any:
        """The test, where tensors stay that are moved to a GPU."""

        @wraps(test)
        def wrapper(*args: Any, **options: Any) -> Any:
            torch.Tensor.cuda = lambda self, *_, **__: self  # type: ignore[method-assign]
            torch.Tensor.to = lambda self, *to, **how: self if type(to[0]) is int else move(self, *to, **how)
            torch.cuda.set_device = lambda device: None  # type: ignore[assignment]
            common_distributed.TEST_CUDA = True
            torch.cuda.is_available = lambda: True
            torch.cuda.device_count = lambda: int(SIZE)  # type: ignore[assignment]
            try:
                test(*args, **options)
            except Exception as error:
                if not WANTS_GPU.search(str(error)):
                    raise
                sys.exit(common_distributed.TEST_SKIPS["no_cuda"].exit_code)

        wrapper.stays = True  # type: ignore[attr-defined]
        return wrapper

    def by_name(function: Any) -> Any:
        """A function that asks what the backend is called, and is told that it is gloo."""

        @wraps(function)
        def wrapper(*args: Any, **options: Any) -> Any:
            before = dist.get_backend
            called = lambda group=None: "gloo" if (name := before(group)) == BACKEND else name  # noqa: E731
            dist.get_backend = distributed_c10d.get_backend = called
            try:
                return function(*args, **options)
            finally:
                dist.get_backend = distributed_c10d.get_backend = before

        return wrapper

    dist.monitored_barrier = by_name(dist.monitored_barrier)
    common_utils.skip_but_pass_in_sandcastle_if = lifted
    common_utils.skip_but_pass_in_sandcastle = lambda reason: lifted(True, reason)
    common_distributed.skip_if_no_gpu = lambda test: test if hasattr(test, "stays") else no_gpu(test)
    common_distributed.skip_if_small_worldsize = lambda test: test
    common_distributed.init_multigpu_helper = lambda size, backend: {rank: ["cpu"] for rank in range(size)}

from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402


class TorchsOwn(TestDistBackend, DistributedTest._DistTestBase):
    """Each test in processes that are forked for it."""

    def setUp(self) -> None:
        """Begin them."""
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


if LIFT:
    TorchsOwn.test_get_backend = by_name(TorchsOwn.test_get_backend)

if __name__ == "__main__":
    unittest.main(verbosity=2)
