"""The commands that ranks make together, and what they ask about themselves.

Each calls the method of `hocket.Group` of its name. The group of all ranks is formed by the first command that needs
it. What a command gives is a new tensor; those that it was given stay as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..group import Group, init
from .errors import CommandError, invalid
from .handles import Array, Handles
from .parameters import (
    FLOAT32,
    Dtype,
    Flag,
    InFlight,
    Integer,
    Integers,
    MaybeInteger,
    MaybeShape,
    MaybeTensor,
    Operation,
    Root,
    Seconds,
    Sizes,
    Source,
    Tensor,
    Word,
)


def distributed_init(
    handles: Handles,
    rank: MaybeInteger = None,
    size: MaybeInteger = None,
    rendezvous: Word = "",
    timeout: Seconds = None,
) -> None:
    """Meet the other ranks, as the launcher's variables say or at that rendezvous, `tcp://host:port` or
    `file:///folder`; the timeout, in seconds, is then that of every command that names none."""
    if handles.world is not None:
        raise CommandError("the group is formed already: torch::distributed_finalize ends it", "AlreadyInitialized")
    handles.world = init(timeout, rank=rank, size=size, rendezvous=rendezvous or None)


def distributed_finalize(handles: Handles) -> None:
    """Leave all groups, when the calls in flight are done; requests and groups are gone, tensors stay."""
    handles.close()


def get_rank(handles: Handles, group: Word = "") -> int:
    """The number of this rank, from 0."""
    return handles.group(group).rank


def get_world_size(handles: Handles, group: Word = "") -> int:
    """How many ranks there are."""
    return handles.group(group).size


def is_distributed(handles: Handles) -> bool:
    """1 where there are several ranks, else 0."""
    return handles.group().size > 1


def distributed_new_group(handles: Handles, ranks: Integers, *, group: Word = "") -> str:
    """A handle for the group of these ranks, which are 0, 1, ... there, in the order of the list. All ranks of the
    group that it is made from call it; to those that are not in the list the handle is of no use."""
    return handles.groups.put(handles.group(group).subgroup(ranks))


def distributed_all_reduce(
    handles: Handles,
    tensor: Tensor,
    operation: Operation = "sum",
    *,
    async_: Flag = False,
    group: Word = "",
    timeout: Seconds = None,
) -> Any:
    """The reduction of all ranks' tensors, element by element, on every rank."""
    return handles.group(group).all_reduce(tensor, operation, timeout=timeout, async_op=async_)


def distributed_reduce(
    handles: Handles,
    tensor: Tensor,
    root: Root = 0,
    operation: Operation = "sum",
    *,
    async_: Flag = False,
    group: Word = "",
    timeout: Seconds = None,
) -> Any:
    """The reduction of all ranks' tensors on the root; nothing on the others."""
    return handles.group(group).reduce(tensor, operation, root=root, timeout=timeout, async_op=async_)


def distributed_broadcast(
    handles: Handles,
    tensor: MaybeTensor,
    root: Root = 0,
    *,
    async_: Flag = False,
    group: Word = "",
    timeout: Seconds = None,
) -> Any:
    """The root's tensor on every rank. Elsewhere the tensor tells the shape and dtype that are expected, or is `{}`."""
    return handles.group(group).broadcast(tensor, root=root, timeout=timeout, async_op=async_)


def distributed_gather(
    handles: Handles,
    tensor: Tensor,
    root: Root = 0,
    *,
    sizes: Sizes = None,
    async_: Flag = False,
    group: Word = "",
    timeout: Seconds = None,
) -> Any:
    """All ranks' tensors, joined along the first dimension, on the root; nothing on the others. With
    `-sizes`, one number for each rank, rank r gives that many rows; without it all give the same."""
    ranks = handles.group(group)
    _require_own(ranks, tensor, sizes)
    return ranks.gather(tensor, root=root, sizes=sizes, timeout=timeout, async_op=async_)


def distributed_all_gather(
    handles: Handles,
    tensor: Tensor,
    *,
    sizes: Sizes = None,
    async_: Flag = False,
    group: Word = "",
    timeout: Seconds = None,
) -> Any:
    """All ranks' tensors, joined along the first dimension, on every rank. `-sizes` as in a gather."""
    ranks = handles.group(group)
    _require_own(ranks, tensor, sizes)
    return ranks.all_gather(tensor, sizes=sizes, timeout=timeout, async_op=async_)


def distributed_scatter(
    handles: Handles,
    tensor: MaybeTensor = None,
    root: Root = 0,
    *,
    sizes: Sizes = None,
    async_: Flag = False,
    group: Word = "",
    timeout: Seconds = None,
) -> Any:
    """This rank's part of the root's tensor, along the first dimension. Elsewhere the tensor is ignored, or `{}`.
    With `-sizes`, one number for each rank, rank r gets that many rows; without it all get the same."""
    ranks = handles.group(group)
    _require_all(ranks, tensor if ranks.rank == root else None, sizes)
    return ranks.scatter(tensor, root=root, sizes=sizes, timeout=timeout, async_op=async_)


