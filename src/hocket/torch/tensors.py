"""Tensors as hocket's groups take them: rows of elements, in memory that they share wherever they lie in one piece.

Autograd is left out, as everywhere in torch.distributed: what requires grad is written all the same, and no version is
counted up (FSDP gathers into memory that a backward has saved, on purpose).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from ..arrays.ops import BFLOAT16

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Tensor: TypeAlias = torch.Tensor

_REDUCIBLE = {
    *(torch.bool, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
}
_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


class Row:
    """The elements of a tensor in one row. `array` shares their memory where they lie there so, and is a copy of them
    otherwise; whoever writes to it calls `put_back` then.

    Elements that are only `moved` may be of any dtype; those that are reduced, of one that hocket computes with.
    """

    def __init__(self, tensor: Tensor, moved: bool = False) -> None:
        self._tensor, self._copy = tensor, None
        try:
            if tensor.is_contiguous():
                self.array: Array = tensor.numpy().reshape(-1)
                return
        except (TypeError, RuntimeError):  # it requires grad, is conjugated or sparse, is no dtype or place of NumPy's
            pass
        require_dense(tensor)
        flat = tensor.detach()
        if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
            flat = flat.view(-1)
        else:
            flat = self._copy = flat.resolve_conj().resolve_neg().reshape(-1).clone()
        self.array = as_array(flat, moved)

    @property
    def shaped(self) -> Array:
        """The row in the shape of the tensor, for what compares shapes between ranks."""
        return self.array.reshape(self._tensor.shape)

    def put_back(self) -> None:
        """Write the row into the tensor, where it is a copy."""
        if self._copy is not None:
            self._tensor.detach().copy_(self._copy.view(self._tensor.shape))


class Rows:
    """The elements of several tensors of one dtype, joined in one row: always a copy."""

    def __init__(self, tensors: Sequence[Tensor], moved: bool = False, read: bool = True) -> None:
        for tensor in tensors:
            require_dense(tensor)
        self._tensors = tensors
        self.sizes = [tensor.numel() for tensor in tensors]
        dtypes = {tensor.dtype for tensor in tensors}
        if len(dtypes) != 1:
            raise ValueError(f"the tensors of one list must have one dtype, not {sorted(map(str, dtypes))}")
        if read:
            self._flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).resolve_conj()
        else:
            self._flat = torch.empty(sum(self.sizes), dtype=dtypes.pop())
        self.array = as_array(self._flat, moved)

    @property
    def even(self) -> bool:
        """Whether all tensors have the same number of elements."""
        return len(set(self.sizes)) == 1

    def put_back(self) -> None:
        """Write the row into the tensors."""
        for tensor, part in zip(self._tensors, self._flat.split(self.sizes), strict=True):
            tensor.detach().copy_(part.view(tensor.shape))


def as_array(flat: Tensor, moved: bool = False) -> Array:
    """A contiguous tensor as an array of the same memory."""
    array: Array
    if flat.dtype == torch.bfloat16:
        array = flat.view(torch.int16).numpy().view(BFLOAT16)
        return array
    if flat.dtype not in _REDUCIBLE:
        if not moved:
            raise TypeError(
                f"hocket does not reduce {flat.dtype}: convert the tensor first, to torch.float32 for example"
            )
        flat = flat.view(_SAME_SIZE[flat.itemsize])
    array = flat.numpy()
    return array


def require_dense(tensor: Tensor) -> None:
    """Raises TypeError, in one sentence, for a tensor that hocket cannot take."""
    if tensor.layout is not torch.strided:
        raise TypeError(
            f"hocket takes dense tensors, and sparse_coo in all_reduce; this is {tensor.layout}: give tensor.to_dense()"
        )
    require_cpu(tensor)


def require_cpu(tensor: Tensor) -> None:
    """Raises TypeError, in one sentence, for a tensor that is elsewhere."""
    if not tensor.is_cpu:
        raise TypeError(f"hocket takes tensors on the CPU only, and this one is on {tensor.device}: give tensor.cpu()")
