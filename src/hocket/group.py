"""The group: a rank among its peers, and the collectives they make together."""

from __future__ import annotations

import atexit
import json
import os
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from .algorithms import plan
from .arrays import adopt
from .buffers import Buffers, rows_of
from .call import Call
from .caller import Caller
from .choose import choose
from .config import Config
from .ops import DTYPES, Op, resolve
from .plan import Plan
from .rendezvous import Links, join
from .run.native import Native, create_outbox, facts
from .work import Work

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Algorithm: TypeAlias = "str | Plan | None"
Operator: TypeAlias = "str | np.ufunc | Callable[[Array, Array, Array], Any]"
T = TypeVar("T")

NO_DATA = np.empty(0, np.uint8)


class Group:
    """The ranks of a job, seen from one of them. `hocket.init` makes one; so do `subgroup` and `split`.

    Every rank must make the same calls in the same order. A call that differs between ranks raises MismatchError on all
    of them; a rank that dies or leaves raises PeerLost; a deadline that passes raises CollectiveTimeout. The first such
    error breaks the group: later calls raise GroupBroken, which carries it. Bad arguments raise ValueError or TypeError
    before anything is sent, and leave the group as it was.

    Arrays are NumPy's (ml_dtypes' bfloat16 too) or anything with DLPack on the CPU, such as torch tensors; the same kind
    comes back. Dtypes: bool, all integers, float16, bfloat16, float32, float64, complex64, complex128.

    All collectives take `timeout` (seconds; the group's by default) and `async_op` (give back a `Work` at once), and
    those that move data take `out` (an array for the result, which may be the input) and `algorithm` (a name from
    `hocket.algorithms`, or a `Plan`; by default the fastest that folds in the order of ranks).
    """

    def __init__(self, rank: int, links: Links, timeout: float) -> None:
        self.rank = rank
        self.size = len(links.fds)
        self.timeout = timeout
        names = [f"rank {r} (pid {pid} on {host})" for r, (pid, host) in enumerate(zip(links.pids, links.hosts, strict=True))]
        sockets = [-1 if socket is None else socket.fileno() for socket in links.sockets]
        self._links = links
        self._caller = Caller(Native(rank, links.fds, sockets), names)
        _open.add(self)

    # ---- reductions ---------------------------------------------------------------------------------------------------

    def all_reduce(
        self,
        x: Any,
        op: Operator = "sum",
        *,
        out: Any = None,
        algorithm: Algorithm = None,
        order: str = "same",
        timeout: float | None = None,
        async_op: bool = False,
    ) -> Any:
        """The reduction of all ranks' `x`, element by element, on every rank.

        `x` has the same shape and dtype on all ranks, and so has the result. `op` is "sum", "mean", "product", "min",
        "max", "band", "bor", "bxor", "land", "lor", "lxor", a binary NumPy ufunc, or a callable `f(a, b, out)`; see
        `hocket.ops`. All ranks get the same bits, in every run and for every size of the message; `order="any"` gives up
        the last of these for speed.
        """
        array = adopt(x)
        return self._reduce("all_reduce", x, array, array.shape, op, out, None, 0, algorithm, order, timeout, async_op)

    def reduce(
        self,
        x: Any,
        op: Operator = "sum",
        *,
        root: int = 0,
        out: Any = None,
        algorithm: Algorithm = None,
        order: str = "same",
        timeout: float | None = None,
        async_op: bool = False,
    ) -> Any:
        """As `all_reduce`, but only `root` gets the result; the others get None, and their `out` is not touched."""
        array = adopt(x)
        self._require_rank(root, "root")
        return self._reduce("reduce", x, array, array.shape, op, out, None, root, algorithm, order, timeout, async_op)

    def reduce_scatter(
        self,
        x: Any,
        op: Operator = "sum",
        *,
        sizes: Sequence[int] | None = None,
        out: Any = None,
        algorithm: Algorithm = None,
        order: str = "same",
        timeout: float | None = None,
        async_op: bool = False,
    ) -> Any:
        """The reduction of all ranks' `x`, of which each rank gets its part of axis 0.

        Without `sizes`, axis 0 must divide evenly; with it, rank r gets `sizes[r]` rows. `op` as in `all_reduce`.
        """
        array = adopt(x)
        rows, blocks = self._parts(array.shape, sizes)
        shape = (rows[self.rank], *array.shape[1:])
        return self._reduce("reduce_scatter", x, array, shape, op, out, blocks, 0, algorithm, order, timeout, async_op)

    def _reduce(
        self,
        name: str,
        x: Any,
        array: Array,
        shape: tuple[int, ...],
        op: Operator,
        out: Any,
        blocks: tuple[int, ...] | None,
        root: int,
        algorithm: Algorithm,
        order: str,
        timeout: float | None,
        async_op: bool,
    ) -> Any:
        operator = resolve(op, array.dtype)
        call = self._call(name, array.dtype, array.size, algorithm, blocks, root, op=operator.name, order=order)
        chosen = self._plan(call, algorithm, operator)
        buffers = self._buffers(call, chosen, x, array, shape if self._gets(call) else None, out)
        return self._do(call, chosen, operator, buffers, timeout, async_op)

    # ---- movement -----------------------------------------------------------------------------------------------------

    def broadcast(
        self,
        x: Any = None,
        *,
        root: int = 0,
        out: Any = None,
        algorithm: Algorithm = None,
        timeout: float | None = None,
        async_op: bool = False,
    ) -> Any:
        """The root's `x` on every rank.

        Off the root, `x` only tells the shape and dtype that are expected, and its kind; it may be None.
        """
        self._require_rank(root, "root")
        pattern = x if x is not None else out
        if pattern is None:
            return self._learn("broadcast", root, algorithm, None, timeout, async_op)
        array = adopt(pattern)
        call = self._call("broadcast", array.dtype, array.size, algorithm, None, root)
        chosen = self._plan(call, algorithm)
        given = array if self.rank == root else None
        buffers = self._buffers(call, chosen, pattern, given, array.shape, out, array.dtype)
        return self._do(call, chosen, None, buffers, timeout, async_op, _note(call, array))

    def scatter(
        self,
        x: Any = None,
        *,
        root: int = 0,
        sizes: Sequence[int] | None = None,
        out: Any = None,
        algorithm: Algorithm = None,
        timeout: float | None = None,
        async_op: bool = False,
    ) -> Any:
        """Each rank's part of the root's `x`, along axis 0. Off the root `x` is ignored and may be None.

        Without `sizes`, axis 0 must divide evenly; with it, rank r gets `sizes[r]` rows.
        """
        self._require_rank(root, "root")
        if self.rank != root:
            return self._learn("scatter", root, algorithm, sizes, timeout, async_op, out)
        if x is None:
            raise TypeError("the root must give the array that is scattered")
        array = adopt(x)
        rows, blocks = self._parts(array.shape, sizes)
        call = self._call("scatter", array.dtype, array.size, algorithm, blocks, root)
        chosen = self._plan(call, algorithm)
        buffers = self._buffers(call, chosen, x, array, (rows[root], *array.shape[1:]), out)
        note = _note(call, array, None if sizes is None else rows)
        return self._do(call, chosen, None, buffers, timeout, async_op, note)

    def _learn(
        self,
        name: str,
        root: int,
        algorithm: Algorithm,
        sizes: Sequence[int] | None,
        timeout: float | None,
        async_op: bool,
        out: Any = None,
    ) -> Any:
        """The part of a rank that only the root can tell what it will get."""

        def job(seconds: float) -> Any:
            note = self._caller.learn(root, f"{name}(root={root})", seconds)
            told = json.loads(note) if note else {}
            if told.get("collective") != name:  # the root is in another call: enter this one, and let the board say so
                told = {"dtype": "uint8", "shape": (self.size,)}
            shape, dtype = tuple(told["shape"]), next(d for d in DTYPES if d.name == told["dtype"])
            blocks = None
            if name == "scatter":
                rows, blocks = self._parts(shape, sizes if sizes is not None else told.get("rows"))
                total, shape = int(np.prod(shape)), (rows[self.rank], *shape[1:])
            else:
                total = int(np.prod(shape))
            call = self._call(name, dtype, total, algorithm, blocks, root)
            chosen = self._plan(call, algorithm)
            buffers = self._buffers(call, chosen, out, None, shape, out, dtype)
            self._caller.call(call, chosen, None, buffers.inp, buffers.target, seconds)
            return buffers.deliver()

        return self._caller.do(f"{name}(root={root})", job, self._seconds(timeout), async_op)

    def all_gather(
        self,
        x: Any,
        *,
        sizes: Sequence[int] | None = None,
        out: Any = None,
        algorithm: Algorithm = None,
        timeout: float | None = None,
        async_op: bool = False,
    ) -> Any:
        """All ranks' `x` joined along axis 0 in the order of ranks, on every rank. A 0-d `x` gives the shape (size,).

        Without `sizes`, `x` has the same shape everywhere; with it, rank r gives `sizes[r]` rows.
        """
        return self._gather("all_gather", x, 0, sizes, out, algorithm, timeout, async_op)

    def gather(
        self,
        x: Any,
        *,
        root: int = 0,
        sizes: Sequence[int] | None = None,
        out: Any = None,
        algorithm: Algorithm = None,
        timeout: float | None = None,
        async_op: bool = False,
    ) -> Any:
        """As `all_gather`, but only `root` gets the result; the others get None, and their `out` is not touched."""
        self._require_rank(root, "root")
        return self._gather("gather", x, root, sizes, out, algorithm, timeout, async_op)

    def _gather(
        self,
        name: str,
        x: Any,
        root: int,
        sizes: Sequence[int] | None,
        out: Any,
        algorithm: Algorithm,
        timeout: float | None,
        async_op: bool,
    ) -> Any:
        array = adopt(x)
        own, row = rows_of(array.shape)
        rows = (own,) * self.size if sizes is None else self._sizes(sizes)
        if rows[self.rank] != own:
            raise ValueError(f"sizes says that rank {self.rank} gives {rows[self.rank]} rows, but x has {own}")
        elements = int(np.prod(row))
        blocks = None if sizes is None else tuple(n * elements for n in rows)
        call = self._call(name, array.dtype, sum(rows) * elements, algorithm, blocks, root)
        chosen = self._plan(call, algorithm)
        buffers = self._buffers(call, chosen, x, array, (sum(rows), *row) if self._gets(call) else None, out)
        return self._do(call, chosen, None, buffers, timeout, async_op)

    def all_to_all(
        self,
        x: Any,
        *,
        sizes: Sequence[int] | None = None,
        out: Any = None,
        algorithm: Algorithm = None,
        timeout: float | None = None,
        async_op: bool = False,
    ) -> Any:
        """Part r of `x` goes to rank r; the result is the parts that came, joined along axis 0 in the order of ranks.

        Without `sizes`, axis 0 must divide evenly and `x` has the same shape everywhere. With it, `sizes[r]` rows go to
        rank r; what each rank sends may differ, and how much will come is exchanged first.
        """
        array = adopt(x)
        rows, blocks = self._parts(array.shape, sizes)
        call = self._call("all_to_all", array.dtype, array.size, algorithm, blocks)
        chosen = self._plan(call, algorithm)
        if sizes is None:
            buffers = self._buffers(call, chosen, x, array, array.shape, out)
            return self._do(call, chosen, None, buffers, timeout, async_op)
        elements = int(np.prod(array.shape[1:]))
        ask = Call("all_to_all", np.dtype(np.int64), self.size, within=call.text)

        def job(seconds: float) -> Any:
            coming = np.empty(self.size, np.int64)
            self._caller.call(ask, self._plan(ask, None), None, np.asarray(rows, np.int64), coming, seconds)
            shape = (int(coming.sum()), *array.shape[1:])
            buffers = self._buffers(call, chosen, x, array, shape, out, apart=True)
            received = tuple(int(n) * elements for n in coming)
            self._caller.call(call, chosen, None, buffers.inp, buffers.target, seconds, received)
            return buffers.deliver()

        return self._caller.do(call.text, job, self._seconds(timeout), async_op)

    def barrier(self, *, timeout: float | None = None, async_op: bool = False) -> Any:
        """Returns once every rank has called it."""
        call = self._call("barrier", NO_DATA.dtype, 0, None)
        return self._do(call, self._plan(call, None), None, Buffers.none(), timeout, async_op)

    # ---- memory and life ----------------------------------------------------------------------------------------------

    def empty(self, shape: int | Sequence[int], dtype: npt.DTypeLike = "float32") -> Array:
        """A new array of `shape` and `dtype`, its contents undefined. It lies in plain memory by now."""
        return np.empty(shape, dtype)

    def close(self) -> None:
        """Leave the group. Waits for what is in flight; a rank that still waits for this one gets PeerLost. A second call
        does nothing."""
        self._close(None)

    def _close(self, error: BaseException | None) -> None:
        if self._caller.leave(error):
            self._links.close()
        _open.discard(self)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._close(error)

    def __repr__(self) -> str:
        return f"<Group rank {self.rank} of {self.size}>"

    # ---- what the collectives share -----------------------------------------------------------------------------------

    def _do(
        self,
        call: Call,
        chosen: Plan,
        op: Op | None,
        buffers: Buffers,
        timeout: float | None,
        async_op: bool,
        note: str = "",
    ) -> Any:
        def job(seconds: float) -> Any:
            self._caller.call(call, chosen, op, buffers.inp, buffers.target, seconds, note=note)
            return buffers.deliver()

        return self._caller.do(call.text, job, self._seconds(timeout), async_op)

    def _call(
        self,
        name: str,
        dtype: np.dtype[Any],
        count: int,
        algorithm: Algorithm,
        blocks: tuple[int, ...] | None = None,
        root: int = 0,
        op: str = "",
        order: str = "same",
    ) -> Call:
        if order not in ("same", "any"):
            raise ValueError(f'order is "same" or "any", not {order!r}')
        label = "auto" if algorithm is None else algorithm.algorithm if isinstance(algorithm, Plan) else algorithm
        return Call(name, dtype, count, op, root, blocks, label, order)

    def _plan(self, call: Call, algorithm: Algorithm, op: Op | None = None) -> Plan:
        """The plan for `call`, proved to be right for it."""
        if isinstance(algorithm, Plan):
            chosen = algorithm
            if (chosen.collective, chosen.size, chosen.root) != (call.collective, self.size, call.root):
                raise ValueError(f"{chosen!r} is no plan for {call.collective} over {self.size} ranks, root {call.root}")
        else:
            name = algorithm or choose(call.collective, call.nbytes, self.size, call.order)
            chosen = plan(call.collective, name, self.size, call.root)
        if op is not None and op.function is not None and call.order == "same" and not facts(chosen).rank_order:
            raise ValueError(
                f"{chosen.algorithm} does not fold in the order of ranks, and {op.name} is not known to commute: "
                'choose another algorithm, or say order="any"'
            )
        return chosen

    def _buffers(
        self,
        call: Call,
        chosen: Plan,
        x: Any,
        given: Array | None,
        shape: tuple[int, ...] | None,
        out: Any,
        dtype: np.dtype[Any] | None = None,
        apart: bool = False,
    ) -> Buffers:
        """Contiguous input and output of a call: in one memory where `chosen` can work there, apart otherwise."""
        in_place = not apart and out is not None and self._caller.native.can_run_in_place(chosen)
        leads = call.leads(self.rank, self.size)
        return Buffers.make(x, given, shape, dtype or call.dtype, out, leads if in_place else None)

    def _gets(self, call: Call) -> bool:
        return call.collective not in ("reduce", "gather") or call.root == self.rank

    def _parts(self, shape: tuple[int, ...], sizes: Sequence[int] | None) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """How many rows of an array of `shape` each rank gets, and the elements of each block where that is uneven."""
        if not shape:
            raise ValueError("a 0-d array has no axis 0 to split")
        if sizes is None:
            if shape[0] % self.size:
                raise ValueError(f"axis 0 of shape {shape} does not divide by {self.size} ranks: give sizes=")
            return (shape[0] // self.size,) * self.size, None
        rows = self._sizes(sizes)
        if sum(rows) != shape[0]:
            raise ValueError(f"sizes {list(rows)} make {sum(rows)} rows, but axis 0 of shape {shape} has {shape[0]}")
        elements = int(np.prod(shape[1:]))
        return rows, tuple(n * elements for n in rows)

    def _sizes(self, sizes: Sequence[int]) -> tuple[int, ...]:
        rows = tuple(int(n) for n in sizes)
        if len(rows) != self.size or any(n < 0 for n in rows):
            raise ValueError(f"sizes is one number of rows, not below zero, for each of {self.size} ranks; not {sizes}")
        return rows

    def _require_rank(self, rank: int, what: str) -> None:
        if not isinstance(rank, (int, np.integer)) or isinstance(rank, bool):
            raise TypeError(f"{what} is a rank, not {rank!r}")
        if not 0 <= rank < self.size:
            raise ValueError(f"{what} {rank} is not one of the ranks 0 to {self.size - 1}")

    def _seconds(self, timeout: float | None) -> float:
        seconds = self.timeout if timeout is None else float(timeout)
        if not seconds > 0:
            raise ValueError(f"timeout is a number of seconds above zero, not {timeout}")
        return seconds


def init(timeout: float | None = None) -> Group:
    """Meet the other ranks of the job and form the group of them all.

    The job is told by the variables of `hocket run`, torchrun, mpirun (Open MPI, MPICH) or srun; with none of them set
    this is a world of one, in which every collective works. `timeout`, in seconds, is for the meeting and for every
    call that names none of its own; by default HOCKET_TIMEOUT, or 30. Raises RendezvousError.
    """
    config = Config.from_env()
    seconds = config.timeout if timeout is None else timeout
    if not seconds > 0:
        raise ValueError(f"timeout is a number of seconds above zero, not {timeout}")
    fd = create_outbox(config.size)
    try:
        return Group(config.rank, join(config, fd, seconds), seconds)
    finally:
        os.close(fd)


def _note(call: Call, array: Array, rows: tuple[int, ...] | None = None) -> str:
    """What the root's call board tells the ranks that do not know what they will get."""
    return json.dumps({"collective": call.collective, "dtype": array.dtype.name, "shape": array.shape, "rows": rows})


_open: weakref.WeakSet[Group] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for group in list(_open):
        group.close()