def distributed_reduce_scatter(
    handles: Handles,
    tensor: Tensor,
    operation: Operation = "sum",
    *,
    sizes: Sizes = None,
    async_: Flag = False,
    group: Word = "",
    timeout: Seconds = None,
) -> Any:
    """This rank's part, along the first dimension, of the reduction of all ranks' tensors. `-sizes` as in a
    scatter."""
    ranks = handles.group(group)
    _require_all(ranks, tensor, sizes)
    return ranks.reduce_scatter(tensor, operation, sizes=sizes, timeout=timeout, async_op=async_)


def distributed_all_to_all(
    handles: Handles,
    tensor: Tensor,
    *,
    sizes: Sizes = None,
    async_: Flag = False,
    group: Word = "",
    timeout: Seconds = None,
) -> Any:
    """Part r of the tensor, along its first dimension, goes to rank r; the parts that came, in the order of ranks.
    With `-sizes`, part r has that many rows, and each rank's sizes are its own."""
    ranks = handles.group(group)
    _require_all(ranks, tensor, sizes)
    return ranks.all_to_all(tensor, sizes=sizes, timeout=timeout, async_op=async_)


def _require_own(group: Group, tensor: Array, sizes: list[int] | None) -> None:
    """That sizes are said of all ranks, and of this one truly."""
    rows = len(tensor) if tensor.shape else 1
    _require_each(group, sizes)
    if sizes is not None and sizes[group.rank] != rows:
        raise invalid(f"sizes says that rank {group.rank} gives {sizes[group.rank]} rows, and its tensor has {rows}")


def _require_all(group: Group, tensor: Array | None, sizes: list[int] | None) -> None:
    """That what is cut, where this rank has it, falls into these parts, or into even ones."""
    _require_each(group, sizes)
    if tensor is None or not tensor.shape:
        return
    rows = len(tensor)
    if sizes is None and rows % group.size:
        raise invalid(f"the tensor has {rows} rows, which do not divide by {group.size} ranks: give -sizes")
    if sizes is not None and sum(sizes) != rows:
        raise invalid(f"sizes are of {sum(sizes)} rows together, and the tensor has {rows}")


def _require_each(group: Group, sizes: list[int] | None) -> None:
    if sizes is not None and len(sizes) != group.size:
        raise invalid(f"sizes has {len(sizes)} numbers, and must have one for each of {group.size} ranks")


def distributed_barrier(handles: Handles, *, async_: Flag = False, group: Word = "", timeout: Seconds = None) -> Any:
    """Done once every rank has called it."""
    return handles.group(group).barrier(timeout=timeout, async_op=async_)


def distributed_send(
    handles: Handles, tensor: Tensor, dst: Integer, tag: Integer = 0, *, group: Word = "", timeout: Seconds = None
) -> None:
    """Send the tensor to that rank, which receives it with the same tag."""
    handles.group(group).send(tensor, dst, tag=tag, timeout=timeout)


def distributed_isend(
    handles: Handles, tensor: Tensor, dst: Integer, tag: Integer = 0, *, group: Word = "", timeout: Seconds = None
) -> Any:
    """The same, and a request at once; the wait for it gives nothing."""
    return handles.group(group).send(tensor, dst, tag=tag, timeout=timeout, async_op=True)


def distributed_recv(
    handles: Handles,
    shape: MaybeShape = None,
    src: Source = None,
    tag: Integer = 0,
    *,
    dtype: Dtype = FLOAT32,
    group: Word = "",
    timeout: Seconds = None,
) -> Any:
    """The tensor that this rank, or `any`, has sent with that tag. Without a shape it is what comes; with one it must
    have that shape, and the dtype, float32 where none is given."""
    out = None if shape is None else np.empty(shape, dtype)
    return handles.group(group).recv(src, out=out, tag=tag, timeout=timeout)


def distributed_irecv(
    handles: Handles,
    shape: MaybeShape = None,
    src: Source = None,
    tag: Integer = 0,
    *,
    dtype: Dtype = FLOAT32,
    group: Word = "",
    timeout: Seconds = None,
) -> Any:
    """The same, and a request at once; the wait for it gives the tensor."""
    out = None if shape is None else np.empty(shape, dtype)
    return handles.group(group).recv(src, out=out, tag=tag, timeout=timeout, async_op=True)


def distributed_wait(handles: Handles, request: InFlight, timeout: Seconds = None) -> Any:
    """What the request's call gives, or its error; then the request is gone. After the timeout, in seconds, the error
    is a CollectiveTimeout: a collective goes on and may be waited for again, a message is given up."""
    try:
        return request.work.wait(timeout)
    finally:
        if request.work.done():
            handles.requests.drop(request.name)


def distributed_test(handles: Handles, request: InFlight) -> bool:
    """1 where the request's call has ended, well or badly, else 0."""
    return request.work.done()
