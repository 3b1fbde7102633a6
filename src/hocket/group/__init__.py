"""The group: a rank among its peers, and its life from the meeting to the end. The calls that they make together are a
page for each family."""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import NamedTuple, cast

import numpy.typing as npt

from ..calls.dispatch import Array, Call, Dispatch, How
from ..calls.messages import Messages
from ..calls.metrics import Metrics, collect
from ..calls.objects import Objects
from ..calls.session import Session
from ..config import HOCKET_RUN, Config, Given
from ..deadline import Deadline
from ..errors import HocketError, RendezvousError
from ..launch import aftermath
from ..observe import prometheus
from ..observe.flight import write as write_flight
from ..observe.timeline import align, timeline
from ..rendezvous.foreign import ForeignStore, TorchStore
from ..rendezvous.join import join as meet
from ..rendezvous.links import Links
from ..rendezvous.sockets import explained
from ..rendezvous.subgroups import form
from ..rendezvous.subgroups import meet as meet_part
from ..run.arena import Arena
from ..run.native import Ends, Native, create_outbox
from ..run.signature import Signature
from ..tuning.topology import Topology
from ..tuning.wire import measure
from .letters import Letters
from .member import integer
from .objects import ObjectCalls
from .persistent import PersistentCalls
from .recovery import Loss, Recovery


class Statistics(NamedTuple):
    """What one rank of a group has begun. A call or a message is fast where it looked like an earlier one, and went
    through no Python; the first of its kind is not. A call that is several in one (a broadcast to a rank that does not
    know what it will get, an uneven all_to_all, a subgroup) counts as these."""

    fast_calls: int
    slow_calls: int
    fast_messages: int
    slow_messages: int


