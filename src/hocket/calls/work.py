"""A call in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, Generic, TypeVar, cast

from .._core import Request
from ..errors import CollectiveTimeout

T = TypeVar("T")


class Work(Generic[T]):
    """What a call with `async_op=True` gives back: the promise of its result. Arrays of the call must be left alone
    until it is done. It can be awaited in asyncio.
    """

    __slots__ = ("__weakref__", "_request")

    _request: Request  # put there by what makes it, which is no function of Python's

    def wait(self, timeout: float | None = None) -> T:
        """The result, as soon as it is there. Raises what the call raised.

        The call itself ends by its own deadline. `timeout`, in seconds, is how long to wait for it here: afterwards
        CollectiveTimeout is raised, and the call goes on. Without it, this thread makes the call, and those before it,
        if they have not begun.
        """
        result = self._request.wait(timeout)
        if result is NotImplemented:
            raise CollectiveTimeout(
                f"wait timed out after {timeout:g} s; {self._name()} is still in flight: wait again"
            )
        return cast(T, result)

    def result(self, timeout: float | None = None) -> T:
        """The same as `wait`."""
        return self.wait(timeout)

    def done(self) -> bool:
        """Whether the call has ended, well or badly."""
        return self._request.over

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the call raised, None if it went well. Waits for it as `wait` does."""
        try:
            self.wait(timeout)
        except BaseException:
            if not self.done():
                raise
        return self._request.error

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.to_thread(self.wait).__await__()

    def __repr__(self) -> str:
        return f"<Work {self._name()}, {'done' if self.done() else 'in flight'}>"

    def _name(self) -> str:
        """What errors call it."""
        return self._request.text
