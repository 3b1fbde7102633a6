"""Keeps torch.compile out of this package: at a call that it cannot compile it would otherwise go on inside of it."""

from __future__ import annotations

from types import FunctionType
from typing import TypeVar

from torch._C._dynamo import eval_frame

C = TypeVar("C", bound=type)

_SKIP = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.SKIP)


def uncompiled(cls: C) -> C:
    """A class whose methods, and all that they call, run as they are. Unlike `torch.compiler.disable` this wraps
    nothing, and does not import the compiler."""
    for member in vars(cls).values():
        if isinstance(member, FunctionType):
            eval_frame.set_code_exec_strategy(member.__code__, _SKIP)
    return cls
