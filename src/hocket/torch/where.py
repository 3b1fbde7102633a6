"""Which line of the user's program made a call, and what the other ranks' lines were when the calls did not match."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from ..errors import MismatchError

_OURS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))
_BACKWARD = torch.autograd.graph._engine_run_backward.__code__
PATIENCE = timedelta(seconds=1)  # for the other ranks to say where they were


def line() -> str:
    """The innermost line of this thread's stack that is neither torch's nor hocket's; empty where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}" if frame is not None else ""


def called_by_backward() -> bool:
    """Whether it was autograd that made the call: the reducer of DDP does, from C++."""
    caller = sys._getframe(1).f_back
    return caller is not None and caller.f_code is _BACKWARD


def with_lines(error: MismatchError, store: Any, rank: int, size: int, here: str) -> MismatchError:
    """The same error, its text followed by the line of each rank that tells it within a second."""
    text = [str(error)]
    with suppress(RuntimeError):  # the store went away with its process
        store.set(f"hocket/line/{rank}", here or "an unknown line")
        keys = [f"hocket/line/{r}" for r in range(size)]
        with suppress(RuntimeError):  # one of them did not say
            store.wait(keys, PATIENCE)
        text += [f"rank {r}: {store.get(key).decode()}" for r, key in enumerate(keys) if store.check([key])]
    return MismatchError("\n  ".join(text))
