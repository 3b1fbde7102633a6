"""The functional collectives that write into a tensor which is given, on torch 2.13.

There C++ looks for the methods of these two among those of groups written in C++ only. So for a group of hocket's they
are made here, and for all others they stay torch's own. Torch 2.14 finds the methods.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._C._distributed_c10d import _register_work, _resolve_process_group
from torch.distributed import distributed_c10d as c10d

from .group import ProcessGroup

OPERATORS = "all_gather_into_tensor_out", "reduce_scatter_tensor_out"
_library = torch.library.Library("_c10d_functional", "IMPL")  # what was put into it lasts as long as it does


def register() -> None:
    """Take these two over, for tensors on the CPU."""
    for name in OPERATORS if torch.__version__ < (2, 14) else ():
        _take_over(name)


def _take_over(name: str) -> None:
    theirs = torch.library.get_kernel(f"_c10d_functional::{name}", "CPU")

    def operator(keys: Any, input: torch.Tensor, *args: Any, out: torch.Tensor) -> torch.Tensor:
        *op, _, group = args
        group = _resolve_process_group(group) if isinstance(group, str) else group
        if not isinstance(group, ProcessGroup):
            result: torch.Tensor = theirs.call_boxed(keys, input, *args, out=out)
            return result
        if op:
            options = c10d.ReduceScatterOptions()
            options.reduceOp = getattr(c10d.ReduceOp, op[0].upper())
            work = group.reduce_scatter_single(out, input, options)
        else:
            work = group.all_gather_single(out, input)
        _register_work(out, work)
        return out

    _library.impl(name, operator, "CPU", with_keyset=True)
