"""Torch's own tests of a backend, those of torch/testing/_internal/distributed/distributed_test.py, over three ranks.

    pip install expecttest
    python tests/torch_backend/torchs_own.py hocket
    python tests/torch_backend/torchs_own.py gloo -k broadcast

Most of these tests are only for backends whose names they list. So hocket is put in gloo's place: torch's tests believe
that it is gloo which they begin, save those few that ask for its name. What is skipped is skipped for want of a GPU, or
since gloo does not have it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import unittest
from typing import Any

import torch
import torch.distributed as dist

import hocket.torch  # noqa: F401

BACKEND = sys.argv.pop(1)
os.environ.update(BACKEND="gloo", WORLD_SIZE="3", TEMP_DIR=tempfile.mkdtemp(), INIT_METHOD="env://")
begin = dist.init_process_group


def in_its_place(backend: Any = None, *args: Any, **options: Any) -> None:
    """`init_process_group`, in which gloo is another name of the backend that is tested."""
    begin(BACKEND if backend == "gloo" else backend, *args, **options)


dist.init_process_group = in_its_place

from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402


class TorchsOwn(TestDistBackend, DistributedTest._DistTestBase):
    """Each test in processes that are forked for it."""

    def setUp(self) -> None:
        """Begin them."""
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


if __name__ == "__main__":
    unittest.main(verbosity=2)
