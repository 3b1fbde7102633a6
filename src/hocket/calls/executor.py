"""A queue of jobs, and the thread that does those for which nobody waits."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

from .. import _core
from .work import Work

T = TypeVar("T")


class Jobs:
    """Does jobs one at a time, in the order in which they were put: each on a thread that waits for it, or on one
    engine thread where nobody does. That thread begins with the first job that may need it.

    `queue` is where they are put; one of its own by default.
    """

    def __init__(self, queue: _core.Jobs | None = None) -> None:
        self._queue = queue or _core.Jobs()
        self._queue.work = Work
        self._engine: threading.Thread | None = None
        self._stop: Callable[[], object] = self._queue.stop

    @property
    def busy(self) -> bool:
        """Whether a job has been put and not done."""
        return self._queue.busy

    def do(self, job: Callable[[], T], text: str) -> T:
        """What `job` returns, when all before it are done. `text` is what an error calls it."""
        work: Work[T] = self._queue.put(job, text, True)
        return work.wait()

    def put(self, job: Callable[[], T], text: str) -> Work[T]:
        """The promise of that. Jobs of one `text` are expected to be waited for alike: at once, or later."""
        if self._engine is None:
            self._start_engine()
        work: Work[T] = self._queue.put(job, text, False)
        return work

    def close(self) -> None:
        """Do what was put, unless this is one of the jobs, and end the thread."""
        self._stop()

    def _start_engine(self) -> None:
        # A daemon, so that the interpreter does not wait for it before it closes the groups; it ends with this.
        self._engine = threading.Thread(target=self._queue.serve, name="hocket-engine", daemon=True)
        self._engine.start()
        self._stop = weakref.finalize(self, _stop, self._queue, self._engine)


def _stop(queue: _core.Jobs, engine: threading.Thread) -> None:
    if engine.is_alive():  # as in a process that was forked meanwhile it is not
        queue.stop()
        if engine is not threading.current_thread():
            engine.join()
