"""What a call gives back, and who executes the calls that nobody waits for.

Torch takes a `Work` from Python only under conditions, each learnt from a crash or a hang: `wait` takes a timeout and
raises the error itself; `get_future` holds a list of tensors; and since an exception that Python sets on a future is
not seen by C++, the future is the child of another one, made by a callback that raises.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from ..errors import CollectiveTimeout
from ..messages import Message
from .tensors import Row
from .uncompiled import uncompiled

Tensors: TypeAlias = Sequence[torch.Tensor]
NO_TIMEOUT = timedelta(0)


@uncompiled
class Done(dist.Work):
    """A call that had ended when it returned, with these results. One without any serves for all calls that are not
    asynchronous, whose result nobody asks for."""

    def __init__(self, tensors: Tensors = ()) -> None:
        super().__init__()
        self._tensors = list(tensors)

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """True, at once."""
        return True

    synchronize = wait

    def is_completed(self) -> bool:
        """True."""
        return True

    is_success = is_completed

    def exception(self) -> None:
        """None: an error was raised by the call."""

    def result(self) -> list[torch.Tensor]:
        """The tensors that hold the result."""
        return self._tensors

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """A future that is done."""
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        future.set_result(self._tensors)
        return future


DONE = Done()


@uncompiled
class Pending(dist.Work):
    """A call that may still be in flight. `tensors` are its results."""

    def __init__(self, tensors: Tensors) -> None:
        super().__init__()
        self._tensors = list(tensors)
        self._ended = threading.Lock()  # held until the call has ended
        self._ended.acquire()
        self._over = False
        self._error: BaseException | None = None

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """True, once the call has ended. Raises its error, or CollectiveTimeout after `timeout`."""
        if not self._over:
            self._await(timeout.total_seconds() if timeout > NO_TIMEOUT else -1)
        if self._error is not None:
            raise self._error
        return True

    synchronize = wait

    def _await(self, seconds: float) -> None:
        """Returns when the call has ended. Below zero, `seconds` are endless."""
        if not self._ended.acquire(timeout=seconds):
            raise CollectiveTimeout(f"the call is still in flight after {seconds:g} s; wait again")
        self._ended.release()

    def end(self, error: BaseException | None) -> None:
        """The call has ended."""
        self._error, self._over = error, True
        self._ended.release()

    def is_completed(self) -> bool:
        """Whether the call has ended, well or badly."""
        return self._over

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        """Its error, if it has ended badly."""
        return self._error

    def result(self) -> list[torch.Tensor]:
        """The tensors that hold the result, once the call has ended."""
        self.wait()
        return self._tensors

    def _future(self) -> tuple[Any, Any]:
        """A future of the outcome, and the one that is to be set, to anything, when it is there."""
        trigger: Any = torch.futures.Future()
        return trigger.then(self._outcome), trigger

    def _outcome(self, _: object) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error
        return self._tensors


@uncompiled
class Collective(Pending):
    """A collective call in a queue. `where` tells the line of the user's program that made it."""

    def __init__(self, queue: Queue, tensors: Tensors, job: Callable[[], None], where: str) -> None:
        super().__init__(tensors)
        self._queue, self._job, self._where = queue, job, where

    def run(self) -> None:
        """Do it."""
        error: BaseException | None = None
        try:
            self._queue.perform(self._job, self._where)
        except BaseException as raised:
            error = raised
        self.end(error)

    def _await(self, seconds: float) -> None:
        if seconds < 0:  # who waits without end may as well do what there is to do
            self._queue.lead(self)
        super()._await(seconds)

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """A future of the tensors that hold the result, which is done: this waits for the call to end.

        So its callbacks run at once, in the caller, at the same place of the program on every rank. Were they to run
        whenever the call ends, those that make calls themselves (PowerSGD's do) would make them in another order on
        every rank.
        """
        self._await(-1)
        future: torch.futures.Future[list[torch.Tensor]]
        future, trigger = self._future()
        trigger.set_result(None)
        return future


@uncompiled
class Transfer(Pending):
    """A message on its way. Whoever looks whether it has arrived, or waits for it, moves it on."""

    def __init__(self, queue: Queue, message: Message, tensor: torch.Tensor, row: Row | None = None) -> None:
        super().__init__([tensor])
        self._queue, self._message, self._row = queue, message, row
        self._turn = threading.Lock()

    def _await(self, seconds: float) -> None:
        with self._turn:
            if self._over:
                return
            error = self._message.exception(seconds if seconds > 0 else None)
            if error is None and self._row is not None:
                self._row.put_back()
            self.end(error)

    def is_completed(self) -> bool:
        """Whether the message has arrived, or been sent."""
        if not self._over and self._message.done():
            self._await(-1)
        return self._over

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """A future of the tensor. A thread waits for the message from here on; it also runs the callbacks."""
        future: torch.futures.Future[list[torch.Tensor]]
        future, trigger = self._future()

        def arrive() -> None:
            self._await(-1)
            trigger.set_result(None)

        if self.is_completed():
            arrive()
        else:
            self._queue.background(arrive)
        return future

    def source_rank(self) -> int:
        """The rank in the group that the message came from."""
        return self._message.source

    _source_rank = source_rank


class Queue:
    """Executes calls one after the other, in the order of `put`, on whatever thread is at hand: one of its own, or one
    that waits for a call. `perform(job, where)` does one.

    Its threads are joined when it is closed, or when the interpreter exits.
    """

    def __init__(self, perform: Callable[[Callable[[], None], str], None]) -> None:
        self.perform = perform
        self.busy = False  # whether a call that was put has not been done
        self._lock = threading.Lock()
        self._waiting: deque[Collective] = deque()
        self._led = self._summoned = False  # whether a thread is doing a call, and whether one has been sent for
        self._leader = ThreadPoolExecutor(1, "hocket-torch")
        # As many as there are futures of messages, which nobody else may wait for.
        self._others = ThreadPoolExecutor(1 << 16, "hocket-torch-message")

    def put(self, work: Collective) -> None:
        """Do `work` after all that was put before."""
        with self._lock:
            self._waiting.append(work)
            self.busy = True
            self._summon()

    def _summon(self) -> None:
        if not self._summoned:
            self._summoned = True
            self._leader.submit(self._serve)

    def _serve(self) -> None:
        with self._lock:
            self._summoned = False
        self.lead()

    def lead(self, until: Collective | None = None) -> None:
        """Do the calls that wait, unless another thread does already; up to `until`, if it is given."""
        while True:
            with self._lock:
                if self._led or not self._waiting:
                    return
                if until is not None and until.is_completed():
                    self._summon()
                    return
                self._led = True
                work = self._waiting.popleft()
            work.run()
            with self._lock:
                self._led, self.busy = False, bool(self._waiting)

    def background(self, job: Callable[[], None]) -> None:
        """Run `job` on a thread of its own, apart from the order of calls."""
        self._others.submit(job)

    def close(self) -> None:
        """Do what was put, and end the threads."""
        ours = threading.current_thread().name.startswith("hocket-torch")
        for pool in (self._leader, self._others):
            pool.shutdown(wait=not ours)
