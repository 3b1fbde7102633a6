"""The group: a rank among its peers, and the collectives they make together.

Long because it is the front: a method for each call, with all that its user needs to know, and hardly any code.
"""

from __future__ import annotations

import atexit
import itertools
import math
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from .arrays.adopt import adopt
from .arrays.ops import resolve
from .arrays.shapes import Parts, join, split
from .calls.dispatch import Algorithm, Call, Dispatch, How, Persistent
from .calls.fastpath import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BARRIER,
    BROADCAST,
    EXSCAN,
    GATHER,
    RECV,
    REDUCE,
    REDUCE_SCATTER,
    SCAN,
    SCATTER,
    SEND,
    CacheKey,
    fast_path,
)
from .calls.messages import ANY, Messages
from .calls.metrics import Metrics, collect
from .calls.session import Session
from .config import HOCKET_RUN, Config, Given
from .deadline import Deadline
from .errors import HocketError, RendezvousError
from .launch import aftermath
from .observe import prometheus
from .observe.timeline import align, timeline
from .rendezvous.foreign import ForeignStore, TorchStore
from .rendezvous.join import join as meet
from .rendezvous.links import Links
from .rendezvous.sockets import explained
from .rendezvous.subgroups import form
from .rendezvous.subgroups import meet as meet_part
from .run.arena import Arena
from .run.native import Ends, Native, create_outbox
from .run.signature import Signature, tell
from .tuning.topology import Topology
from .tuning.wire import measure

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Operator: TypeAlias = "str | np.ufunc | Callable[[Array, Array, Array], Any]"


class Statistics(NamedTuple):
    """What one rank of a group has begun. A call or a message is fast where it looked like an earlier one, and went
    through no Python; the first of its kind is not. A call that is several in one (a broadcast to a rank that does not
    know what it will get, an uneven all_to_all, a subgroup) counts as these."""

    fast_calls: int
    slow_calls: int
    fast_messages: int
    slow_messages: int


