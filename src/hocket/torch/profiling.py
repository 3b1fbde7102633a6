"""What torch.profiler sees of a call: an event as gloo's, `hocket:all_reduce`, with the shapes of what was given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch._C._profiler import _RecordFunctionFast

profiled: Callable[[], bool] = torch.autograd._profiler_enabled
_UNSEEN: AbstractContextManager[Any] = nullcontext()


def event(name: str, inputs: Sequence[torch.Tensor]) -> AbstractContextManager[Any]:
    """Around a call that is made here and now."""
    around: AbstractContextManager[Any] = _RecordFunctionFast(f"hocket:{name}", list(inputs)) if profiled() else _UNSEEN
    return around


def seen(name: str, inputs: Sequence[torch.Tensor], job: Callable[..., object]) -> Callable[..., object]:
    """A job within an event. For the call that is to cost least where nobody looks on: it asks first."""

    def run(*args: object) -> object:
        with event(name, inputs):
            return job(*args)

    return run


def followed(name: str, job: Callable[[], object]) -> Callable[[], object]:
    """A job that will be run by whatever thread: its event begins now, and ends with it."""
    if not profiled():
        return job
    ended: Any = torch.futures.Future()
    with torch.profiler.record_function(f"hocket:{name}") as record:
        record._call_end_callbacks_on_future(ended)

    def run() -> object:
        try:
            return job()
        finally:
            ended.set_result(None)

    return run
