"""Functions that are called one at a time and in order, and the thread that calls those for which nobody waits."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

from .._core import Requests
from .work import Work

T = TypeVar("T")


class Executor:
    """Calls functions one at a time: each on a thread that waits for it, or on one engine thread where nobody does.
    That thread begins with the first that may need it.

    `requests` is where they are put; of its own by default.
    """

    def __init__(self, requests: Requests | None = None) -> None:
        self.requests = requests or Requests()
        self.requests.work = Work
        self._engine: threading.Thread | None = None
        self._dismiss = weakref.finalize(self, self.requests.dismiss)
        self._dismiss.atexit = False

    @property
    def busy(self) -> bool:
        """Whether something has been put and not done."""
        return self.requests.busy

    def do(self, function: Callable[[], T], seconds: float) -> T:
        """What `function` returns, when all that was put before it is done. NotImplemented where `seconds` pass before
        it begins."""
        result: T = self.requests.inside(function, seconds)
        return result

    def put(self, function: Callable[[], T], text: str) -> Work[T]:
        """The promise of that. Those of one `text`, which is what an error calls them, are expected to be waited for
        alike: at once, or later."""
        self.start_engine()
        work: Work[T] = self.requests.put(function, text)
        return work

    def start_engine(self) -> None:
        """Start the thread, if that has not been done. Of several threads that ask for it, one does it."""
        if self._engine is None and self.requests.claim():
            # A daemon, so that the interpreter does not wait for it before it closes the groups; it ends with this.
            engine = threading.Thread(target=self.requests.serve, name="hocket-engine", daemon=True)
            engine.start()
            self._engine = engine
            _engines.add(self)

    def close(self) -> None:
        """Do what was put, unless this is a part of it, and end the thread."""
        self.requests.stop()
        self._join(None)

    def dismiss(self) -> None:
        """End the thread, whatever was put. It is at nothing: what it does keeps its executor in use."""
        self.requests.dismiss()
        self._join(1.0)

    def _join(self, timeout: float | None) -> None:
        if self._engine is not None and self._engine is not threading.current_thread():
            self._engine.join(timeout)


# Python ends a thread that runs on when the interpreter has ended, inside of whatever that is at: in a frame of another
# library's C++, torch's say, that ends the process with an error.
_engines: weakref.WeakSet[Executor] = weakref.WeakSet()
os.register_at_fork(after_in_child=_engines.clear)


def end_engines() -> None:
    """End the threads of all executors, whose groups have ended what those are in. For the end of the interpreter."""
    for executor in list(_engines):
        executor.dismiss()
