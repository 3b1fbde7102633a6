"""Tagged messages between two ranks: `Group.send` and `Group.recv`, beside the collectives and independent of them.

What is in flight, and the memory that it uses, is the core's: csrc/python/messages.h. Here arguments become arrays, and
failures the errors that users see.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .._core import Failure, MessageRequest, Trace
from .._core import Messages as Core
from ..arrays.adopt import adopt, writable
from ..arrays.ops import DTYPES
from ..errors import GroupBroken, HocketError, touch
from .session import CLOSED, INTERRUPTED, PEER_LOST, TIMEOUT, Session
from .work import Work

ANY = -1  # any source


class Envelope(NamedTuple):
    """What a message that has come says of itself. `dtype` and `shape` are of an array, and None of an object."""

    source: int
    tag: int
    nbytes: int
    dtype: np.dtype[Any] | None
    shape: tuple[int, ...] | None


class Received(NamedTuple):
    """What has come, and from which rank: it unpacks like any pair."""

    message: Any
    source: int


class Messages:
    """One rank's messages. Their dtype and shape travel with them, and a receive that expects others is an error."""

    def __init__(self, session: Session, trace: Trace | None = None, group: int = 0) -> None:
        self._explain = _Explain(session)
        self.core = Core(session.core, list(DTYPES), self._explain)
        self.core.quick = trace is None
        self._trace, self._group = trace, group

    def send(self, x: Any, dst: int, tag: int, seconds: float, async_op: bool) -> Message | None:
        """Send `x`, which must be left alone until that is done. Waits where too much is in flight."""
        array = np.asarray(adopt(x))
        data = array if array.flags.c_contiguous else array.copy()
        text = f"send(dst={dst}, tag={tag})"
        sent = self._do(text, async_op, self.core.send, data, dst, tag, text, seconds, not async_op, False)
        return Message(sent) if async_op else None

    def send_object(self, data: np.ndarray[Any, np.dtype[Any]], dst: int, tag: int, seconds: float) -> None:
        """Send the bytes of an object."""
        text = f"send_object(dst={dst}, tag={tag})"
        self._do(text, False, self.core.send, data, dst, tag, text, seconds, True, True)

    def receive_object(self, src: int, tag: int, seconds: float) -> Received:
        """Receive those."""
        text = f"recv_object(src={'any' if src == ANY else src}, tag={tag})"
        return Received(*self._do(text, False, self.core.receive_new, src, tag, text, seconds, True, True, True))

    def receive(self, src: int, out: Any, tag: int, seconds: float, async_op: bool, *, sourced: bool = False) -> Any:
        """Receive into `out`, or into a new array of what comes where that is None; `sourced`: as Received."""
        text = f"recv(src={'any' if src == ANY else src}, tag={tag})"
        if out is None:
            got = self._do(text, async_op, self.core.receive_new, src, tag, text, seconds, not async_op, sourced, False)
        else:
            array = np.asarray(writable(out))
            memory = array if array.flags.c_contiguous else np.empty(array.shape, array.dtype)
            what = src, tag, memory, array, out, text, seconds, not async_op, sourced
            got = self._do(text, async_op, self.core.receive, *what)
        if async_op:
            return Message(got)
        return Received(*got) if sourced else got

    def probe(self, src: int, tag: int, seconds: float, *, waits: bool) -> Envelope | None:
        """Of the message that a receive would get; None where there is none, and this does not wait."""
        text = f"probe(src={'any' if src == ANY else src}, tag={tag})"
        found = self.core.probe(src, tag, text, seconds, waits)
        if found is None:
            return None
        source, meta, nbytes = found
        name, _, lengths = meta.rstrip("]").partition("[")
        dtype = next((dtype for dtype in DTYPES if dtype.name == name), None)
        shape = None if dtype is None else tuple(int(word) for word in lengths.split(", ") if word)
        return Envelope(source, tag, nbytes, dtype, shape)

    def _do(self, text: str, async_op: bool, function: Callable[..., Any], *args: Any) -> Any:
        """Of an asynchronous message, a timeline shows how it was begun."""
        if self._trace is None:
            return function(*args)
        begun, failed = time.monotonic_ns(), True
        try:
            result = function(*args)
            failed = False
        finally:
            self._trace.add(f"{text}, async" if async_op else text, self._group, begun, failed)
        return result

    def close(self, finish: bool) -> None:
        """End all that is in flight. `finish` first waits until everything sent is on its way, as far as that is
        possible."""
        if finish and not self._explain.closed:
            self.core.flush()
        self._explain.closed = True
        self.core.close()


class _Explain:
    """The public error for what ended a message. One that all ranks were told of breaks the group here, too."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.closed = False

    def __call__(self, failure: Failure, text: str, seconds: float, touched: bool) -> HocketError:
        error = self._explain(failure, text, seconds)
        self._session.errors[type(error).__name__] += 1
        if touched:
            touch(error)
        return error

    def _explain(self, failure: Failure, text: str, seconds: float) -> HocketError:
        kind, peer, words, relayed = failure.args
        me = self._session.names[self._session.rank]
        error = self._session.explain(failure, text, seconds)
        if relayed:
            self._session.hear(error)
        elif kind == INTERRUPTED and self.closed:
            return GroupBroken(f"{me} in {text}: {words}")
        elif kind == INTERRUPTED:
            return HocketError(f"{me} gave up {text}: {words}")
        elif kind not in (TIMEOUT, CLOSED) and kind != PEER_LOST and peer >= 0 and words:
            return type(error)(f"{me} in {text}, with {self._session.names[peer]}: {words}")
        return error


class Message(Work[Any]):
    """A message on its way, in either direction. Its deadline runs from the call that began it; where that passes, or
    the `timeout` of a `wait`, the message is given up."""

    __slots__ = ()

    _request: MessageRequest  # type: ignore[assignment]

    def __init__(self, request: MessageRequest) -> None:
        self._request = request

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What `wait` would raise."""
        try:
            self.wait(timeout)
        except Exception as error:
            return error
        return None

    def _settled(self) -> bool:
        return self.done()

    @property
    def source(self) -> int:
        """The rank that a receive got its message from. HocketError as long as it has got none; a send gets none."""
        source = self._request.source
        if source < 0:
            raise HocketError(f"{self._name()} has received nothing")
        return source
