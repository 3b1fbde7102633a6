"""What a call gives back.

Torch takes a `Work` from Python only under conditions, each learnt from a crash or a hang: `wait` takes a timeout and
raises the error itself; `get_future` holds a list of tensors; and since an exception that Python sets on a future is
not seen by C++, the future is the child of another one, made by a callback that raises.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from ..calls.messages import Message
from ..calls.work import Work
from ..errors import HocketError
from .tensors import Row
from .uncompiled import uncompiled

Tensors: TypeAlias = Sequence[torch.Tensor]
Background: TypeAlias = Callable[[Callable[[], None]], object]
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
    """A call that may still be in flight. `tensors` are its results, and `work` is over when it is."""

    def __init__(self, tensors: Tensors, work: Work[Any]) -> None:
        super().__init__()
        self._tensors, self._work = list(tensors), work

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """True, once the call has ended. Raises its error, or CollectiveTimeout after `timeout`."""
        self._await(timeout.total_seconds() if timeout > NO_TIMEOUT else None)
        return True

    synchronize = wait

    def _await(self, seconds: float | None = None) -> None:
        self._work.wait(seconds)

    def is_completed(self) -> bool:
        """Whether the call has ended, well or badly."""
        return self._work.done()

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """Its error, if it has ended badly."""
        return self._work.exception() if self.is_completed() else None

    def result(self) -> list[torch.Tensor]:
        """The tensors that hold the result, once the call has ended."""
        self.wait()
        return self._tensors

    def _future(self) -> tuple[Any, Any]:
        """A future of the outcome, and the one that is to be set, to anything, when it is there."""
        trigger: Any = torch.futures.Future()
        return trigger.then(self._outcome), trigger

    def _outcome(self, _: object) -> list[torch.Tensor]:
        self._await()
        return self._tensors


@uncompiled
class Collective(Pending):
    """A collective call in a queue."""

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """A future of the tensors that hold the result, which is done: this waits for the call to end.

        So its callbacks run at once, in the caller, at the same place of the program on every rank. Were they to run
        whenever the call ends, those that make calls themselves (PowerSGD's do) would make them in another order on
        every rank.
        """
        self._work.exception()
        future: torch.futures.Future[list[torch.Tensor]]
        future, trigger = self._future()
        trigger.set_result(None)
        return future


@uncompiled
class Transfer(Pending):
    """A message on its way. Whoever looks whether it has arrived, or waits for it, moves it on.

    A received one comes in `row`. `background` runs a function on a thread of its own.
    """

    _work: Message

    def __init__(self, background: Background, message: Message, tensor: torch.Tensor, row: Row | None = None) -> None:
        super().__init__([tensor], message)
        self._background, self._row = background, row
        self._turn = threading.Lock()

    def _await(self, seconds: float | None = None) -> None:
        with self._turn:
            self._work.wait(seconds)
            row, self._row = self._row, None
            if row is not None:
                row.put_back()

    def is_completed(self) -> bool:
        """Whether the message has arrived, or been sent."""
        if not self._work.done():
            return False
        with suppress(HocketError):
            self._await()
        return True

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """A future of the tensor. A thread waits for the message from here on; it also runs the callbacks."""
        future: torch.futures.Future[list[torch.Tensor]]
        future, trigger = self._future()
        if self.is_completed():
            trigger.set_result(None)
        else:
            self._background(lambda: trigger.set_result(self._work.exception()))
        return future

    def source_rank(self) -> int:
        """The rank in the group that the message came from."""
        return self._work.source

    _source_rank = source_rank
