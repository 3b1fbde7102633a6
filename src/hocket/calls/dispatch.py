"""From a call's arguments to its execution: prepare, then submit.

```
arguments ─▶ Signature ─▶ plan: chosen, proved ─▶ buffers ─▶ Prepared ─▶ made now · put · made again and again
             what all     what moves              where      program,    and remembered, where the next call that
             agree on                                        pointers    looks the same finds it without Python
```
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from .._core import Persistent as Persistent
from .._core import Prepared
from ..arrays.buffers import Buffers
from ..arrays.ops import DTYPES, ROUNDED, Op
from ..arrays.shapes import split
from ..deadline import Deadline
from ..plans.algorithms import is_hashable, meaning, name_of
from ..plans.plan import Plan, Steps
from ..plans.prove import Proved, proved
from ..run.native import Native
from ..run.signature import Signature, tell, told
from ..tuning.choose import choose
from .fastpath import CacheKey
from .session import Session

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Algorithm: TypeAlias = "str | Plan | Callable[[int], Steps] | None"
Order: TypeAlias = Literal["same", "any"]


class How(NamedTuple):
    """The arguments of a call that say how, not what; and under what it is remembered, if it may be."""

    out: Any = None
    algorithm: Algorithm = None
    timeout: float | None = None
    async_op: bool = False
    order: Order = "same"
    key: CacheKey | None = None
    protect: bool | None = None


class Call(NamedTuple):
    """One rank's part in a collective call: what all agree on, and what this one brings and gets.

    `given` is what this rank gives, None for nothing; `shape` is that of its result, None where it gets none; the
    result is of the kind of `x`. `received` are the elements that come from each rank, where that has been asked;
    `learns` is the rank that the signature was learnt from.
    """

    signature: Signature
    how: How
    x: Any
    given: Array | None
    shape: tuple[int, ...] | None
    op: Op | None = None
    received: tuple[int, ...] | None = None
    learns: int = -1


class Dispatch:
    """The calls of one rank of a group. `timeout`, in seconds, and `protect` are those of calls that do not say."""

    def __init__(self, session: Session, native: Native, timeout: float, protect: bool = False) -> None:
        self.session, self.native = session, native
        self.rank, self.size = native.rank, native.size
        self.timeout = timeout
        self.protect = session.core.protects = bool(protect)

    @property
    def timeout(self) -> float:
        """Seconds that a call may take which names no time of its own."""
        return self.session.core.seconds

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self.session.core.seconds = seconds

    def do(self, call: Call) -> Any:
        """Prepare the call and make it, or put it; its deadline begins here."""
        deadline = self.deadline(call.how)
        return self.session.call(self.prepare(call, deadline), deadline, call.how.async_op)

    def do_inside(self, call: Call, deadline: Deadline) -> Any:
        """Prepare the call and make it, on a thread that has its turn."""
        return self.session.core.run(self.prepare(call, deadline, inside=True), deadline.seconds, deadline.spent())

    def prepare(self, call: Call, deadline: Deadline, *, inside: bool = False) -> Prepared:
        """Everything that can be wrong with the arguments is found here, before anything is sent."""
        self.session.require_usable(inside=inside)
        how = call.how
        means = meaning(call.signature.collective, how.algorithm)
        plan = self.plan(call, deadline)
        buffers = self._buffers(call, plan)
        prepared = self.native.prepare(call.signature, plan.plan, call.op, buffers, call.received)
        if how.key is not None and buffers.direct and is_hashable(how.algorithm):  # as plans are kept, too
            any_order, protects = how.order == "any", self.protects(how)
            self.session.core.remember(*how.key, how.algorithm, means, any_order, protects, prepared, call.learns)
        return prepared

    def persistent(self, call: Call) -> Persistent:
        """The call to be made again and again. Where its arrays need copies, it is prepared anew each time."""
        self.session.require_usable()
        plan = self.plan(call, Deadline(self.timeout))
        again, buffers = call, self._buffers(call, plan)
        if call.how.out is None and buffers.keeps:  # from now on the result is the caller's
            again = call._replace(how=call.how._replace(out=buffers.deliver()))
            buffers = self._buffers(again, plan)
        prepared = self.native.prepare(call.signature, plan.plan, call.op, buffers) if buffers.direct else None
        return Persistent(self.session.core, prepared, lambda: self.do(again))

    def signature(
        self,
        name: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        how: How,
        blocks: tuple[int, ...] | None = None,
        root: int = 0,
        op: str = "",
        note: str = "",
        each: tuple[int, ...] | None = None,
    ) -> Signature:
        """What all ranks must agree on."""
        if how.order not in ("same", "any"):
            raise ValueError(f'order is "same" or "any", not {how.order!r}')
        own = how.algorithm is not None and not isinstance(how.algorithm, str)
        label = _label(how.algorithm)
        return Signature(name, dtype, shape, op, root, blocks, label, how.order, each, own=own, note=note)

    def gets(self, signature: Signature) -> bool:
        """Whether this rank gets a result."""
        if signature.collective == "exscan":
            return self.rank > 0
        return signature.collective not in ("reduce", "gather") or signature.root == self.rank

    def rank_of(self, rank: int, what: str) -> int:
        """`rank` as a plain integer. Raises TypeError or ValueError where it is no rank of this group."""
        if not isinstance(rank, (int, np.integer)) or isinstance(rank, bool):
            raise TypeError(f"{what} is a rank, not {rank!r}")
        if not 0 <= rank < self.size:
            raise ValueError(f"{what} {rank} is not one of the ranks 0 to {self.size - 1}")
        return operator.index(rank)

    def seconds(self, timeout: float | None) -> float:
        """How long a call may take. Raises ValueError or TypeError for what is no time; infinity is one."""
        if timeout is None:
            return self.timeout
        if isinstance(timeout, str) or not float(timeout) > 0:
            raise ValueError(f"timeout is a number of seconds above zero, not {timeout!r}")
        return float(timeout)

    def protects(self, how: How) -> bool:
        """Whether a call leaves its output as it was until it has succeeded. Raises TypeError for what is no answer."""
        if how.protect is None:
            return self.protect
        if not isinstance(how.protect, (bool, np.bool_)):
            raise TypeError(f"protect is True, False, or None for what the group does; not {how.protect!r}")
        return bool(how.protect)

    def deadline(self, how: How) -> Deadline:
        """Of a call that begins now."""
        return Deadline(self.seconds(how.timeout))

    def learn(self, name: str, root: int, sizes: Sequence[int] | None, how: How) -> Any:
        """The part of a rank that only the root can tell what it will get."""
        deadline, text = self.deadline(how), f"{name}(root={root})"
        if how.algorithm is not None:  # the root finds the same wrong, and enters no call
            proved(name, how.algorithm, self.size, root, deadline, self.native.topology.parts)

        def call() -> Any:
            note = self.session.core.learn(root, text, deadline.left()).partition("\n")[2]
            root_gives, mine = told(note) if note else None, how
            if root_gives is None or root_gives.collective != name:
                # The root is in another call: enter one that is not its, and let the call board tell.
                note = tell(name, np.dtype(np.uint8), (self.size,))
                root_gives, mine = told(note), how._replace(out=None, key=None)
            shape = tuple(root_gives.shape)
            dtype = next(dtype for dtype in DTYPES if dtype.name == root_gives.dtype)
            rows = sizes if sizes is not None and mine is how else root_gives.rows
            parts = split(shape, self.size, rows) if name == "scatter" else None
            signature = self.signature(name, dtype, shape, mine, parts and parts.blocks, root, note=note)
            signature = replace(signature, known=mine is how)
            gets = parts.shape(self.rank) if parts else shape
            return self.do_inside(Call(signature, mine, mine.out, None, gets, learns=root), deadline)

        return self.session.do(call, text, deadline.left(), how.async_op)

    def plan(self, call: Call, deadline: Deadline) -> Proved:
        """The plan for `call`, which keeps its promise and fits the operator and the sizes. Raises ValueError, or what
        `proved` raises."""
        signature, algorithm, topology = call.signature, call.how.algorithm, self.native.topology
        if algorithm is None:
            one_pass = signature.dtype in ROUNDED and signature.order == "same"
            nbytes = signature.nbytes
            algorithm = choose(signature.collective, nbytes, self.size, topology, one_pass=one_pass).algorithm
        chosen = proved(signature.collective, algorithm, self.size, signature.root, deadline, topology.parts)
        op = call.op
        if op is not None and op.function is not None and signature.order == "same" and not chosen.facts.rank_order:
            raise ValueError(
                f"{chosen.plan.algorithm} does not fold in the order of ranks, and {op.name} is not known to commute: "
                'choose another algorithm, or say order="any"'
            )
        if signature.sizes is not None and not chosen.facts.uneven:
            raise ValueError(
                f"{chosen.plan.algorithm} needs blocks that are all equally large: "
                "leave out sizes, or choose another algorithm"
            )
        return chosen

    def _buffers(self, call: Call, plan: Proved) -> Buffers:
        signature, out, protects = call.signature, call.how.out, self.protects(call.how)
        leads = None
        if out is not None and call.received is None and self.native.can_run_in_place(plan.plan, plan.facts.in_place):
            leads = signature.leads(self.rank, self.size)
        return Buffers.make(call.x, call.given, call.shape, signature.dtype.base, out, leads, protects)


def _label(algorithm: Algorithm) -> str:
    """What a text calls it."""
    if algorithm is None:
        return "auto"
    if isinstance(algorithm, str):
        return algorithm
    if isinstance(algorithm, Plan):
        return algorithm.algorithm
    return name_of(algorithm)
