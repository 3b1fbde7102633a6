"""A call in flight."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

from .._core import Request
from ..deadline import Deadline
from ..errors import CollectiveTimeout

T = TypeVar("T")

LONGEST = 0.001  # seconds between two looks of wait_any


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
            raise _still([self], f"wait timed out after {timeout:g} s; {self._name()} is still in flight: wait again")
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
        import asyncio  # no small matter, for who awaits nothing

        return asyncio.to_thread(self.wait).__await__()

    def __repr__(self) -> str:
        return f"<Work {self._name()}, {'done' if self.done() else 'in flight'}>"

    def _settled(self) -> bool:
        """Whether `wait` would return or raise at once; it ends by this where its deadline has passed."""
        try:
            return self._request.over or self._request.wait(0.0) is not NotImplemented
        except Exception:
            return self._request.over

    def _name(self) -> str:
        """What errors call it."""
        return self._request.text


def _still(works: Iterable[Work[Any]], text: str) -> CollectiveTimeout:
    """The error of a wait for them, which go on."""
    error = CollectiveTimeout(text)
    error.out_touched = any(work._request.writes for work in works)
    return error


def wait_all(works: Iterable[Work[T]], timeout: float | None = None) -> list[T]:
    """The results of calls and messages in flight, in the order in which they are given; they may be of several groups.

    All of them are waited for, whatever becomes of each; then the first error among them is raised. `timeout`, in
    seconds, is for all together, and means what it means to `Work.wait`.
    """
    given, deadline = list(works), None if timeout is None else Deadline(timeout)
    for work in given:
        _ended(work, None if deadline is None else deadline.left())
    return [work.wait(0.0) for work in given]


def _ended(work: Work[Any], timeout: float | None) -> None:
    """Wait for it, however it ends."""
    with suppress(Exception):
        work.wait(timeout)


def wait_any(works: Iterable[Work[T]], timeout: float | None = None) -> tuple[int, T]:
    """The place of one that is done, and its result, as soon as there is one; they may be of several groups.

    Raises what that one raised, ValueError where there are none to wait for, and CollectiveTimeout where none is done
    after `timeout` seconds; all of them go on then, messages too. It looks at them in turn, at most one ms apart.
    """
    given, deadline, pause = list(works), None if timeout is None else Deadline(timeout), 0.0
    if not given:
        raise ValueError("there is nothing to wait for")
    while True:
        for place, work in enumerate(given):
            if work._settled():
                return place, work.wait()
        if deadline is not None and not deadline.left():
            raise _still(given, f"none of {len(given)} calls is done after {timeout:g} s; wait again")
        time.sleep(pause)
        pause = min(LONGEST, pause + LONGEST / 64)
