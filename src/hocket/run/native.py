"""The native engine as a runner: one rank's share of a plan, bound to memory and ready to be made."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .._core import Custom, Endpoint, Failure, Meter, Pipe, Prepared, Program, Trace, Traffic, prefer_node
from ..arrays.buffers import Buffers
from ..arrays.ops import DTYPES, Op
from ..cores import node_here
from ..errors import RendezvousError
from ..plans.lower import NotInPlace, breadth, lower, only_round
from ..plans.plan import Plan
from ..plans.program import NOTHING, Rows, Share
from ..tuning.choose import segment_bytes, slots_bytes, writers
from ..tuning.topology import ANY_HOST, Topology, this_host
from .arena import Arena
from .signature import Signature

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Key: TypeAlias = "tuple[Signature, Plan, tuple[int, ...] | None, bool, Op | None]"

MOST_PROGRAMS = 256  # that are kept, and the last used of them
MOST_SHARES = 64  # the same


class Ends(NamedTuple):
    """What one rank holds of the others, as descriptors; every list is indexed by rank, -1 where there is none.

    `fds` are the outboxes (`create_outbox`) of the ranks of this host, and `events` their eventfds, which are needed at
    the beginning only; `sockets` and `pidfds` tell of the ranks' deaths for as long as they are open, and over sockets
    to other hosts goes all there is. `places[r]` is the number of rank r's host, and `domains[r]`, if they are known,
    that of its cache domain; `crowd` ranks share the cores of this machine. pipes[r], where there is one, is how bytes
    go to and from there, else as they are over sockets[r]; `checked`: all that goes between hosts has checksums. Ranks
    of other hosts that are silent for `life` seconds are given up.
    """

    fds: list[int]
    events: list[int]
    sockets: list[int]
    pidfds: list[int]
    places: list[int]
    crowd: int
    pipes: list[Pipe | None]
    checked: bool
    life: float
    domains: list[int]


class Native:
    """One rank's end of a group, and the programs that it has bound. `ends` is not owned. Their calls are kept in
    `trace`, if that is there, as those of the process's group of that number.

    Calls are prepared on their callers' threads, several at once: two may bind the same program, and one of them is
    kept. (In a dict, which bears that while keys are compared; an OrderedDict does not, and crashes.) A program runs in
    one call at a time, whoever has the turn.
    """

    def __init__(self, rank: int, ends: Ends, trace: Trace | None = None, group: int = 0) -> None:
        self._traced = trace, group
        self.rank, self.size = rank, len(ends.fds)
        arena = this_host().memory
        self.topology = Topology.of(ends.places, domains=ends.domains)
        self._programs: dict[Key, tuple[Program, int]] = {}  # the last used of them last
        self._lower = lru_cache(MOST_SHARES)(partial(lower, rank=rank))  # a share fits every shape, dtype and operator
        self.traffic = Traffic(self.size)
        self.meters: dict[tuple[str, str], Meter] = {}  # by collective and algorithm
        self._breadth = lru_cache(MOST_SHARES)(breadth)
        self._only_round = lru_cache(MOST_SHARES)(only_round)
        self._lowers_in_place = lru_cache(MOST_PROGRAMS)(partial(_lowers_in_place, self._lower))
        try:  # last: its thread is not to outlive an interrupt in what would follow
            self.endpoint = Endpoint(
                rank,
                ends.fds,
                ends.sockets,
                ends.pidfds,
                ends.events,
                slots_bytes(self.size, self.topology.host),
                arena,
                ends.crowd,
                ends.pipes,
                ends.checked,
                ends.life,
            )
        except Failure as failure:
            raise RendezvousError(f"rank {rank} cannot use the ranks' shared memory: {failure.args[2]}") from None

    def prepare(
        self,
        signature: Signature,
        plan: Plan,
        op: Op | None,
        buffers: Buffers,
        received: tuple[int, ...] | None = None,
    ) -> Prepared:
        """This rank's share of `plan`, which has been proved, in `buffers`: both arrays are C-contiguous; they share
        memory wherever both have a slot of one index, or nowhere.

        `received` are the elements that come from each rank in an all_to_all of uneven sizes.
        """
        inp, out = buffers.inp, buffers.target
        in_place = not buffers.protects and bool(np.may_share_memory(inp, out))
        key = (signature, plan, received, in_place, op)
        bound = self._programs.pop(key, None) or self._bind(*key)
        self._programs[key] = bound
        while len(self._programs) > MOST_PROGRAMS:
            with suppress(KeyError, RuntimeError, StopIteration):  # another thread has changed it meanwhile
                del self._programs[next(iter(self._programs))]
        result, deliver = (buffers.deliver(), None) if buffers.direct else (None, buffers.deliver)
        places = inp.ctypes.data, out.ctypes.data
        return Prepared(*bound, *places, buffers.given, buffers.protects, (inp, out), result, deliver)

    def arena(self) -> Arena:
        """Memory that the other ranks read where it lies."""
        return Arena(self.endpoint.arena, this_host().memory, self.endpoint, self.endpoint.give_back)

    def can_run_in_place(self, plan: Plan, in_place: bool) -> bool:
        """Whether one array may be input and output: so it must be as a plan, `in_place`, and as this rank's share."""
        return in_place and self._lowers_in_place(plan)

    def _bind(
        self, signature: Signature, plan: Plan, received: tuple[int, ...] | None, in_place: bool, op: Op | None
    ) -> tuple[Program, int]:
        itemsize = signature.dtype.itemsize
        # A span is one message, which must not be cut: what begins in the middle of it would be cut elsewhere.
        spans = max(signature.nbytes, 1) <= self._segment(plan, 1, signature.nbytes, spans=True)
        share = self._lower(plan, in_place=in_place, spans=spans)
        # Of both ranks or of neither, in place or not. A function of the caller's takes no turns, and calls are long.
        comes_home = any(send.home != NOTHING for send in share.sends)
        custom = _custom(op, signature.dtype)
        lent = comes_home and not spans and custom is None
        inp = out = signature.chunk_sizes(plan.chunks, self.size)
        if received is not None:
            coming = Signature(signature.collective, signature.dtype, (sum(received),), sizes=received)
            out = coming.chunk_sizes(plan.chunks, self.size)
        rows = share.bind(inp, out, itemsize)
        # That every rank has heard of every other is what the call board tells: a barrier of one round is no more.
        signals = plan.collective == "barrier" and sum(1 for _ in plan.fronts()) > 1
        single = self._only_round(plan)
        program = Program(
            rows.sends,
            rows.receives,
            *self._strangers(rows, signals),
            segment=self._segment(plan, 1 if spans else itemsize, signature.nbytes, spans=spans, lent=lent),
            tmp_bytes=rows.tmp_bytes,
            itemsize=itemsize,
            divisor=self.size if op and op.mean else 1,
            signals=signals,
            exposed=rows.exposed,
            writers=writers(self.topology, self.rank, single.receivers if single else ()),
            dtype=DTYPES.get(signature.dtype, 0),  # of no matter to a custom operator
            op=op.code if op else -1,
            custom=custom,
            text=f"{signature.said_of(plan)}\n{signature.note}",
            meter=self.meters.setdefault((plan.collective, plan.algorithm), Meter(self.traffic)),
            bytes=signature.nbytes,
            trace=self._traced[0],
            group=self._traced[1],
        )
        return program, signature.fingerprint(plan)

    def _segment(self, plan: Plan, itemsize: int, nbytes: int, *, spans: bool, lent: bool = False) -> int:
        """The same on every rank, as the plan, its vector, operator and the topology are. It cuts no element:
        ValueError where it must."""
        host, broad, single = self.topology.host, self._breadth(plan, spans=spans), None
        if alone := self.topology.hosts == 1 and self.size <= host.cores:  # a core each
            single = self._only_round(plan)
        exchange = single is not None and single.both
        rooted = nbytes if single is not None and not exchange else 0
        copied = single is not None and not (single.folded or single.part)
        most = segment_bytes(
            self.size, host, broad, exchange=exchange, rooted=rooted, copied=copied, lent=lent and alone
        )
        unit = math.lcm(64, max(itemsize, 1))
        if unit > most and most % max(itemsize, 1):
            raise ValueError(f"elements of {itemsize} bytes do not fit into messages of {most}: give smaller rows")
        return most if most % max(itemsize, 1) == 0 else most // unit * unit

    def _strangers(self, rows: Rows, signals: bool) -> tuple[list[int], list[int]]:
        """The ranks that this one hears nothing from, and those that it tells nothing."""
        others = set(range(self.size)) - {self.rank}
        return sorted(others - rows.heard(signals)), sorted(others - rows.told(signals))


