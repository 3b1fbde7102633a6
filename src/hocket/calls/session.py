"""One rank's calls, one after the other: numbers, deadlines, and the first error, which poisons the group."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, TypeAlias, TypeVar

import numpy as np

from ..arrays.ops import Op
from ..errors import CollectiveTimeout, GroupBroken, HocketError, MismatchError, PeerLost
from ..plans.plan import Plan
from ..run.native import Failure, Native
from ..run.signature import Call
from .executor import Jobs
from .work import Work

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
T = TypeVar("T")

# In the order of the core's enum: what is raised, and on which rank the blame is put by number.
TIMEOUT, PEER_LOST, MISMATCH, CUSTOM_OP, INTERRUPTED, INTERNAL = range(6)
ERRORS: tuple[type[HocketError], ...] = (
    CollectiveTimeout,
    PeerLost,
    MismatchError,
    GroupBroken,
    PeerLost,
    HocketError,
)


class Caller:
    """Executes the calls of one rank, as jobs.

    `names[r]` is how messages call rank r: "rank 2 (pid 4711 on host)". `disconnect` closes what links the ranks, which
    lives as long as a call may be in flight.
    """

    def __init__(self, native: Native, names: list[str], disconnect: Callable[[], None]) -> None:
        self.native, self.names, self.rank = native, names, native.rank
        self._disconnect = disconnect
        self.calls = native.calls
        self._jobs = Jobs(self.calls.jobs)
        self._broken: BaseException | None = None
        self._closed = False

    def do(self, text: str, job: Callable[[float], T], seconds: float, async_op: bool) -> T | Work[T]:
        """Run `job(seconds)` in its turn; `async_op` gives back its Work at once."""
        self.require_usable()
        run = partial(self._run, job, seconds)
        return self._jobs.put(run, text) if async_op else self._jobs.do(run, text)

    def _run(self, job: Callable[[float], T], seconds: float) -> T:
        try:
            self.require_usable()
            return job(seconds)
        except BaseException as error:
            if self._broken is None:  # what a call could not say itself, such as a note that made no sense
                self._break(error, INTERNAL, f"{self.names[self.rank]} failed with {_words(error)}")
            raise

    def call(
        self,
        call: Call,
        plan: Plan,
        op: Op | None,
        inp: Array,
        out: Array,
        seconds: float,
        received: tuple[int, ...] | None = None,
    ) -> tuple[Any, int]:
        """One collective call, inside a job. Raises what went wrong, and tells it to all other ranks. Returns what can
        be remembered of it."""
        try:
            return self.native.run(call, plan, op, inp, out, seconds, received)
        except BaseException as error:
            self.fail(error, call.text, seconds)

    def learn(self, peer: int, text: str, seconds: float) -> str:
        """The note that `peer` leaves in the next call, inside a job."""
        try:
            return self.native.learn(peer, text, seconds)
        except BaseException as error:
            self.fail(error, text, seconds)

    def fail(self, error: BaseException, text: str, seconds: float) -> NoReturn:
        """Raise `error` as the public error it is, and poison the group with it."""
        what = f"{text} (call {self.native.core.number})"
        if isinstance(error, Failure):
            kind, peer, _, _ = error.args
            raised = self.explain(error, what, seconds)
            self._break(raised, kind, str(raised), peer)
            raise raised from None
        interrupted = isinstance(error, KeyboardInterrupt)
        how = "was interrupted" if interrupted else f"failed with {_words(error)}"
        self._break(error, INTERRUPTED if interrupted else CUSTOM_OP, f"{self.names[self.rank]} {how} in {what}")
        raise error

    def explain(self, failure: Failure, what: str, seconds: float) -> HocketError:
        """The public error for what ended `what`, in the words of the rank that found it."""
        kind: int
        kind, peer, words, relayed = failure.args
        me, whom = self.names[self.rank], self.names[peer] if peer >= 0 else "its peers"
        if (
            kind == MISMATCH and not relayed and "\n" in words
        ):  # of two calls; a message's mismatch is a sentence already
            ours, theirs = words.split("\n")
            (_, one, first), (_, other, second) = sorted([(self.rank, me, ours), (peer, whom, theirs)])
            words = f"{one} called {first}, but {other} called {second}"
        if not relayed:
            words = {
                TIMEOUT: f"{me} waited {seconds:g} s in {what}, in vain for {whom}",
                PEER_LOST: f"{whom} {_went(words)} while {me} was in {what}",
                MISMATCH: f"in {what}: {words}",
            }.get(kind, f"{me} in {what}: {words}")
        return ERRORS[kind](words)

    def hear(self, error: HocketError) -> None:
        """Another rank's error, which is told to all, has been heard outside of a call."""
        if self._broken is None:
            self._broken = error
            self.calls.enabled = False

    def _break(self, error: BaseException, kind: int, words: str, peer: int | None = None) -> None:
        self._broken = error
        self.calls.enabled = False
        self.native.core.poison(kind, self.rank if peer is None else peer, words)

    def require_usable(self) -> None:
        """Raises GroupBroken after an error, or after `close`."""
        if self._broken is not None:
            raise GroupBroken(f"an earlier error broke this group: {_words(self._broken)}") from self._broken
        if self._closed:
            raise GroupBroken("this group is closed")

    def leave(self, error: BaseException | None) -> None:
        """Finish what is queued and tell the others that this rank goes, because of `error` if there was one. A second
        call does nothing."""
        if self._closed:
            return
        if error is not None and self._broken is None:
            self._break(error, PEER_LOST, f"{self.names[self.rank]} left with {_words(error)}")
        self._jobs.close()
        self._closed = True
        self.calls.enabled = False
        self.calls.forget()
        self.native.core.leave()
        self._disconnect()


def _went(how: str) -> str:
    return "left the group" if how == "left" else how


def _words(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
