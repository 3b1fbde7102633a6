"""A call in flight."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Generator
from typing import Any, Generic, TypeVar

from .errors import CollectiveTimeout

T = TypeVar("T")


class Work(Generic[T]):
    """What a call with `async_op=True` gives back: the promise of its result. Arrays of the call must be left alone
    until it is done. It can be awaited in asyncio.
    """

    def __init__(self, future: concurrent.futures.Future[T], text: str) -> None:
        self._future = future
        self._text = text

    def wait(self, timeout: float | None = None) -> T:
        """The result, as soon as it is there. Raises what the call raised.

        The call itself ends by its own deadline. `timeout`, in seconds, is how long to wait for it here: afterwards
        CollectiveTimeout is raised, and the call goes on.
        """
        try:
            return self._future.result(timeout)
        except concurrent.futures.TimeoutError:
            if self._future.done():  # it was the call's own error
                raise
            raise CollectiveTimeout(f"{self._text} is still in flight after {timeout:g} s; wait again") from None

    def result(self, timeout: float | None = None) -> T:
        """The same as `wait`."""
        return self.wait(timeout)

    def done(self) -> bool:
        """Whether the call has ended, well or badly."""
        return self._future.done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the call raised, None if it went well. Waits for it as `wait` does."""
        try:
            return self._future.exception(timeout)
        except concurrent.futures.TimeoutError:
            raise CollectiveTimeout(f"{self._text} is still in flight after {timeout:g} s; wait again") from None

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self._future).__await__()

    def __repr__(self) -> str:
        return f"<Work {self._text}, {'done' if self.done() else 'in flight'}>"
