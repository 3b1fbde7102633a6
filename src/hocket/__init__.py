"""hocket: collective communication between processes.

    import hocket
    with hocket.init() as group:
        y = group.all_reduce(x)

Start several processes with `hocket run -n 4 script.py`, or call `hocket.spawn(function, 4)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._core import VERSION
from .arrays.ops import whole_rows
from .calls.messages import Envelope, Received
from .calls.work import Work, wait_all, wait_any
from .errors import (
    CollectiveTimeout,
    GroupBroken,
    HocketError,
    MismatchError,
    PeerLost,
    PlanError,
    RendezvousError,
)
from .group import Group, init, join
from .group.elastic import elastic
from .plans.algorithms import plan
from .plans.check import Facts, check
from .plans.count import count
from .plans.interpret import interpret
from .plans.plan import Plan

__version__ = VERSION

if TYPE_CHECKING:
    from .launch.spawn import spawn

__all__ = [
    "CollectiveTimeout",
    "Envelope",
    "Facts",
    "Group",
    "GroupBroken",
    "HocketError",
    "MismatchError",
    "PeerLost",
    "Plan",
    "PlanError",
    "Received",
    "RendezvousError",
    "Work",
    "check",
    "count",
    "elastic",
    "init",
    "interpret",
    "join",
    "plan",
    "spawn",
    "wait_all",
    "wait_any",
    "whole_rows",
]


def __getattr__(name: str) -> object:
    """What only few programs use is imported when it is: it takes long."""
    if name == "spawn":
        from .launch.spawn import spawn

        return spawn
    raise AttributeError(f"module 'hocket' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
