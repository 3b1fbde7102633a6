"""Who made a call."""

from __future__ import annotations

import sys

import torch

_BACKWARD = torch.autograd.graph._engine_run_backward.__code__


def called_by_backward() -> bool:
    """Whether it was autograd that made the call: the reducer of DDP does, from C++."""
    caller = sys._getframe(1).f_back
    return caller is not None and caller.f_code is _BACKWARD
