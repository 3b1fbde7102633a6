"""Tagged messages between two ranks: `Group.send` and `Group.recv`, beside the collectives and independent of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from .. import _core
from ..arrays.adopt import adopt, writable
from ..arrays.ops import DTYPES
from .session import Session
from .work import Work

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

ANY = -1  # any source


class Messages:
    """One rank's mailbox. A message's dtype and shape travel with it, and a receive that expects others is an error."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.core = _core.Messages(session.core)
        self.box = session.endpoint.mailbox
        self._pending: list[Message] = []  # whose memory is still in use, whether or not anyone waits

    def send(self, x: Any, dst: int, tag: int, seconds: float) -> Message:
        """Begin to send `x`, which must be left alone until that is done."""
        array = adopt(x)
        data = np.ascontiguousarray(array)
        meta = _meta(array)
        self.core.know(data, meta)
        ticket = self.box.send(dst, tag, meta, data.ctypes.data, data.nbytes)
        return self._keep(Message(self, ticket, f"send(dst={dst}, tag={tag})", seconds, data, _nothing, True))

    def receive(self, src: int, out: Any, tag: int, seconds: float) -> Message:
        """Begin to receive into `out`, or into a new array of what comes where that is None."""
        text = f"recv(src={'any' if src == ANY else src}, tag={tag})"
        if out is None:
            return self._keep(Message(self, self.box.receive_any(src, tag), text, seconds, None, lambda array: array))
        result = writable(out)
        target = result if result.flags.c_contiguous else np.empty(result.shape, result.dtype)

        def deliver(target: Array) -> Any:
            if target is not result:
                result[...] = target
            return out

        meta = _meta(result)
        self.core.know(target, meta)
        ticket = self.box.receive(src, tag, meta, target.ctypes.data, target.nbytes)
        return self._keep(Message(self, ticket, text, seconds, target, deliver))

    def finish(self) -> None:
        """Wait until everything sent is on its way, as far as that is possible."""
        for message in self._pending:
            if message.sends:
                message.exception()
        self._pending.clear()

    def _keep(self, message: Message) -> Message:
        self._pending = [*(m for m in self._pending if not m.done()), message]
        return message


class Message(Work[Any]):
    """A message on its way, in either direction. Its deadline runs from the call that began it; where that passes, or
    the `timeout` of a `wait`, the message is given up."""

    def __init__(
        self,
        messages: Messages,
        ticket: _core.Ticket,
        text: str,
        seconds: float,
        memory: Array | None,
        deliver: Callable[[Array], Any],
        sends: bool = False,
    ) -> None:
        self.sends = sends
        self._messages, self._ticket, self._text, self._seconds = messages, ticket, text, seconds
        self._memory, self._deliver = memory, deliver
        self._deadline = time.monotonic() + seconds
        self._turn = threading.Lock()
        self._result: tuple[Any, BaseException | None] | None = None

    def wait(self, timeout: float | None = None) -> Any:
        """The result: None for a send, the array for a receive. Raises CollectiveTimeout, PeerLost or MismatchError."""
        with self._turn:
            if self._result is None:
                self._result = self._finish(timeout)
        result, error = self._result
        if error is not None:
            raise error
        return result

    def done(self) -> bool:
        """Whether `wait` would return, or raise, at once."""
        if self._result is not None:
            return True
        box = self._messages.box
        return box.arrived(self._ticket) if self._memory is None else box.done(self._ticket)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What `wait` would raise."""
        try:
            self.wait(timeout)
        except Exception as error:
            return error
        return None

    @property
    def source(self) -> int:
        """The rank that a finished receive came from."""
        return self._messages.box.source(self._ticket)

    def _name(self) -> str:
        return self._text

    def _finish(self, timeout: float | None) -> tuple[Any, BaseException | None]:
        box = self._messages.box
        left = self._deadline - time.monotonic()
        seconds = left if timeout is None else min(left, timeout)
        try:
            if self._memory is None:
                self._memory = _array(box.arrival(self._ticket, seconds))
                box.accept(self._ticket, self._memory.ctypes.data)
            box.wait(self._ticket, self._deadline - time.monotonic() if timeout is None else seconds)
        except _core.Failure as failure:
            shown = self._seconds if timeout is None else timeout
            error = self._messages.session.explain(failure, self._text, shown)
            if failure.args[3]:
                self._messages.session.hear(error)
            return None, error
        return self._deliver(self._memory), None


def _meta(array: Array) -> str:
    return f"{array.dtype.name}[{', '.join(map(str, array.shape))}]"


def _array(meta: str) -> Array:
    """An array of the dtype and shape that `_meta` wrote."""
    name, _, shape = meta.rstrip("]").partition("[")
    dtype = next(dtype for dtype in DTYPES if dtype.name == name)
    return np.empty(tuple(int(n) for n in shape.split(", ") if n), dtype)


def _nothing(_: Array) -> None:
    return None
