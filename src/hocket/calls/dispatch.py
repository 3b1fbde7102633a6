"""From a call's arguments to its execution: what all collectives share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from ..arrays.buffers import Buffers
from ..arrays.ops import DTYPES, Op
from ..arrays.shapes import split
from ..deadline import Deadline
from ..plans.algorithms import name_of
from ..plans.plan import Plan, Steps
from ..plans.prove import proved
from ..run.native import Persistent
from ..run.signature import Call, tell, told
from ..tuning.choose import choose
from .fastpath import Memo
from .session import Caller

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Algorithm: TypeAlias = "str | Plan | Callable[[int], Steps] | None"


class How(NamedTuple):
    """The arguments of a call that say how, not what; and under what it is remembered, if it may be."""

    out: Any = None
    algorithm: Algorithm = None
    timeout: float | None = None
    async_op: bool = False
    order: str = "same"
    memo: Memo | None = None


class Dispatch:
    """The calls of one rank of a group. `timeout` is in seconds, for those that name none of their own."""

    def __init__(self, caller: Caller, timeout: float) -> None:
        self.caller = caller
        self.rank, self.size = caller.rank, caller.native.size
        self.timeout = timeout

    @property
    def timeout(self) -> float:
        """Seconds that a call may take which names no time of its own."""
        return self.caller.calls.seconds

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self.caller.calls.seconds = seconds

    def fail(self, error: BaseException | None, seconds: float) -> NoReturn:
        """What went wrong on the short way, in a call of so many seconds, is an error like any other. None is for one
        that was queued before an error."""
        if error is None:
            self.caller.require_usable()
        assert error is not None
        self.caller.fail(error, self.caller.native.core.title(), seconds)

    def do(
        self,
        call: Call,
        how: How,
        x: Any,
        given: Array | None,
        shape: tuple[int, ...] | None,
        op: Op | None = None,
    ) -> Any:
        job = self.run(call, how, x, given, shape, op)
        return self.caller.do(call.text, job, self.seconds(how.timeout), how.async_op)

    def run(
        self,
        call: Call,
        how: How,
        x: Any,
        given: Array | None,
        shape: tuple[int, ...] | None,
        op: Op | None = None,
        received: tuple[int, ...] | None = None,
        learns: int = -1,
    ) -> Callable[[float], Any]:
        """The job of `call`: everything that can be wrong with its arguments is found here, before it runs.

        `given` is what this rank gives, None for nothing; `shape` is that of its result, None where it gets none; the
        result is of the kind of `x`. `learns` is the rank that these were learnt from.
        """
        plan = self.plan(call, how.algorithm, op, self.seconds(how.timeout))
        buffers = self._buffers(call, plan, how, x, given, shape, apart=received is not None)

        def job(seconds: float) -> Any:
            bound = self.caller.call(call, plan, op, buffers.inp, buffers.target, seconds, received)
            result = buffers.deliver()
            if how.memo is not None and how.algorithm is None and how.order == "same" and buffers.direct:
                self.caller.calls.remember(*how.memo, result, *bound, learns)
            return result

        return job

    def prepare(self, call: Call, how: How, x: Any, given: Array, shape: tuple[int, ...], op: Op | None) -> Persistent:
        """The persistent form of `call`. Where its arrays need copies, it goes the long way each time."""
        self.caller.require_usable()
        plan = self.plan(call, how.algorithm, op, self.seconds(how.timeout))
        buffers = self._buffers(call, plan, how, x, given, shape)
        result = buffers.deliver()
        again = how._replace(out=result)
        native = self.caller.native

        def go_long() -> Any:
            return self.do(call, again, x, given, shape, op)

        program, fingerprint = (
            native.bound(call, plan, op, buffers.inp, buffers.target) if buffers.direct else (None, 0)
        )
        places = buffers.inp.ctypes.data, buffers.target.ctypes.data
        return native.calls.prepare(program, fingerprint, *places, (given, buffers.target), result, go_long, self.fail)

    def _buffers(
        self,
        call: Call,
        plan: Plan,
        how: How,
        x: Any,
        given: Array | None,
        shape: tuple[int, ...] | None,
        apart: bool = False,
    ) -> Buffers:
        leads = None
        if how.out is not None and not apart and self.caller.native.can_run_in_place(plan):
            leads = call.leads(self.rank, self.size)
        return Buffers.make(x, given, shape, call.dtype, how.out, leads)

    def call(
        self,
        name: str,
        dtype: np.dtype[Any],
        count: int,
        how: How,
        blocks: tuple[int, ...] | None = None,
        root: int = 0,
        op: str = "",
        note: str = "",
    ) -> Call:
        if how.order not in ("same", "any"):
            raise ValueError(f'order is "same" or "any", not {how.order!r}')
        return Call(name, dtype, count, op, root, blocks, _label(how.algorithm), how.order, note=note)

    def plan(self, call: Call, algorithm: Algorithm, op: Op | None, seconds: float) -> Plan:
        """The plan for `call`, which keeps its promise and fits the operator."""
        name = algorithm or choose(call.collective, call.nbytes, self.size).algorithm
        plan, facts = proved(call.collective, name, self.size, call.root, Deadline(seconds))
        if op is not None and op.function is not None and call.order == "same" and not facts.rank_order:
            raise ValueError(
                f"{plan.algorithm} does not fold in the order of ranks, and {op.name} is not known to commute: "
                'choose another algorithm, or say order="any"'
            )
        return plan

    def gets(self, call: Call) -> bool:
        return call.collective not in ("reduce", "gather") or call.root == self.rank

    def require_rank(self, rank: int, what: str) -> None:
        if not isinstance(rank, (int, np.integer)) or isinstance(rank, bool):
            raise TypeError(f"{what} is a rank, not {rank!r}")
        if not 0 <= rank < self.size:
            raise ValueError(f"{what} {rank} is not one of the ranks 0 to {self.size - 1}")

    def seconds(self, timeout: float | None) -> float:
        seconds = self.timeout if timeout is None else float(timeout)
        if not seconds > 0:
            raise ValueError(f"timeout is a number of seconds above zero, not {timeout}")
        return seconds

    def learn(self, name: str, root: int, sizes: Sequence[int] | None, how: How) -> Any:
        """The part of a rank that only the root can tell what it will get."""

        def job(seconds: float) -> Any:
            note = self.caller.learn(root, f"{name}(root={root})", seconds)
            root_gives = told(note) if note else None
            if root_gives is None or root_gives.collective != name:
                # The root is in another call: enter one that is not its, and let the call board tell.
                note = tell(name, np.dtype(np.uint8), (self.size,))
                root_gives = told(note)
            shape = tuple(root_gives.shape)
            dtype = next(dtype for dtype in DTYPES if dtype.name == root_gives.dtype)
            parts = split(shape, self.size, sizes or root_gives.rows) if name == "scatter" else None
            call = self.call(name, dtype, math.prod(shape), how, parts and parts.blocks, root, note=note)
            return self.run(call, how, how.out, None, parts.shape(self.rank) if parts else shape, learns=root)(seconds)

        return self.caller.do(f"{name}(root={root})", job, self.seconds(how.timeout), how.async_op)


def _label(algorithm: Algorithm) -> str:
    """What a text calls it."""
    if algorithm is None:
        return "auto"
    if isinstance(algorithm, str):
        return algorithm
    if isinstance(algorithm, Plan):
        return algorithm.algorithm
    return name_of(algorithm)
