"""Torch's reduction operators as hocket's.

`AVG` of integers truncates toward zero, as hocket's "mean" does. `PREMUL_SUM` multiplies each rank's elements by that
rank's factor, in the elements' own dtype, and sums.
"""

from __future__ import annotations

from typing import Any

import torch

from ..arrays.ops import OpName

# By the number of torch's ReduceOp, which is its hash: reading that costs a third of reading `op.op`.
NAMES: tuple[OpName, ...] = ("sum", "mean", "product", "min", "max", "band", "bor", "bxor", "sum")
PREMUL_SUM = 8


def scaled(tensor: torch.Tensor, op: Any) -> torch.Tensor:
    """What this rank gives to a reduction: `tensor`, or for PREMUL_SUM a multiple of it."""
    if hash(op) != PREMUL_SUM:
        return tensor
    return (tensor.detach() * op.factor).to(tensor.dtype)