def create_outbox(size: int) -> int:
    """A new memory file that fits one rank of a group of `size`, wherever the others turn out to be; the caller closes
    it. Gone with its last user. Of several NUMA nodes, its pages are those of the one that this process is bound to."""
    slots = max(slots_bytes(size, host) for host in (this_host(), ANY_HOST))
    fd = os.memfd_create("hocket", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, nbytes := Endpoint.outbox_bytes(size, slots, this_host().memory))
        if (node := node_here()) >= 0:
            prefer_node(fd, nbytes, node)  # where that is forbidden, a page lies where it is first touched
    except BaseException:
        os.close(fd)
        raise
    return fd


def _lowers_in_place(lowered: Callable[..., Share], plan: Plan) -> bool:
    try:
        lowered(plan, in_place=True, spans=True)
    except NotInPlace:
        return False
    return True


def _custom(op: Op | None, dtype: np.dtype[Any]) -> Custom | None:
    """A custom operator as the engine calls it."""
    if op is None or op.function is None:
        return None
    function = op.function
    is_ufunc = isinstance(function, np.ufunc)
    # NumPy calls its own loops without Python's lock, too: only that of integer powers raises anything.
    is_numpys = is_ufunc and getattr(np, function.__name__, None) is function
    return Custom(function, dtype, is_ufunc, not is_numpys or (function is np.power and dtype.kind in "iu"))
