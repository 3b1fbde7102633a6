"""Tagged messages between two ranks: `Group.send` and `Group.recv`, beside the collectives and independent of them.

What is in flight, and the memory that it uses, is the core's: csrc/python/messages.h. Here arguments become arrays, and
failures the errors that users see.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .._core import Failure, MessageRequest, Trace
from .._core import Messages as Core
from ..arrays.adopt import adopt, writable
from ..arrays.ops import DTYPES
from ..errors import GroupBroken, HocketError
from .session import CLOSED, INTERRUPTED, PEER_LOST, TIMEOUT, Session
from .work import Work

ANY = -1  # any source


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
        sent = self._do(text, async_op, self.core.send, data, dst, tag, text, seconds, not async_op)
        return Message(sent) if async_op else None

    def receive(self, src: int, out: Any, tag: int, seconds: float, async_op: bool) -> Any:
        """Receive into `out`, or into a new array of what comes where that is None."""
        text = f"recv(src={'any' if src == ANY else src}, tag={tag})"
        if out is None:
            got = self._do(text, async_op, self.core.receive_new, src, tag, text, seconds, not async_op)
        else:
            array = np.asarray(writable(out))
            memory = array if array.flags.c_contiguous else np.empty(array.shape, array.dtype)
            what = src, tag, memory, array, out, text, seconds, not async_op
            got = self._do(text, async_op, self.core.receive, *what)
        return Message(got) if async_op else got

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

    def __call__(self, failure: Failure, text: str, seconds: float) -> HocketError:
        error = self._explain(failure, text, seconds)
        self._session.errors[type(error).__name__] += 1
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

    @property
    def source(self) -> int:
        """The rank that a receive got its message from. HocketError as long as it has got none; a send gets none."""
        source = self._request.source
        if source < 0:
            raise HocketError(f"{self._name()} has received nothing")
        return source