class Group(PersistentCalls, Letters, ObjectCalls):
    """The ranks of a job, seen from one of them. `hocket.init` makes one; so do `subgroup` and `split`.

    Every rank must make the same calls in the same order. A call that differs between ranks raises MismatchError on all
    of them; a rank that dies or leaves raises PeerLost; a deadline that passes raises CollectiveTimeout. The first such
    error breaks the group: later calls raise GroupBroken, which carries it. Bad arguments raise ValueError or TypeError
    before anything is sent, and leave the group as it was.

    Arrays are NumPy's (ml_dtypes' bfloat16 too) or anything with DLPack on the CPU, such as torch tensors; the same
    kind comes back. Dtypes: bool, all integers, float16, bfloat16, float32, float64, complex64, complex128.

    All collectives take `timeout` (seconds; the group's by default) and `async_op` (give back a `Work` at once), and
    those that move data take `out` (an array for the result, which may be the input), `algorithm` (a name from
    `hocket.plans.algorithms`, a function like those there, or a `Plan`, which is proved before it runs; by default the
    fastest that folds in the order of ranks) and `protect` (by default the group's).

    A call that fails leaves its inputs as they were. Its `out`, or the array that it is called on in place, may hold a
    part of the result, and `error.out_touched` tells whether; with `protect=True` it is as it was, too, for the price
    of a copy.

    Threads of a rank may share a group: their calls take turns. But it is by the order in which they come that ranks
    know which call is which: threads whose calls come in another order on another rank make a mismatch, or, where the
    calls look alike, exchange each other's data. Give each thread a group of its own (`subgroup`), or messages with a
    tag of its own.
    """

    def __init__(self, rank: int, links: Links, timeout: float, protect: bool = False) -> None:
        self.number = next(_numbers)
        self._rank, self._size = rank, len(links.fds)
        self._links = links
        self._transports = tuple(links.transports)
        sockets = [-1 if socket is None else socket.fileno() for socket in links.sockets]
        held = (links.fds, links.events, sockets, links.pidfds)
        ends = Ends(*held, links.places, links.crowd, links.pipes, links.checked, links.life)
        line = timeline()
        trace = line.trace if line else None
        native = Native(rank, ends, trace, self.number)
        links.close_outboxes()
        near = [pid if place == links.places[rank] else 0 for pid, place in zip(links.pids, links.places, strict=True)]
        native.endpoint.sign(links.key, links.hosts[rank], near)
        self._arena = native.arena()
        names = [links.name(r) for r in range(self.size)]
        self._calls = Session(native.endpoint, rank, names, partial(_disconnect, links, native, self._arena))
        self._calls.on_break = partial(write_flight, native.endpoint, rank)
        self._session = self._calls.core  # for the fast path
        self._messages = Messages(self._calls, trace, self.number)
        if line:
            line.enter(self.number, rank, names)
        self._mail = self._messages.core  # for the fast path
        self._go = Dispatch(self._calls, native, timeout, protect)
        self._objects = Objects(self._go, self._messages)
        self._recovering, self._recovery = threading.Lock(), cast("Recovery | None", None)
        self._history: tuple[Loss, ...] = ()
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
    def protect(self) -> bool:
        """Whether calls that do not say so themselves (`protect`) leave their output as it was where they fail."""
        return self._go.protect

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
        return self._form("split", None if color is None else integer(color, "color"), integer(key, "key"))

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
            return assemble(part.rank, size, self.timeout, link, self.topology.wire, self.protect)

        return cast("Group | None", self._calls.do(call, within, deadline.left(), False))

    # ---- after a failure ---------------------------------------------------------------------------------------------

    def recover(self, timeout: float | None = None, *, allow_minority: bool = False) -> Group:
        """A new group of those that are left, after an error has ended this one, which is closed.

        All of them call it; who does not within about two thirds of `timeout` (seconds; the group's by default) is
        taken for lost, as those are which the error names as `lost`. Ranks are renumbered in order; down to a world of
        one. The members are the same on all of them, or it fails on all: whoever is lost in the middle of it is left
        out in another attempt. Arrays of this group's `empty` remain arrays, and are nobody else's any more; subgroups
        recover on their own.

        Of a group of several hosts, a part that may have lost sight of as many ranks as it has goes on only with
        `allow_minority`: those may do so, too. What decides where both are equally many is the lowest rank.

        Raises PeerLost where the others went on without this rank, CollectiveTimeout, RendezvousError, and HocketError
        where nothing has ended this group, or those that are left are too few.
        """
        with self._recovering:
            over = self._calls.conclude()
            if self.rank in over.lost:
                raise over
            self._recovery = self._recovery or Recovery(self._calls.endpoint, self.rank, self._links, over)
            recovery = self._recovery
            links = recovery.links(Deadline(self._go.seconds(timeout)), allow_minority=allow_minority)
            rank, loss = recovery.members.index(self.rank), recovery.loss()
            group = formed(rank, links, self.timeout, self.topology.wire, self.protect)
            try:
                group._history = (*self._history, loss)
                self._close(None)
            except BaseException as error:  # an interrupt: nobody gets the group, and its others are not to wait
                group._close(error)
                raise
            return group

    @property
    def history(self) -> tuple[Loss, ...]:
        """What this group and those that it recovered from have been through."""
        return self._history

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
    protect: bool | None = None,
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

    With `protect`, or HOCKET_PROTECT=1, calls of this rank are made with `protect=True` where they do not say, also
    those of subgroups: one that fails leaves its `out`, or the array that it is called on in place, as it was.

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
    protects = config.protect if protect is None else protect
    return assemble(config.rank, config.size, seconds, lambda fd: meet(config, fd, seconds, foreign), protect=protects)


def _disconnect(links: Links, native: Native, arena: Arena) -> None:
    """Close all descriptors of a group that was left, but for the one of the arena while arrays lie there."""
    links.close()
    if arena.idle:
        native.endpoint.disown()


def assemble(
    rank: int, size: int, timeout: float, meet: Callable[[int], Links], wire: int = 0, protect: bool = False
) -> Group:
    """The group of the ranks that `meet` links, each with an outbox of its own. `wire` is what is known of its links
    (`hocket.tuning.wire`), if anything is; `protect` as for `init`."""
    prometheus.serve(lambda: list(_open))
    return formed(rank, assembled(size, meet), timeout, wire, protect)


def formed(rank: int, links: Links, timeout: float, wire: int, protect: bool) -> Group:
    """The group over these links, which are its own from now on."""
    try:
        group = Group(rank, links, timeout, protect)
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
