"""Objects of Python's, from rank to rank: pickled, and only by methods that say so in their name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

from ..calls.messages import Received
from .member import Member, integer


class ObjectCalls(Member):
    """What is received is unpickled, which may run any code that its sender likes: that is a rank of this group, which
    has proved that it belongs to the job (docs/security.md), and is trusted here like this program itself. No other
    call ever unpickles anything.

    What cannot be pickled raises before anything is sent. What cannot be unpickled here, such as an instance of a class
    that this rank does not have, raises when the call is over, and leaves the group as it was. `timeout` is in seconds;
    there is no `async_op`.
    """

    def broadcast_object(self, obj: Any = None, *, root: int = 0, timeout: float | None = None) -> Any:
        """The root's `obj` on every rank: the root's own, and copies elsewhere. Off the root, `obj` is ignored."""
        return self._objects.broadcast(obj, self._go.rank_of(root, "root"), timeout)

    def gather_object(self, obj: Any, *, root: int = 0, timeout: float | None = None) -> list[Any] | None:
        """A list of all ranks' `obj`, in the order of ranks, on `root`; None elsewhere."""
        return self._objects.gather(obj, self._go.rank_of(root, "root"), timeout)

    def all_gather_object(self, obj: Any, *, timeout: float | None = None) -> list[Any]:
        """A list of all ranks' `obj`, in the order of ranks, on every rank."""
        return self._objects.all_gather(obj, timeout)

    def scatter_object(self, objs: Sequence[Any] | None = None, *, root: int = 0, timeout: float | None = None) -> Any:
        """`objs[r]` of the root's sequence on rank r. Off the root `objs` is ignored. Raises ValueError where there is
        not one object for each rank."""
        return self._objects.scatter(objs, self._go.rank_of(root, "root"), timeout)

    def send_object(self, obj: Any, dst: int, *, tag: int = 0, timeout: float | None = None) -> None:
        """Send `obj` to rank `dst`, which receives it by `recv_object` with the same `tag`; else as `send`."""
        dst = self._go.rank_of(dst, "dst")
        self._calls.require_usable(inside=True)
        self._objects.send(obj, dst, integer(tag, "tag"), self._go.seconds(timeout))

    @overload
    def recv_object(
        self,
        src: int | None = ...,
        *,
        tag: int = ...,
        timeout: float | None = ...,
        return_source: Literal[True],
    ) -> Received: ...
    @overload
    def recv_object(
        self, src: int | None = ..., *, tag: int = ..., timeout: float | None = ..., return_source: bool = ...
    ) -> Any: ...
    def recv_object(
        self, src: int | None = None, *, tag: int = 0, timeout: float | None = None, return_source: bool = False
    ) -> Any:
        """The object that rank `src` (None: any) sent with `tag`; with `return_source`, `(object, source)`.

        Raises MismatchError when an array comes instead, which is lost then and is not unpickled; else as `recv`.
        """
        source = self._source(src)
        self._calls.require_usable(inside=True)
        return self._objects.receive(source, integer(tag, "tag"), self._go.seconds(timeout), sourced=return_source)
