"""The group: a rank among its peers, and its life from the meeting to the end. The calls that they make together are a
page for each family."""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType

import numpy.typing as npt

from ..calls.dispatch import Array, Dispatch
from ..calls.executor import end_engines
from ..calls.messages import Messages
from ..calls.metrics import Metrics, Statistics, collect
from ..calls.objects import Objects
from ..calls.session import Session
from ..config import HOCKET_RUN, Config, Given, job_protocol
from ..deadline import Deadline
from ..errors import HocketError, RendezvousError
from ..launch import aftermath
from ..observe import prometheus
from ..observe.flight import write as write_flight
from ..observe.timeline import Timeline, align, timeline
from ..rendezvous.foreign import ForeignStore, TorchStore
from ..rendezvous.join import announce
from ..rendezvous.join import join as meet
from ..rendezvous.links import Links
from ..rendezvous.porch import Porch
from ..run.arena import Arena
from ..run.native import Ends, Native
from ..tuning.profile import Profile
from ..tuning.topology import Topology
from ..tuning.wire import measure
from .growth import enter
from .letters import Letters
from .membership import Membership, assembled
from .objects import ObjectCalls
from .persistent import PersistentCalls


class Group(PersistentCalls, Letters, ObjectCalls, Membership):
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
        super().__init__()
        self.number = next(_numbers)
        self._rank, self._size = rank, len(links.fds)
        self._links = links
        self._transports = tuple(links.transports)
        sockets = [-1 if socket is None else socket.fileno() for socket in links.sockets]
        held = (links.fds, links.events, sockets, links.pidfds)
        ends = Ends(*held, links.places, links.crowd, links.pipes, links.checked, links.life, links.domains)
        line = timeline()
        native = Native(rank, ends, line.trace if line else None, self.number)
        try:
            self._begin(native, line, timeout, protect)
        except BaseException:
            native.endpoint.disconnect(for_all=False)  # before what its thread reads from is closed
            raise

    def _begin(self, native: Native, line: Timeline | None, timeout: float, protect: bool) -> None:
        rank, links = self._rank, self._links
        if (protocol := job_protocol()) == "staged":
            native.endpoint.stage_all()
        elif protocol == "offered":
            native.endpoint.offer_all()
        native.topology = replace(native.topology, profile=_profile(links.profile))
        links.close_outboxes()
        near = [pid if place == links.places[rank] else 0 for pid, place in zip(links.pids, links.places, strict=True)]
        native.endpoint.sign(links.key, links.hosts[rank], near)
        self._arena = native.arena()
        names = [links.name(r) for r in range(self.size)]
        self._calls = Session(native.endpoint, rank, names, partial(_disconnect, links, native, self._arena))
        _linked.add(links)
        self._calls.on_break = partial(write_flight, native.endpoint, rank)
        self._session = self._calls.core  # for the fast path
        self._messages = Messages(self._calls, line.trace if line else None, self.number)
        if line:
            line.enter(self.number, rank, names)
        self._mail = self._messages.core  # for the fast path
        self._go = Dispatch(self._calls, native, timeout, protect)
        self._objects = Objects(self._go, self._messages)
        _open.add(self)
        _sessions.add(self._calls)

    @property
    def transports(self) -> tuple[str, ...]:
        """How this rank reaches each rank: "self", "shm" (shared memory), "tcp", "tls" (TCP, encrypted), or "ucx:" and
        the transports that UCX has chosen, such as "ucx:rc_mlx5"; "tcp:4" is four connections. One
        that goes by another way since the first has broken is "fallback"."""
        lost = self._links.ways_lost
        return tuple("fallback" if lost(rank) else name for rank, name in enumerate(self._transports))

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

    def _tune(self, wire: int, *, calls: bool) -> None:
        """Learn what a link carries, where it is not known, and what time it is elsewhere. Raises RendezvousError."""
        try:
            if calls:
                wire = wire or measure(self.all_gather, self.topology.crossing)
                align(self, self._links.traces, self.topology.places)
        except BaseException as error:
            self._close(error)
            if isinstance(error, HocketError):
                raise RendezvousError(f"the ranks met, but not for long: {error}") from error
            raise
        self._go.native.topology = replace(self.topology, wire=wire)

    def _made(self, rank: int, links: Links, wire: int, *, calls: bool = True) -> Group:
        links.profile = self._links.profile
        return formed(rank, links, self.timeout, wire, self.protect, calls=calls)

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
        return collect(self._go.native, self._mail, self._calls, self._transports, self._links.ways_lost)

    def close(self) -> None:
        """Leave the group. Waits for the asynchronous calls in flight; a blocking call that another thread is in ends
        with GroupBroken, and a rank that still waits for this one gets PeerLost. A second call does nothing.

        A group that is dropped leaves too, when it is collected, without waiting for calls. Between hosts either waits
        until what is on its way has arrived: up to a second in which none of it does, and ten in all."""
        self._close(None)

    def _close(self, error: BaseException | None, *, at_exit: bool = False) -> None:
        if error is None:
            self._calls.require_outside("a call of close()")
        if (recovery := self._recovery) is not None:
            recovery.leave(error)
        if not self._session.forked:
            self._messages.close(finish=error is None)
        self._calls.leave(error, at_exit=at_exit)
        if self._porch is not None and self._next is None:
            self._porch.close()
        _open.discard(self)
        _write_timeline()

    def _drop(self) -> None:
        self._calls.drop()
        _open.discard(self)

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

    A rank that its launcher has started again (HOCKET_RESTARTS, set by `hocket run --max-restarts`) joins the others
    instead, as by `join`.

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
    seconds, protects = _started(config, timeout, protect)
    if config.restarts:
        return entered(Porch(config, foreign), seconds, seconds, protects)
    group = assemble(config.rank, config.size, seconds, lambda fd: meet(config, fd, seconds, foreign), protect=protects)
    if config.launcher not in (HOCKET_RUN, "none"):
        announce()
    group._porch = Porch(config, foreign)
    return group


