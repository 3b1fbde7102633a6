"""One rank's calls: their order, their deadlines, and the first error, which ends them all.

```
open ──(an error: all ranks settle on one)──▶ broken  every later call raises GroupBroken, which carries the error
  └────(close)──▶ closed                              the same, and the others learn that this rank left
```

In a forked child a session can do nothing, and says so; what happens to it there means nothing to the parent.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar

from .._core import FORKED, Endpoint, Failure, Prepared
from .._core import Session as Core
from ..deadline import Deadline
from ..errors import CollectiveTimeout, GroupBroken, HocketError, MismatchError, PeerLost, touch, untouched
from ..places import place, place_of
from .executor import Executor
from .whereabouts import Whereabouts, describe
from .work import Work

T = TypeVar("T")

AT_EXIT = 1.0  # seconds that the end of the interpreter waits for a call of another thread, which may be in an operator


class Kind(NamedTuple):
    """What a failure of the core is to a user: an error, and a sentence where the core gave none."""

    error: type[HocketError]
    sentence: str = "{me} in {what}: {words}"


# In the order of the core's enum (csrc/wait/wait.h).
KINDS = (
    Kind(CollectiveTimeout, "{me} timed out after {seconds:g} s, the timeout of {what}, in vain for {whom}"),
    Kind(PeerLost, "{whom} {went} while {me} was in {what}"),
    Kind(MismatchError, "in {what}: {words}"),
    Kind(GroupBroken),
    Kind(PeerLost),
    Kind(HocketError),
    Kind(GroupBroken, "{me} closed this group while another of its threads was in {what}"),
)
TIMEOUT, PEER_LOST, MISMATCH, CUSTOM_OP, INTERRUPTED, INTERNAL, CLOSED = range(7)
TELL = (TIMEOUT, PEER_LOST, MISMATCH)  # where every rank is
PATIENCE = 0.1  # seconds: who waits says where, before that


class Session:
    """The calls of one rank over `endpoint`.

    `names[r]` is how messages call rank r: "rank 2 (pid 4711 on host)". `disconnect` closes what links the ranks, which
    lives as long as a call may be in flight. A session that is dropped leaves, without waiting for any call.
    """

    def __init__(self, endpoint: Endpoint, rank: int, names: list[str], disconnect: Callable[[], None]) -> None:
        self.endpoint, self.rank, self.names = endpoint, rank, names
        self._disconnect = disconnect
        self.executor = Executor()
        self.core = Core(endpoint, self.executor.requests, self.fail, place)
        self.errors: Counter[str] = Counter()  # that its calls and messages raised, by name
        self.on_break: Callable[[BaseException], object] = lambda error: None  # called once, with the first error
        self._ending = threading.RLock()  # held until it is settled what ended the group
        self._first = threading.Lock()  # of the three that follow
        self._broken: BaseException | None = None
        self._leaving = self._closed = False

    # ---- calls -------------------------------------------------------------------------------------------------------

    def call(self, prepared: Prepared, deadline: Deadline, async_op: bool = False) -> Any:
        """Make a prepared call in its turn, or put it to be made and give back its Work."""
        self.require_usable()
        if async_op:
            self.executor.start_engine()
            result = self.core.begin(prepared, deadline.seconds, deadline.spent())
        else:
            result = self.core.call(prepared, deadline.seconds, deadline.spent())
        if result is NotImplemented:
            self.over()
        return result

    def do(self, function: Callable[[], T], text: str, seconds: float, async_op: bool) -> T | Work[T]:
        """Call `function` in its turn, which makes several calls in it by `core.run`; or put it, and give its Work."""
        self.require_usable()
        run = partial(self.in_turn, function)
        if async_op:
            work = self.executor.put(run, text)
            if work is NotImplemented:
                self.over()
            return work
        result = self.executor.do(run, seconds)
        if result is NotImplemented:
            self.fail(Failure(TIMEOUT, -1, "another thread of this rank was still in a call", False), seconds, text)
        return result

    def over(self) -> NoReturn:
        """Raise why a call was not made: most often the session has ended between the look at it and the call."""
        self.require_usable()
        raise GroupBroken("this group is closed")

    def in_turn(self, function: Callable[[], T]) -> T:
        """What `function` returns, on a thread that has the turn. What it raises ends the group."""
        self.require_usable(inside=True)
        try:
            return function()
        except HocketError as error:  # what concerns all ranks, all are told in the same words
            self.errors[type(error).__name__] += 1
            kind, told = self._told(error)
            settled = self._break(error, kind, told)
            if settled is None or error.out_touched or str(settled).startswith(told):
                raise
            raise settled from error
        except BaseException as error:
            self.errors[type(error).__name__] += 1
            self._break(error, *self._told(error))
            raise

    def _told(self, error: BaseException) -> tuple[int, str]:
        """The kind and the words of an error, for all ranks."""
        if isinstance(error, KeyboardInterrupt):
            return INTERRUPTED, f"{self.names[self.rank]} was interrupted"
        if not isinstance(error, HocketError):
            return INTERNAL, f"{self.names[self.rank]} failed with {_words(error)}"
        return next((i for i, kind in enumerate(KINDS) if kind.error is type(error)), INTERNAL), untouched(str(error))

    def look(self, waited_for: int, what: str, deadline: Deadline) -> None:
        """What every wait does now and then: raises where this call cannot go on."""
        try:
            self.endpoint.look(waited_for, deadline.left())
        except Failure as failure:
            self.fail(failure, deadline.seconds, what)

    # ---- errors ------------------------------------------------------------------------------------------------------

    def fail(self, error: BaseException | None, seconds: float, what: str, touched: bool = False) -> NoReturn:
        """Raise `error` as the public error it is, and break the group with it. `what` is the call that it ended, and
        `seconds` what that might have taken. None is for a call that came after an error. `touched` concerns this rank
        alone, and the others are not told: whether the caller's output may hold a part of the result."""
        try:
            self._fail(error, seconds, what)
        except BaseException as raised:
            if touched:
                touch(raised)
            raise

    def _fail(self, error: BaseException | None, seconds: float, what: str) -> NoReturn:
        if error is None:
            self.require_usable(inside=True)
        if self.core.forked:  # a child that was made in the middle of the call
            raise HocketError(FORKED) from error
        if isinstance(error, Failure):
            raised = self.explain(error, what, seconds, broken=True)
            if error.args[0] == CLOSED:  # to the others this rank left, whatever it was in the middle of
                self._break(raised, PEER_LOST, f"{self.names[self.rank]} left: {raised}")
            else:
                raised = self._break(raised, error.args[0], str(raised), error.args[1]) or raised
            self.errors[type(raised).__name__] += 1
            raise raised from None
        assert error is not None
        self.errors[type(error).__name__] += 1
        interrupted = isinstance(error, KeyboardInterrupt)
        how = "was interrupted" if interrupted else f"failed with {_words(error)}"
        words = f"{self.names[self.rank]} {how} in {what}{place()}"
        self._break(error, INTERRUPTED if interrupted else CUSTOM_OP, words)
        raise error

    def explain(self, failure: Failure, what: str, seconds: float, *, broken: bool = False) -> HocketError:
        """The public error for what ended `what`, in the words of the rank that found it, and where every rank is.
        Where the group is `broken` by it, these are the words of the rank that found it first."""
        kind: int
        kind, peer, words, relayed = failure.args
        if relayed:
            return self.settled() or KINDS[kind].error(words)
        me, whom = self.names[self.rank], self.names[peer] if peer >= 0 else "its peers"
        if kind == MISMATCH and "\n" in words:  # two calls; a message's mismatch is a sentence already
            ours, theirs = words.split("\n")
            (_, one, first), (_, other, second) = sorted([(self.rank, me, ours), (peer, whom, theirs)])
            words = f"{one} called {first}, but {other} called {second}"
        sentence = KINDS[kind].sentence
        if kind == TIMEOUT and words:
            sentence = (
                sentence if peer >= 0 else "{me} timed out after {seconds:g} s, the timeout of {what}"
            ) + ": {words}"
        went = "left the group" if words == "left" else words
        text = sentence.format(me=me, whom=whom, what=what, words=words, seconds=seconds, went=went)
        if kind not in TELL or len(self.names) == 1:
            return KINDS[kind].error(text)
        try:
            # Who waited until the end has waited for others to say where they are; else they are just about to.
            ranks = self.endpoint.survey(PATIENCE if broken and kind != TIMEOUT else 0.0, broken)
        except Failure as earlier:
            return self.settled() or KINDS[earlier.args[0]].error(earlier.args[2])
        return KINDS[kind].error(text + describe([Whereabouts(*rank) for rank in ranks], self.rank, what + place()))

    def hear(self, error: HocketError) -> None:
        """Another rank's error, which is told to all, has been heard outside of a call."""
        with self._first:
            first, self._broken = self._broken is None, self._broken or error
        self.core.enabled = False
        if first:
            self.on_break(error)

    def _break(self, error: BaseException, kind: int, words: str, peer: int | None = None) -> HocketError | None:
        """End the group, because of `error` unless another rank was first. What all ranks that are left settled on:
        later calls of this rank tell of that, but for errors that are not hocket's own."""
        with self._ending:
            with self._first:
                first, self._broken = self._broken is None, self._broken or error
            self.core.enabled = False
            self.endpoint.end(kind, self.rank if peer is None else peer, words)
            settled = self.settled()
            if first and isinstance(error, HocketError):
                self._broken = settled or error
        if first:
            self.on_break(settled or error)
        return settled

    def settled(self) -> HocketError | None:
        """What ended the group: the same on all ranks that are left. None where it has not ended."""
        outcome = self.endpoint.outcome()
        if outcome is None:
            return None
        kind, culprit, text, lost, completed, reached, title = outcome
        error: type[HocketError] = KINDS[kind].error
        text = text or f"{self.names[culprit]} was lost"  # nobody is left who knows how
        if self.rank in lost:
            me, error = self.names[self.rank], PeerLost
            text = f"the others went on without {me}, which they took for lost. They were told: {text}"
        elif len(lost) == len(self.names) - 1 and (seconds := self.endpoint.absence):  # nobody is told the same
            text = f"the others may have gone on without {self.names[self.rank]}, stopped for {seconds:.1f} s: {text}"
        call = f"call {reached}, {title}," if reached > completed else ""
        if call:
            text += f"\n  {call} ended well on some ranks, but not on all: its result is not to be used"
        raised = error(text)
        raised.lost, raised.completed, raised.settled = tuple(lost), completed, call.rstrip(",")
        return raised

    @property
    def broken(self) -> bool:
        """Whether an error has ended the group, as far as this rank knows."""
        return self._broken is not None or self.settled() is not None

    @property
    def usable(self) -> bool:
        """Whether calls can be made, as far as this rank knows."""
        return not self._closed and not self.broken

    def _over(self) -> HocketError | None:
        """What ended the group, once another thread that is about to say so has; or was interrupted in that."""
        with self._ending:
            over = self.settled()
            if over is None and self._broken is not None and not self._leaving:
                over = self._break(self._broken, *self._told(self._broken))
            if over is not None and isinstance(self._broken, HocketError) and self._broken.completed is None:
                self._broken = over
            return over

    def conclude(self, error: BaseException | None = None) -> HocketError:
        """What ended the group; where a rank is gone and no call has noticed, that does, or else `error`, which has
        come from elsewhere. HocketError where nothing did."""
        if self.core.forked:
            raise HocketError(FORKED)
        if self._closed:
            raise GroupBroken("this group is closed")
        self.require_outside("recover()")
        over = self._over() if self._broken is not None else self.settled()
        if over is None:
            absent = self.endpoint.absent()
            if not absent and error is not None:
                return self._break(error, *self._told(error)) or HocketError(_words(error))
            if not absent:
                raise HocketError("nothing has ended this group: recover() makes a new one of what an error has left")
            text = f"{self.names[absent[0]]} died or left before {self.names[self.rank]} called recover()"
            over = self._break(PeerLost(text), PEER_LOST, text, absent[0]) or PeerLost(text)
        self.hear(over)
        return over

    def require_usable(self, *, inside: bool = False) -> None:
        """Raises GroupBroken after an error, or after `close`; HocketError in a forked child, and in the middle of a
        call of this thread (its operator, or a signal handler) unless that is expected."""
        if self.core.forked:
            raise HocketError(FORKED)
        if self._broken is not None:
            over = self._over()
            broken = GroupBroken(f"an earlier error broke this group: {_words(self._broken)}")
            if over is not None:
                broken.lost, broken.completed, broken.settled = over.lost, over.completed, over.settled
            raise broken from self._broken
        if self._closed:
            raise GroupBroken("this group is closed")
        if not inside:
            self.require_outside("a call")

    def require_outside(self, what: str) -> None:
        """Raises HocketError in the middle of a call of this thread."""
        if self.core.inside:
            raise HocketError(
                f"{what} was made inside of another call of this group, by its operator or by a signal handler that "
                "interrupted it: it would wait for itself. Make it when that call has returned, or in another group"
            )

    # ---- the end -----------------------------------------------------------------------------------------------------

    def leave(self, error: BaseException | None = None, *, at_exit: bool = False) -> None:
        """Finish what is queued, end the calls of other threads, and tell the others that this rank goes, because of
        `error` if there was one. A second call does nothing. At the end of the interpreter nothing is waited for that a
        thread of the user's is at."""
        if self.core.forked:
            return
        if error is None:
            self.require_outside("a call of close()")
        with self._first:
            if self._leaving:
                return
            self._leaving = True
        if error is not None:
            first, newline, rest = _words(error).partition("\n")
            words = f"{self.names[self.rank]} left with {first}{place_of(error)}{newline}{rest}"
            self._break(error, PEER_LOST, words)
        if at_exit and self.executor.requests.elsewhere:  # a daemon, which the interpreter does not wait for either
            self.executor.dismiss()
        else:
            self.executor.close()
        self._closed = True
        self._broken = None if self._broken is None else _frameless(self._broken)
        self.core.enabled = False
        self.endpoint.close()
        if not self.core.inside and self.executor.do(lambda: None, AT_EXIT if at_exit else 1e9) is NotImplemented:
            self.endpoint.leave()  # another thread is in the middle of a call, and takes its links along
            return
        self._part(for_all=True)

    def _part(self, *, for_all: bool) -> None:
        try:
            self.core.release()
            self.endpoint.leave()
            self.endpoint.disconnect(for_all)
        finally:  # where an interrupt came meanwhile: nobody asks again
            self._disconnect()

    def drop(self) -> None:
        """Leave without waiting for calls. Does nothing where it has left, or was never whole."""
        if self.__dict__.get("_leaving", True) or self.core.forked:
            return
        self.executor.dismiss()  # first: who is interrupted in it is still to leave
        with self._first:
            if self._leaving:
                return
            self._leaving = self._closed = True
        self._part(for_all=False)

    def __del__(self) -> None:
        self.drop()  # who knows where, and in what, the garbage is collected


def _frameless(error: BaseException) -> BaseException:
    """An error that tells the same. The frames of its traceback hold what the program had in its hands, and that may
    hold the group in turn: a DDP model does, through C++, where Python does not see the circle."""
    return copy(error) if isinstance(error, HocketError) else HocketError(_words(error))


def _words(error: BaseException) -> str:
    text = untouched(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
