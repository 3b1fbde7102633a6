"""The native engine as a runner: one rank's share of a plan, between real processes over shared memory."""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Any, TypeAlias

import numpy as np

from .. import _core
from ..arrays.ops import DTYPES, Op
from ..plans.lower import NotInPlace, lower
from ..plans.plan import Plan
from ..plans.prove import proved
from ..tuning.choose import segment_bytes, slots_bytes
from ..tuning.topology import this_host
from .arena import Arena
from .signature import Call

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


Failure = _core.Failure
Persistent = _core.Persistent


class Native:
    """One rank's end of the shared memory of a group, and the programs that it has bound.

    `fds` are the ranks' outboxes (`create_outbox`), `sockets` stay connected to them; neither is owned.
    """

    def __init__(self, rank: int, fds: list[int], sockets: list[int]) -> None:
        self.rank, self.size = rank, len(fds)
        self.core = _core.SharedMemory(rank, fds, sockets, slots_bytes(), this_host().memory)
        self._segment = segment_bytes()
        self.calls = _core.Calls(self.core)
        self._programs: OrderedDict[tuple[Any, ...], tuple[_core.Program, int]] = OrderedDict()
        self._in_place: dict[Plan, bool] = {}

    def run(
        self,
        call: Call,
        plan: Plan,
        op: Op | None,
        inp: Array,
        out: Array,
        seconds: float,
        received: tuple[int, ...] | None = None,
    ) -> tuple[_core.Program, int]:
        """Execute this rank's share of `plan`. Both arrays are C-contiguous; they share memory wherever both have a
        slot of one index, or nowhere. Returns what was executed, and its fingerprint.

        `received` are the elements that come from each rank in an all_to_all of uneven sizes.
        """
        program, fingerprint = bound = self.bound(call, plan, op, inp, out, received)
        self.calls.run(program, fingerprint, inp.ctypes.data, out.ctypes.data, seconds)
        return bound

    def bound(
        self,
        call: Call,
        plan: Plan,
        op: Op | None,
        inp: Array,
        out: Array,
        received: tuple[int, ...] | None = None,
    ) -> tuple[_core.Program, int]:
        """The program of a call, and its fingerprint."""
        in_place = np.may_share_memory(inp, out)
        key = (call, plan, received, in_place, op)
        if key not in self._programs:
            while len(self._programs) >= 256:
                self._programs.popitem(last=False)
            self._programs[key] = self._bind(call, plan, op, in_place, received)
        return self._programs[key]

    def arena(self) -> Arena:
        """Memory that the other ranks read where it lies."""
        return Arena(self.core.arena, this_host().memory, self.core)

    def learn(self, peer: int, expected: str, seconds: float) -> str:
        """The note of `peer` in the next call, which this rank takes for `expected`, when the peer has entered that."""
        return self.core.learn(peer, expected, seconds).partition("\n")[2]

    def can_run_in_place(self, plan: Plan) -> bool:
        """Whether `run` takes one array as input and output. Raises PlanError for a plan that is wrong."""
        if plan not in self._in_place:
            facts = proved(plan.collective, plan, plan.size, plan.root).facts
            self._in_place[plan] = facts.in_place and _lowers_in_place(plan, self.rank)
        return self._in_place[plan]

    def _bind(
        self, call: Call, plan: Plan, op: Op | None, in_place: bool, received: tuple[int, ...] | None
    ) -> tuple[_core.Program, int]:
        itemsize = call.dtype.itemsize
        whole = max(call.nbytes, 1)
        share = lower(plan, self.rank, in_place=in_place, spans=whole <= self._segment)
        inp = out = call.chunk_sizes(plan.chunks, self.size)
        if received is not None:
            out = Call(call.collective, call.dtype, sum(received), sizes=received).chunk_sizes(plan.chunks, self.size)
        sends, receives, tmp_bytes = rows = share.bind(inp, out, itemsize)
        # That every rank has heard of every other is what the call board tells: a barrier of one round is no more.
        signals = plan.collective == "barrier" and sum(1 for _ in plan.fronts()) > 1
        others = set(range(self.size)) - {self.rank}
        program = _core.Program(
            sends,
            receives,
            sorted(others - rows.heard(signals)),
            sorted(others - rows.told(signals)),
            segment=self._segment,
            tmp_bytes=tmp_bytes,
            itemsize=itemsize,
            divisor=self.size if op and op.mean else 1,
            signals=signals,
            dtype=DTYPES[call.dtype],
            op=op.code if op else -1,
            custom=_custom(op, call.dtype),
            text=f"{call.text}\n{call.note}",
        )
        return program, call.fingerprint(plan)


def create_outbox(size: int) -> int:
    """A new memory file that fits one rank of a group of `size`; the caller closes it. Gone with its last user."""
    fd = os.memfd_create("hocket", os.MFD_CLOEXEC)
    os.ftruncate(fd, _core.SharedMemory.outbox_bytes(size, slots_bytes(), this_host().memory))
    return fd


def _lowers_in_place(plan: Plan, rank: int) -> bool:
    try:
        lower(plan, rank, in_place=True)
    except NotInPlace:
        return False
    return True


def _custom(op: Op | None, dtype: np.dtype[Any]) -> _core.Custom | None:
    """A custom operator as the engine calls it."""
    if op is None or op.function is None:
        return None
    function = op.function
    is_ufunc = isinstance(function, np.ufunc)
    # NumPy calls its own loops without Python's lock, too: only that of integer powers raises anything.
    is_numpys = is_ufunc and getattr(np, function.__name__, None) is function
    return _core.Custom(function, dtype, is_ufunc, not is_numpys or (function is np.power and dtype.kind in "iu"))