def join(
    timeout: float | None = None,
    *,
    rendezvous: str | TorchStore | None = None,
    secret: str | None = None,
    integrity: bool | None = None,
    protect: bool | None = None,
) -> Group:
    """Join a group that has formed already, as a rank behind the others; it is let in when all of its ranks call
    `group.grow()`, which those do that see `group.pending()`, or that run in `hocket.elastic`.

    The group is found where its ranks met: by the launcher's variables, or at `rendezvous`, with the job's `secret`, as
    for `init`. At tcp://host:port the lowest rank on that host listens, from the group's first `pending()` or `grow()`
    on. `timeout` is in seconds, for this and for every call that names none of its own.

    Raises RendezvousError where no group takes it in before that, or this one does not want to, and says why.
    """
    given, foreign = Given(None, None, secret, integrity), None
    if rendezvous is None or isinstance(rendezvous, str):
        config = Config.newcomer(rendezvous, given)
    else:
        foreign, config = ForeignStore(rendezvous), Config.in_store(replace(given, rank=0, size=2))
    seconds, protects = _started(config, timeout, protect)
    return entered(Porch(config, foreign), seconds, seconds, protects)


def again(group: Group, patience: float) -> Group:
    """Join anew, as a rank that the others have given up, within so many seconds."""
    if group._porch is None:
        raise RendezvousError("this rank cannot join the others anew: their group is none that hocket.init made")
    porch = group._porch.again()
    group.close()
    return entered(porch, patience, group.timeout, group.protect)


def entered(porch: Porch, patience: float, timeout: float, protect: bool) -> Group:
    """The group that takes this process in, which waits at that porch for so many seconds."""
    prometheus.serve(lambda: list(_open))
    group = enter(porch, Deadline(patience), lambda rank, links, wire: formed(rank, links, timeout, wire, protect))
    group._porch = porch
    return group


def _started(config: Config, timeout: float | None, protect: bool | None) -> tuple[float, bool]:
    """The seconds that calls may take, and whether they protect, of a rank that begins."""
    if config.launcher == HOCKET_RUN:
        aftermath.install()
    seconds = config.timeout if timeout is None else timeout
    if not seconds > 0:
        raise ValueError(f"timeout is a number of seconds above zero, not {timeout}")
    return seconds, config.protect if protect is None else protect


def _profile(packed: str) -> Profile | None:
    """The one that all ranks choose by. Raises RendezvousError."""
    try:
        return Profile.unpack(packed) if packed else None
    except ValueError as error:
        raise RendezvousError(f"the profile that rank 0 has told is none: {error}") from error


def _disconnect(links: Links, native: Native, arena: Arena) -> None:
    """Close all descriptors of a group that was left, but for the one of the arena while arrays lie there."""
    links.close()
    _linked.discard(links)
    if arena.idle:
        native.endpoint.disown()


def assemble(
    rank: int, size: int, timeout: float, meet: Callable[[int], Links], wire: int = 0, protect: bool = False
) -> Group:
    """The group of the ranks that `meet` links, each with an outbox of its own. `wire` is what is known of its links
    (`hocket.tuning.wire`), if anything is; `protect` as for `init`."""
    prometheus.serve(lambda: list(_open))
    return formed(rank, assembled(size, meet), timeout, wire, protect)


def formed(rank: int, links: Links, timeout: float, wire: int, protect: bool, *, calls: bool = True) -> Group:
    """The group over these links, which are its own from now on. Its ranks make `calls` to learn what is not known of
    these, or none of them does."""
    try:
        group = Group(rank, links, timeout, protect)
    except BaseException:
        links.close()
        _linked.discard(links)
        raise
    if group.topology.hosts > 1:
        group._tune(wire or links.wire, calls=calls)
    return group


_numbers = itertools.count()  # of the groups that this process has been in, by which metrics tell them apart
_open: weakref.WeakSet[Group] = weakref.WeakSet()
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()  # of groups that were dropped with calls in flight, too
# A group that was dropped is collected as garbage, in any order, and a socket is closed as that finds it: before the
# others were told, and while a thread still reads from its number, which may be another connection's by then. So all
# are held here until their session has parted.
_linked: set[Links] = set()
os.register_at_fork(after_in_child=_open.clear)  # a rank is one process: its children do not leave in its name
os.register_at_fork(after_in_child=_linked.clear)


@atexit.register
def _close_all() -> None:
    """In a program that ends by an error nothing is waited for: the other ranks are told of the error."""
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_exc", getattr(sys, "last_value", None))
    for group in list(_open):
        group._close(error, at_exit=True)
    for session in list(_sessions):
        session.leave(error, at_exit=True)
    end_engines()
    _write_timeline()


def _write_timeline() -> None:
    """Once no group is open any more: it is of all of them."""
    line = timeline()
    if line is not None and not line.is_written and not _open:
        line.write()
