"""The sum of sparse tensors: every rank gets all ranks' indices and values, and adds up those of one place.

In the order of the ranks, so that all have the same bits. What travels grows with the ranks, as it does over gloo:
where that is more than the dense tensor, `to_dense()` is quicker.
"""

from __future__ import annotations

import numpy as np
import torch

from ..errors import MismatchError
from ..group import Group
from .tensors import as_array, require_cpu


def all_reduce(group: Group, tensor: torch.Tensor, op: str, seconds: float | None) -> None:
    """In place. Raises MismatchError on every rank where shapes differ, or how many of the dimensions are sparse."""
    require_cpu(tensor)
    if op != "sum":
        raise TypeError(f"sparse tensors are summed, and not reduced by {op}: give tensor.to_dense()")
    with torch.no_grad():
        mine = tensor.coalesce()
        indices, values = mine.indices().t().contiguous(), mine.values().contiguous()
        heads = group.all_gather(np.array([[len(values), mine.sparse_dim(), *mine.shape]]), timeout=seconds)
        if (heads[:, 1:] != heads[0, 1:]).any():
            shapes = (f"{shape} ({dims} sparse) on rank {r}" for r, (_, dims, *shape) in enumerate(heads.tolist()))
            raise MismatchError(f"in all_reduce: sparse tensors of different shapes: {', '.join(shapes)}")
        rows = heads[:, 0]
        places = torch.from_numpy(group.all_gather(indices.numpy(), sizes=rows, timeout=seconds))
        block = values.shape[1:]  # that lies at each place
        blocks = torch.empty((len(places), *block), dtype=values.dtype)
        given, out = (as_array(v.view(-1), moved=True).reshape(len(v), block.numel()) for v in (values, blocks))
        group.all_gather(given, sizes=rows, out=out, timeout=seconds)
        total = torch.sparse_coo_tensor(places.t(), blocks, mine.shape, check_invariants=False).coalesce()
        whole = tensor._base
        if whole is not None and whole.is_complex():  # torch gives a view as real numbers; what a sparse view is given,
            whole.copy_(torch.view_as_complex(total))  # the tensor behind it does not see
        else:
            tensor.copy_(total)
