"""Messages from one rank to another."""

from __future__ import annotations

from typing import Any, Literal, TypeVar, overload

import numpy as np

from ..arrays.adopt import adopt, overlap, writable
from ..calls.fastpath import RECV, SEND, fast_path
from ..calls.messages import Envelope, Message, Received
from ..errors import HocketError, touch
from .member import Array, Member, integer

T = TypeVar("T")


class Letters(Member):
    """Tagged messages, beside the collectives and independent of them."""

    @overload
    def send(
        self, x: Any, dst: int, *, tag: int = ..., timeout: float | None = ..., async_op: Literal[False] = ...
    ) -> None: ...
    @overload
    def send(
        self, x: Any, dst: int, *, tag: int = ..., timeout: float | None = ..., async_op: Literal[True]
    ) -> Message: ...
    @overload
    def send(self, x: Any, dst: int, *, tag: int = ..., timeout: float | None = ..., async_op: bool = ...) -> Any: ...
    @fast_path(SEND)
    def send(self, x: Any, dst: int, *, tag: int = 0, timeout: float | None = None, async_op: bool = False) -> Any:
        """Send `x` to rank `dst`, which receives it with the same `tag`.

        Returns when `x` may be changed again: for a short message at once, for a long one when it is being received.
        Messages of one tag arrive in the order in which they were sent.

        What nobody receives yet is kept by its receiver, up to 64 MiB and 65536 messages of each source; what is sent
        after that waits, here, until some of it is received. Of messages that are not done, a group has up to 65536
        sends, beyond which the next one waits, with `async_op` too, and as many receives, beyond which HocketError is
        raised.

        Messages move while this rank is in a call of the group, or waits: what `async_op` has begun and is not done may
        stay where it is until then.
        """
        dst = self._go.rank_of(dst, "dst")
        self._calls.require_usable(inside=True)
        return self._messages.send(x, dst, integer(tag, "tag"), self._go.seconds(timeout), async_op)

    @overload
    def recv(self, src: int | None = ..., *, out: None = ..., tag: int = ..., timeout: float | None = ...) -> Array: ...
    @overload
    def recv(self, src: int | None = ..., *, out: T, tag: int = ..., timeout: float | None = ...) -> T: ...
    @overload
    def recv(
        self,
        src: int | None = ...,
        *,
        out: Any = ...,
        tag: int = ...,
        timeout: float | None = ...,
        return_source: Literal[True],
    ) -> Received: ...
    @overload
    def recv(
        self,
        src: int | None = ...,
        *,
        out: Any = ...,
        tag: int = ...,
        timeout: float | None = ...,
        async_op: Literal[True],
    ) -> Message: ...
    @overload
    def recv(
        self,
        src: int | None = ...,
        *,
        out: Any = ...,
        tag: int = ...,
        timeout: float | None = ...,
        async_op: bool = ...,
        return_source: bool = ...,
    ) -> Any: ...
    @fast_path(RECV)
    def recv(
        self,
        src: int | None = None,
        *,
        out: Any = None,
        tag: int = 0,
        timeout: float | None = None,
        async_op: bool = False,
        return_source: bool = False,
    ) -> Any:
        """The message that rank `src` (None: any) sent with `tag`, in `out` or in a new array of its dtype and shape.

        With `return_source` it comes in a pair, `(message, source)`, with the rank that sent it; with `async_op` that
        is the `source` of the `Work`.

        Raises MismatchError when `out` has another dtype or shape than the message, or when that is an object, which is
        lost then; CollectiveTimeout, which tells of other messages that nobody has received, when it does not come in
        time; the message is given up then.
        """
        source, number = self._source(src), integer(tag, "tag")
        self._calls.require_usable(inside=True)
        if async_op and return_source:
            raise ValueError("with async_op, the source is that of the Work: leave out return_source")
        seconds = self._go.seconds(timeout)
        return self._messages.receive(source, out, number, seconds, async_op, sourced=return_source)

    def sendrecv(
        self,
        x: Any,
        dst: int,
        src: int | None,
        *,
        out: Any = None,
        tag: int = 0,
        recv_tag: int | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Send `x` to rank `dst`, and receive what rank `src` (None: any) sends, at the same time: so ranks may do this
        in a ring, or two with each other, however long their messages are.

        `out` may be `x`, or a part of it. `tag` is of both messages, unless `recv_tag` is given for the one that comes.
        Returns and raises what `recv` does.
        """
        dst, source = self._go.rank_of(dst, "dst"), self._source(src)
        tags = integer(tag, "tag"), integer(tag if recv_tag is None else recv_tag, "recv_tag")
        self._calls.require_usable(inside=True)
        seconds = self._go.seconds(timeout)
        given = np.asarray(adopt(x))
        if out is not None and overlap(given, writable(out)):
            given = given.copy()
        coming = self._messages.receive(source, out, tags[1], seconds, True)
        try:
            self._messages.send(given, dst, tags[0], seconds, False)
        except BaseException as error:
            lost = coming.exception(0.0)  # it is given up
            if out is not None and (lost is None or (isinstance(lost, HocketError) and lost.out_touched)):
                touch(error)
            raise
        return coming.wait()

    def probe(self, src: int | None = None, *, tag: int = 0, timeout: float | None = None) -> Envelope:
        """Wait for a message of rank `src` (None: any) with `tag`, and tell of it: `recv` from its `source` gets it.

        Returns an `Envelope`: source, tag, bytes, and of an array dtype and shape, which an object's are None. Another
        thread of this rank may receive it in between. Raises CollectiveTimeout when none comes in time.
        """
        source, number = self._source(src), integer(tag, "tag")
        self._calls.require_usable(inside=True)
        found = self._messages.probe(source, number, self._go.seconds(timeout), waits=True)
        assert found is not None
        return found

    def iprobe(self, src: int | None = None, *, tag: int = 0) -> Envelope | None:
        """As `probe`, of what has come already; None where nothing has, at once."""
        source, number = self._source(src), integer(tag, "tag")
        self._calls.require_usable(inside=True)
        return self._messages.probe(source, number, self._go.timeout, waits=False)