class Group:
    """The ranks of a job, seen from one of them. `hocket.init` makes one; so do `subgroup` and `split`.

    Every rank must make the same calls in the same order. A call that differs between ranks raises MismatchError on all
    of them; a rank that dies or leaves raises PeerLost; a deadline that passes raises CollectiveTimeout. The first such
    error breaks the group: later calls raise GroupBroken, which carries it. Bad arguments raise ValueError or TypeError
    before anything is sent, and leave the group as it was.

    Arrays are NumPy's (ml_dtypes' bfloat16 too) or anything with DLPack on the CPU, such as torch tensors; the same
    kind comes back. Dtypes: bool, all integers, float16, bfloat16, float32, float64, complex64, complex128.

    All collectives take `timeout` (seconds; the group's by default) and `async_op` (give back a `Work` at once), and
    those that move data take `out` (an array for the result, which may be the input) and `algorithm` (a name from
    `hocket.plans.algorithms`, a function like those there, or a `Plan`, which is proved before it runs; by default the
    fastest that folds in the order of ranks).
    """

    def __init__(self, rank: int, links: Links, timeout: float) -> None:
        self.number = next(_numbers)
        self.rank = rank
        self.size = len(links.fds)
        self._links = links
        self._transports = tuple(links.transports)
        sockets = [-1 if socket is None else socket.fileno() for socket in links.sockets]
        places, crowd = links.places, links.crowd
        ends = Ends(links.fds, links.events, sockets, links.pidfds, places, crowd, links.pipes, links.checked)
        line = timeline()
        trace = line.trace if line else None
        native = Native(rank, ends, trace, self.number)
        links.close_outboxes()
        self._arena = native.arena()
        names = [links.name(r) for r in range(self.size)]
        self._calls = Session(native.endpoint, rank, names, partial(_disconnect, links, native, self._arena))
        self._session = self._calls.core  # for the fast path
        self._messages = Messages(self._calls, trace, self.number)
        if line:
            line.enter(self.number, rank, names)
        self._mail = self._messages.core  # for the fast path
        self._go = Dispatch(self._calls, native, timeout)
        _open.add(self)
        _sessions.add(self._calls)

    @property
    def transports(self) -> tuple[str, ...]:
        """How this rank reaches each rank: "self", "shm" (shared memory), "tcp", "tls" (TCP, encrypted), or "ucx:" and
        the transports that UCX has chosen, such as "ucx:rc_mlx5"; "tcp:4" is four connections."""
        return self._transports

    @property
    def timeout(self) -> float:
        """Seconds for each call that names none of its own. It may be set, for the calls that are made from then on;
        raises ValueError for what is not above zero."""
        return self._go.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._go.timeout = self._go.seconds(float(seconds))

    @property
    def topology(self) -> Topology:
        """How its ranks lie on hosts, and what the links between these carry: what algorithms are chosen by."""
        return self._go.native.topology

    def _tune(self, wire: int) -> None:
        """Learn what a link carries, where it is not known, and what time it is elsewhere. Raises RendezvousError."""
        try:
            wire = wire or measure(self.all_gather, self.topology.crossing)
            align(self, self._links.traces, self.topology.places)
        except BaseException as error:
            self._close(error)
            if isinstance(error, HocketError):
                raise RendezvousError(f"the ranks met, but not for long: {error}") from error
            raise
        self._go.native.topology = replace(self.topology, wire=wire)

    # ---- reductions --------------------------------------------------------------------------------------------------

    @fast_path(ALL_REDUCE)
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
        `hocket.arrays.ops`. All ranks get the same bits, in every run and for every size of the message;
        `order="any"` gives up the last of these for speed.
        """
        key = CacheKey(ALL_REDUCE, x, op, out, 0)
        return self._reduce("all_reduce", x, op, How(out, algorithm, timeout, async_op, order, key))

    def all_reduce_init(
        self, x: Any, op: Operator = "sum", *, out: Any = None, algorithm: Algorithm = None, order: str = "same"
    ) -> Persistent:
        """An all_reduce to be made again and again: each call of what this gives back is one, of what `x` holds then.

        The result is the same array every time: `out`, or a new one. Arguments as for `all_reduce`; nothing is sent
        yet.
        """
        array = adopt(x)
        how, operator = How(out, algorithm, order=order), resolve(op, array.dtype)
        signature = self._go.signature("all_reduce", array.dtype, array.shape, how, None, 0, operator.name)
        return self._go.persistent(Call(signature, how, x, array, array.shape, operator))

    @fast_path(REDUCE)
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
        root = self._go.rank_of(root, "root")
        key = CacheKey(REDUCE, x, op, out, root)
        return self._reduce("reduce", x, op, How(out, algorithm, timeout, async_op, order, key), root=root)

    @fast_path(REDUCE_SCATTER)
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
        parts = split(adopt(x).shape, self.size, sizes)
        key = CacheKey(REDUCE_SCATTER, x, op, out, 0) if sizes is None else None
        return self._reduce("reduce_scatter", x, op, How(out, algorithm, timeout, async_op, order, key), parts)

    @fast_path(SCAN)
    def scan(
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
        """The reduction of `x` over the ranks up to this one: rank r gets x₀ op x₁ op ... op xᵣ. As MPI_Scan.

        Arguments as for `all_reduce`, but no "mean". By default it is folded from the first rank on, so that a rank's
        result is, bit for bit, that of the rank before `op` its own, and the last rank's is that of an `all_reduce`.
        """
        key = CacheKey(SCAN, x, op, out, 0)
        return self._reduce("scan", x, op, How(out, algorithm, timeout, async_op, order, key))

    @fast_path(EXSCAN)
    def exscan(
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
        """The reduction of `x` over the ranks before this one: x₀ op ... op xᵣ₋₁, such as where this rank's part of
        something begins. As `scan`; the first rank, which has none before it, gets None, and its `out` is not touched.
        """
        key = CacheKey(EXSCAN, x, op, out, 0)
        return self._reduce("exscan", x, op, How(out, algorithm, timeout, async_op, order, key))

    def _reduce(self, name: str, x: Any, op: Operator, how: How, parts: Parts | None = None, root: int = 0) -> Any:
        array = adopt(x)
        operator = resolve(op, array.dtype)
        scans = name in ("scan", "exscan")
        if scans and operator.mean:
            raise ValueError(f'there is no {name} with op "mean": give "sum", and divide by the number of ranks in it')
        # 0 or 1 also where there is nothing to combine
        if (scans or self.size == 1) and operator.name in ("land", "lor", "lxor"):
            array, how = np.asarray(array != 0, array.dtype), how._replace(key=None)
        signature = self._go.signature(name, array.dtype, array.shape, how, parts and parts.blocks, root, operator.name)
        shape = array.shape if parts is None else parts.shape(self.rank)
        return self._go.do(Call(signature, how, x, array, shape if self._go.gets(signature) else None, operator))

    # ---- movement ----------------------------------------------------------------------------------------------------

    @fast_path(BROADCAST)
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

        Off the root, `x` only tells the shape, dtype and kind that are expected; it may be None.
        """
        root = self._go.rank_of(root, "root")
        how = How(out, algorithm, timeout, async_op, key=CacheKey(BROADCAST, x, None, out, root))
        pattern = out if x is None else x
        if self.rank == root and x is None:
            raise TypeError("the root must give the array that is broadcast")
        if pattern is None:
            return self._go.learn("broadcast", root, None, how)
        array = adopt(pattern)
        note = tell("broadcast", array.dtype, array.shape)
        signature = self._go.signature("broadcast", array.dtype, array.shape, how, None, root, note=note)
        return self._go.do(Call(signature, how, pattern, array if self.rank == root else None, array.shape))

    @fast_path(SCATTER)
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
        root = self._go.rank_of(root, "root")
        key = CacheKey(SCATTER, x, None, out, root) if sizes is None else None
        how = How(out, algorithm, timeout, async_op, key=key)
        if self.rank != root:
            return self._go.learn("scatter", root, sizes, how)
        if x is None:
            raise TypeError("the root must give the array that is scattered")
        array = adopt(x)
        parts = split(array.shape, self.size, sizes)
        note = tell("scatter", array.dtype, array.shape, None if sizes is None else parts.rows)
        signature = self._go.signature("scatter", array.dtype, array.shape, how, parts.blocks, root, note=note)
        return self._go.do(Call(signature, how, x, array, parts.shape(root)))

    @fast_path(ALL_GATHER)
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
        key = CacheKey(ALL_GATHER, x, None, out, 0) if sizes is None else None
        return self._gather("all_gather", x, 0, sizes, How(out, algorithm, timeout, async_op, key=key))

    @fast_path(GATHER)
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
        root = self._go.rank_of(root, "root")
        key = CacheKey(GATHER, x, None, out, root) if sizes is None else None
        return self._gather("gather", x, root, sizes, How(out, algorithm, timeout, async_op, key=key))

    def _gather(self, name: str, x: Any, root: int, sizes: Sequence[int] | None, how: How) -> Any:
        array = adopt(x)
        parts = join(array.shape, self.rank, self.size, sizes)
        each = array.shape if sizes is None else None
        signature = self._go.signature(name, array.dtype, parts.joined, how, parts.blocks, root, each=each)
        return self._go.do(Call(signature, how, x, array, parts.joined if self._go.gets(signature) else None))

    @fast_path(ALL_TO_ALL)
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
        rank r; what each rank sends may differ, and how much will come is exchanged first. With `sizes`, an
        algorithm that needs equal parts is a ValueError: `bruck`, over four ranks or more.
        """
        array = adopt(x)
        key = CacheKey(ALL_TO_ALL, x, None, out, 0) if sizes is None else None
        how = How(out, algorithm, timeout, async_op, key=key)
        parts = split(array.shape, self.size, sizes)
        signature = self._go.signature("all_to_all", array.dtype, array.shape, how, parts.blocks)
        if sizes is None:
            return self._go.do(Call(signature, how, x, array, array.shape))
        deadline = self._go.deadline(how)
        if algorithm is not None:  # which may need equal parts: that is found before anything is sent
            self._go.plan(Call(signature, how, x, array, None), deadline)
        rows = np.asarray(parts.rows, np.int64)
        ask = Signature("all_to_all", rows.dtype, rows.shape, within=signature.text)

        def call() -> Any:
            coming = self._go.do_inside(Call(ask, How(), None, rows, rows.shape), deadline)
            shape = (int(coming.sum()), *parts.row)
            received = tuple(int(n) * math.prod(parts.row) for n in coming)
            return self._go.do_inside(Call(signature, how, x, array, shape, received=received), deadline)

        return self._calls.do(call, signature.text, deadline.left(), async_op)

    @fast_path(BARRIER)
    def barrier(self, *, timeout: float | None = None, async_op: bool = False) -> Any:
        """Returns once every rank has called it."""
        how = How(None, None, timeout, async_op, key=CacheKey(BARRIER, None, None, None, 0))
        return self._go.do(Call(self._go.signature("barrier", np.dtype(np.uint8), (0,), how), how, None, None, None))

    # ---- from one rank to another ------------------------------------------------------------------------------------

    @fast_path(SEND)
    def send(self, x: Any, dst: int, *, tag: int = 0, timeout: float | None = None, async_op: bool = False) -> Any:
        """Send `x` to rank `dst`, which receives it with the same `tag`.

        Returns when `x` may be changed again: for a short message at once, for a long one when it is being received.
        Messages of one tag arrive in the order in which they were sent.

        What nobody receives yet is kept by its receiver, up to 64 MiB and 65536 messages of each source; what is sent
        after that waits, here, until some of it is received. Of messages that are not done, a group has up to 65536
        sends, beyond which the next one waits, with `async_op` too, and as many receives, beyond which HocketError is
        raised.
        """
        dst = self._go.rank_of(dst, "dst")
        self._calls.require_usable(inside=True)
        return self._messages.send(x, dst, _integer(tag, "tag"), self._go.seconds(timeout), async_op)

    @fast_path(RECV)
    def recv(
        self,
        src: int | None = None,
        *,
        out: Any = None,
        tag: int = 0,
        timeout: float | None = None,
        async_op: bool = False,
    ) -> Any:
        """The message that rank `src` (None: any) sent with `tag`, in `out` or in a new array of its dtype and shape.

        Raises MismatchError when `out` has another dtype or shape than the message, which is lost then;
        CollectiveTimeout, which tells of other messages that nobody has received, when it does not come in time; the
        message is given up then. With `async_op`, the `source` of the `Work` is the rank that it came from.
        """
        if src is not None:
            src = self._go.rank_of(src, "src")
        self._calls.require_usable(inside=True)
        source = ANY if src is None else src
        return self._messages.receive(source, out, _integer(tag, "tag"), self._go.seconds(timeout), async_op)

    # ---- smaller groups ----------------------------------------------------------------------------------------------

    def subgroup(self, ranks: Sequence[int]) -> Group | None:
        """A new group of `ranks` (of this group), which get the ranks 0, 1, ... there, in the order given.

        Every rank of this group calls it, with the same `ranks`; those that are not among them get None. The new group
        works apart from this one and must be closed on its own.
        """
        members = [self._go.rank_of(rank, "a member") for rank in ranks]
        if len(set(members)) != len(members) or not members:
            raise ValueError(f"ranks {members} are no group: each member once, and at least one")
        if self.rank not in members:
            return self._form(f"subgroup({members})", None, 0)
        return self._form(f"subgroup({members})", 0, members.index(self.rank))

    def split(self, color: int | None, key: int = 0) -> Group | None:
        """New groups, one per `color`, each of the ranks that gave that colour, in the order of (`key`, rank).

        Every rank of this group calls it; those whose colour is None get None. As in MPI_Comm_split.
        """
        return self._form("split", None if color is None else _integer(color, "color"), _integer(key, "key"))

    def _form(self, within: str, color: int | None, key: int) -> Group | None:
        """All of it in one turn, so that every rank forms its groups in one order."""
        deadline = Deadline(self.timeout)

        def gather(row: Array) -> Array:
            shape = (self.size, row.size)
            signature = Signature("all_gather", row.dtype, shape, within=within)
            rows: Array = self._go.do_inside(Call(signature, How(), row, row[None], shape), deadline)
            return rows

        def look(waited_for: list[int]) -> None:
            self._calls.look(waited_for[0], within, deadline)

        def call() -> Group | None:
            part = form(self._links, gather, color, key)
            if part is None:
                return None
            size = len(part.members)
            link = partial(meet_part, part, self._links, deadline=deadline, look=look)
            return assemble(part.rank, size, self.timeout, link, self.topology.wire)

        return cast("Group | None", self._calls.do(call, within, deadline.left(), False))

    # ---- memory and life ---------------------------------------------------------------------------------------------

    def empty(self, shape: int | Sequence[int], dtype: npt.DTypeLike = "float32") -> Array:
        """A new array of `shape` and `dtype`, its contents undefined, in memory that all ranks of the group can read.

        Collectives move what lies there without a copy in between. It is an array like any other: each rank has as many
        as it likes, of whatever shapes, and its memory is used anew when the last view of it is gone. Raises
        MemoryError when the arena, as large as the machine's memory, is full.

        After an error no other rank can reach it any more. In a forked child it is a copy, which the parent does not
        see; what the parent writes later the child may see or not.
        """
        self._calls.require_usable(inside=True)
        return self._arena.empty(shape, dtype)

    def statistics(self) -> Statistics:
        """How many calls and messages this rank has begun, by the path that they took."""
        calls, mail = self._session, self._mail
        return Statistics(calls.fast, calls.slow, mail.fast, mail.slow)

    def metrics(self) -> Metrics:
        """What the calls and messages of this rank have cost so far, and which errors they raised. Always counted; a
        subgroup counts on its own, and a group that is closed keeps what it has counted."""
        return collect(self._go.native, self._mail, self._calls, self._transports)

    def close(self) -> None:
        """Leave the group. Waits for the asynchronous calls in flight; a blocking call that another thread is in ends
        with GroupBroken, and a rank that still waits for this one gets PeerLost. A second call does nothing.

        A group that is dropped leaves too, when it is collected, without waiting for calls. Between hosts either may
        take up to a second, in which what is on its way arrives."""
        self._close(None)

    def _close(self, error: BaseException | None, *, at_exit: bool = False) -> None:
        if error is None:
            self._calls.require_outside("a call of close()")
        if not self._session.forked:
            self._messages.close(finish=error is None)
        self._calls.leave(error, at_exit=at_exit)
        _open.discard(self)
        _write_timeline()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._close(error)

    def __repr__(self) -> str:
        return f"<Group rank {self.rank} of {self.size}>"


def init(
    timeout: float | None = None,
    *,
    rank: int | None = None,
    size: int | None = None,
    rendezvous: str | TorchStore | None = None,
    peers: Sequence[str | Sequence[str]] | None = None,
    secret: str | None = None,
    integrity: bool | None = None,
) -> Group:
    """Meet the other ranks of the job and form the group of them all.

    The job is told by the variables of `hocket run`, torchrun, mpirun (Open MPI, MPICH) or srun; with none of them set
    this is a world of one, in which every collective works. `timeout`, in seconds, is for the meeting and for every
    call that names none of its own; by default HOCKET_TIMEOUT, or 30.

    Ranks of several hosts meet at `rendezvous`, "tcp://host:port", where rank 0 listens, or "file:///folder", a new one
    for each job, which all of them see, or in a store of torch.distributed's (TCPStore, FileStore, HashStore,
    PrefixStore, or an object with their set, get, wait, add and check), which does not need hocket.torch; `rank` and
    `size` are their places, and `secret` is a text that all of them know and nobody else. With `integrity` all that
    goes between hosts carries a CRC32C, and a byte that changed on its way is an error; all ranks must agree on it.
    What is not given is read from RANK, WORLD_SIZE, HOCKET_RENDEZVOUS, HOCKET_SECRET and HOCKET_INTEGRITY.

    Or each rank has a URL of its own, and nothing else is needed: `peers` has one for each rank, or a list of them,
    the same on all ranks. "tcp://host:port" is where that rank listens for ranks of any host, "rdma://host:port" the
    same where they then talk through UCX, "ipc://name" a Unix socket of that name, for ranks of this user on its host.
    Which are on one host is found out, and these share memory.

    Raises RendezvousError, and TypeError and ValueError for arguments that make no sense.
    """
    if peers is not None and rendezvous is not None:
        raise ValueError("give rendezvous or peers, not both: the ranks meet at rank 0's URL")
    given, foreign = Given(rank, size, secret, integrity), None
    if peers is not None:
        config = Config.among(peers, given)
    elif rendezvous is None or isinstance(rendezvous, str):
        config = Config.at(rendezvous, given)
    else:
        foreign, config = ForeignStore(rendezvous), Config.in_store(given)
    if config.launcher == HOCKET_RUN:
        aftermath.install()
    seconds = config.timeout if timeout is None else timeout
    if not seconds > 0:
        raise ValueError(f"timeout is a number of seconds above zero, not {timeout}")
    return assemble(config.rank, config.size, seconds, lambda fd: meet(config, fd, seconds, foreign))


def _disconnect(links: Links, native: Native, arena: Arena) -> None:
    """Close all descriptors of a group that was left, but for the one of the arena while arrays lie there."""
    links.close()
    if arena.idle:
        native.endpoint.disown()


def assemble(rank: int, size: int, timeout: float, meet: Callable[[int], Links], wire: int = 0) -> Group:
    """The group of the ranks that `meet` links, each with an outbox of its own. `wire` is what is known of its links
    (`hocket.tuning.wire`), if anything is."""
    prometheus.serve(lambda: list(_open))
    links = assembled(size, meet)
    try:
        group = Group(rank, links, timeout)
    except BaseException:
        links.close()
        raise
    if group.topology.hosts > 1:
        group._tune(wire or links.wire)
    return group


def assembled(size: int, meet: Callable[[int], Links]) -> Links:
    """What `meet` makes of a new outbox."""
    with explained("this rank has no memory to share"):
        fd = create_outbox(size)
    try:
        return meet(fd)
    finally:
        os.close(fd)


def _integer(value: int, what: str) -> int:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        raise TypeError(f"{what} is an integer of 64 bits, not {value!r}")
    return int(value)


_numbers = itertools.count()  # of the groups that this process has been in, by which metrics tell them apart
_open: weakref.WeakSet[Group] = weakref.WeakSet()
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()  # of groups that were dropped with calls in flight, too
os.register_at_fork(after_in_child=_open.clear)  # a rank is one process: its children do not leave in its name


@atexit.register
def _close_all() -> None:
    """In a program that ends by an error nothing is waited for: the other ranks are told of the error."""
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_exc", getattr(sys, "last_value", None))
    for group in list(_open):
        group._close(error, at_exit=True)
    for session in list(_sessions):
        session.leave(error, at_exit=True)
    _write_timeline()


def _write_timeline() -> None:
    """Once no group is open any more: it is of all of them."""
    line = timeline()
    if line is not None and not line.is_written and not _open:
        line.write()
