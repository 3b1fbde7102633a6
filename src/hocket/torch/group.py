"""The collectives and messages of `torch.distributed`, each in terms of those of one `hocket.Group`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.distributed import distributed_c10d as c10d

from ..errors import MismatchError
from . import sparse
from .base import Base
from .monitor import monitored_barrier
from .profiling import event, profiled, seen
from .reduce_ops import NAMES, PREMUL_SUM, scaled
from .tensors import Row, Rows
from .uncompiled import uncompiled
from .work import DONE, Collective, Done, Pending, Tensors, Transfer

Tensor: TypeAlias = torch.Tensor

_BACKWARD = torch.autograd.graph._engine_run_backward.__code__


@uncompiled
class ProcessGroup(Base):
    """One rank's end of a group. Torch makes it; `shutdown`, which `destroy_process_group` calls, closes it."""

    # ---- reductions --------------------------------------------------------------------------------------------------

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Done | Pending:
        """Reduce each tensor over all ranks, in place."""
        opts = opts or c10d.AllreduceOptions()
        op, seconds = opts.reduceOp, self._seconds(opts.timeout)
        later = opts.asyncOp
        if self._executor.busy or (later and not _called_by_backward()):
            return self._do("all_reduce", opts, tensors, tensors, partial(self._all_reduce_each, tensors, op))
        each = seen("all_reduce", tensors, self._all_reduce_each) if profiled() else self._all_reduce_each
        each(tensors, op, seconds)
        return Done(tensors) if later else DONE

    allreduce_coalesced = allreduce

    def _all_reduce_each(self, tensors: Tensors, op: Any, seconds: float | None) -> None:
        code = hash(op)
        for tensor in tensors:
            try:
                array = tensor.numpy()
                plain = code != PREMUL_SUM and tensor.is_contiguous()
            except (TypeError, RuntimeError):  # of those that NumPy cannot view, Row knows more
                plain = False
            if plain:
                self._group.all_reduce(array, NAMES[code], out=array, timeout=seconds)
            elif tensor.layout is torch.sparse_coo:
                sparse.all_reduce(self._group, tensor, "premul_sum" if code == PREMUL_SUM else NAMES[code], seconds)
            else:
                row = Row(tensor)
                given = Row(scaled(tensor, op)) if code == PREMUL_SUM else row
                self._group.all_reduce(given.shaped, NAMES[code], out=row.shaped, timeout=seconds)
                row.put_back()

    def reduce(self, tensors: Tensors, opts: Any) -> Done | Pending:
        """Reduce each tensor over all ranks, into that of the root."""
        op, root = opts.reduceOp, opts.rootRank

        def job(seconds: float | None) -> None:
            for tensor in tensors:
                row, given = Row(tensor), Row(scaled(tensor, op))
                self._group.reduce(given.shaped, NAMES[hash(op)], root=root, out=row.shaped, timeout=seconds)
                if self._rank == root:
                    row.put_back()

        return self._do("reduce", opts, tensors, tensors, job)

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Done | Pending:
        """Reduce a list of one tensor per rank, of which each rank gets its own. The tensors may differ in size."""
        opts = opts or c10d.ReduceScatterOptions()
        op = opts.reduceOp

        def job(seconds: float | None) -> None:
            for output, parts in zip(outputs, inputs, strict=True):
                row, given = Row(output), Rows([scaled(part, op) for part in parts])
                sizes = None if given.even else given.sizes
                name = NAMES[hash(op)]
                self._group.reduce_scatter(given.array, name, sizes=sizes, out=row.array, timeout=seconds)
                row.put_back()

        return self._do("reduce_scatter", opts, [part for parts in inputs for part in parts], outputs, job)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Done | Pending:
        """Reduce `input`, of which each rank gets its part of axis 0 (joined or stacked)."""
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Done | Pending:
        """`reduce_scatter_single` of each pair."""
        opts = opts or c10d.ReduceScatterOptions()
        op = opts.reduceOp

        def job(seconds: float | None) -> None:
            for output, tensor in zip(outputs, inputs, strict=True):
                _require(output.numel() * self._size == tensor.numel(), "input", tensor, f"{self._size} times", output)
                row, given = Row(output), Row(scaled(tensor, op))
                self._group.reduce_scatter(given.array, NAMES[hash(op)], out=row.array, timeout=seconds)
                row.put_back()

        return self._do("reduce_scatter", opts, inputs, outputs, job)

    # ---- movement ----------------------------------------------------------------------------------------------------

    def broadcast(self, tensors: Tensors, opts: Any) -> Done | Pending:
        """The root's tensors on every rank."""
        root = opts.rootRank

        def job(seconds: float | None) -> None:
            for tensor in tensors:
                row = Row(tensor, moved=True)
                self._group.broadcast(row.shaped, root=root, out=row.shaped, timeout=seconds)
                row.put_back()

        return self._do("broadcast", opts, tensors, tensors, job)

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Done | Pending:
        """Every rank's tensor in a list, on every rank. The tensors may differ in size."""
        opts = opts or c10d.AllgatherOptions()

        def job(seconds: float | None) -> None:
            for parts, tensor in zip(outputs, inputs, strict=True):
                row, rows = Row(tensor, moved=True), Rows(parts, moved=True, read=False)
                if rows.even:
                    joined = rows.array.reshape(self._size, *tensor.shape)
                    self._group.all_gather(row.shaped[np.newaxis], out=joined, timeout=seconds)
                else:
                    self._group.all_gather(row.array, sizes=rows.sizes, out=rows.array, timeout=seconds)
                rows.put_back()

        return self._do("all_gather", opts, inputs, [part for parts in outputs for part in parts], job)

    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Done | Pending:
        """`allgather` of several tensors: `outputs[r]` are those of rank r."""
        return self.allgather([list(parts) for parts in zip(*outputs, strict=True)], inputs, opts)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Done | Pending:
        """Every rank's tensor in one (joined or stacked), on every rank."""
        return self.all_gather_single_coalesced([output], [input], opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Done | Pending:
        """`all_gather_single` of each pair."""
        opts = opts or c10d.AllgatherOptions()

        def job(seconds: float | None) -> None:
            for output, tensor in zip(outputs, inputs, strict=True):
                _require(output.numel() == tensor.numel() * self._size, "output", output, f"{self._size} times", tensor)
                row, given = Row(output, moved=True), Row(tensor, moved=True)
                self._group.all_gather(given.array, out=row.array, timeout=seconds)
                row.put_back()

        return self._do("all_gather", opts, inputs, outputs, job)

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> Done | Pending:
        """Every rank's tensor in a list, on the root; the other ranks give no list. The tensors have one size."""
        root = opts.rootRank

        def job(seconds: float | None) -> None:
            for i, tensor in enumerate(inputs):
                row = Row(tensor, moved=True)
                rows = Rows(outputs[i], moved=True, read=False) if self._rank == root else None
                self._group.gather(row.array, root=root, out=None if rows is None else rows.array, timeout=seconds)
                if rows is not None:
                    rows.put_back()

        return self._do("gather", opts, inputs, [part for parts in outputs for part in parts], job)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> Done | Pending:
        """One of the root's list of tensors for each rank; the other ranks give no list. They may differ in size."""
        root = opts.rootRank

        def job(seconds: float | None) -> None:
            for i, output in enumerate(outputs):
                row = Row(output, moved=True)
                rows = Rows(inputs[i], moved=True) if self._rank == root else None
                given, sizes = (rows.array, None if rows.even else rows.sizes) if rows is not None else (None, None)
                self._group.scatter(given, root=root, sizes=sizes, out=row.array, timeout=seconds)
                row.put_back()

        return self._do("scatter", opts, [part for parts in inputs for part in parts], outputs, job)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Done | Pending:
        """Tensor r of `inputs` goes to rank r; tensor r of `outputs` comes from it. They may differ in size."""
        opts = opts or c10d.AllToAllOptions()

        def job(seconds: float | None) -> None:
            given, rows = Rows(inputs, moved=True), Rows(outputs, moved=True, read=False)
            self._swap(given.array, given.sizes, rows.array, rows.sizes, seconds)
            rows.put_back()

        return self._do("all_to_all", opts, inputs, outputs, job)

    def all_to_all_single(
        self, output: Tensor, input: Tensor, output_splits: Sequence[int], input_splits: Sequence[int], opts: Any = None
    ) -> Done | Pending:
        """`input_splits[r]` rows of axis 0 go to rank r, `output_splits[r]` come from it; without both, equal parts."""
        opts = opts or c10d.AllToAllOptions()

        def job(seconds: float | None) -> None:
            given, row = Row(input, moved=True), Row(output, moved=True)
            if output_splits or input_splits:
                sizes = _elements(input, input_splits, self._size), _elements(output, output_splits, self._size)
                self._swap(given.array, sizes[0], row.array, sizes[1], seconds)
            else:
                _elements(input, (), self._size)
                self._group.all_to_all(given.array, out=row.array, timeout=seconds)
            row.put_back()

        return self._do("all_to_all", opts, [input], [output], job)

    def _swap(self, x: Any, to: Sequence[int], out: Any, of: Sequence[int], seconds: float | None) -> None:
        """All to all of `to[r]` elements for rank r and `of[r]` from it. Every rank sees that all sizes agree."""
        n = self._size
        sizes = self._group.all_gather(torch.tensor([[*to, *of]]).numpy(), timeout=seconds)
        for sender, receiver in zip(*(sizes[:, :n] != sizes[:, n:].T).nonzero(), strict=True):
            sent, expected = sizes[sender, receiver], sizes[receiver, n + sender]
            raise MismatchError(
                f"in all_to_all: rank {sender} gives {sent} elements to rank {receiver}, which expects {expected}"
            )
        self._group.all_to_all(x, sizes=to, out=out, timeout=seconds)

    # ---- from one rank to another ------------------------------------------------------------------------------------

    def send(self, tensors: Tensors, dst: int, tag: int) -> Transfer:
        """Send a tensor to rank `dst`."""
        (tensor,) = tensors
        with event("send", tensors):
            message = self._group.send(Row(tensor, moved=True).array, dst, tag=tag, async_op=True)
        return self._transfer(Transfer(self._waiters.submit, message, tensor))

    def recv(self, tensors: Tensors, src: int, tag: int) -> Transfer:
        """Receive a tensor from rank `src`."""
        (tensor,) = tensors
        row = Row(tensor, moved=True)
        with event("recv", tensors):
            message = self._group.recv(None if src < 0 else src, out=row.array, tag=tag, async_op=True)
        return self._transfer(Transfer(self._waiters.submit, message, tensor, row))

    def recv_anysource(self, tensors: Tensors, tag: int) -> Transfer:
        """Receive a tensor from any rank; the `Work` tells which."""
        return self.recv(tensors, -1, tag)

    def _transfer(self, work: Transfer) -> Transfer:
        if self._transfers is not None:
            self._transfers.append(work)
        return work

    def _start_coalescing(self, device: torch.device) -> None:
        self._transfers = []

    def _end_coalescing(self, device: torch.device) -> Pending:
        """The work of all calls since `_start_coalescing`: it ends after those before it in the queue."""
        transfers, self._transfers = self._transfers or [], None

        def job() -> None:
            for transfer in transfers:
                transfer.wait()

        return Collective([], self._executor.put(job, f"a batch of {len(transfers)} messages"))

    # ---- meeting -----------------------------------------------------------------------------------------------------

    def barrier(self, opts: Any = None) -> Done | Pending:
        """Ends once every rank has called it."""
        opts = opts or c10d.BarrierOptions()
        return self._do("barrier", opts, [], [], lambda seconds: self._group.barrier(timeout=seconds))

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """As `barrier`; where ranks do not come in time, the others raise CollectiveTimeout, which names them."""
        seconds = self._group.timeout if timeout is None or timeout < timedelta(0) else timeout.total_seconds()
        self._rounds += 1
        monitored_barrier(self._group, self._rounds, seconds, wait_all_ranks)

    # The names that these had until torch 2.12.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single


def _require(fits: bool, name: str, tensor: Tensor, relation: str, other: Tensor) -> None:
    if not fits:
        raise ValueError(
            f"{name} has {tensor.numel()} elements; it must have {relation} the {other.numel()} of the other"
        )


def _elements(tensor: Tensor, splits: Sequence[int], size: int) -> list[int]:
    """The elements that belong to each rank, of rows of axis 0."""
    rows = len(tensor) if tensor.dim() else 1
    if not splits and rows % size:
        raise ValueError(f"axis 0, of {rows} rows, does not divide by {size} ranks: give splits")
    if splits and (len(splits) != size or sum(splits) != rows):
        raise ValueError(
            f"splits are one number of rows per rank, {rows} together for {size} ranks; not {list(splits)}"
        )
    row = tensor.numel() // rows if rows else 0
    return [n * row for n in splits] if splits else [rows // size * row] * size


def _called_by_backward() -> bool:
    """Whether it was autograd that made this call of a group: the reducer of DDP does, from C++."""
    caller = sys._getframe(1).f_back
    return caller is not None and caller.f_code is _BACKWARD
