"""hocket: collective communication between processes.

    import hocket
    with hocket.init() as group:
        y = group.all_reduce(x)

Start several processes with `hocket run -n 4 script.py`, or call `hocket.spawn(function, 4)`.
"""

from importlib.metadata import version as _version

from .algorithms import plan
from .check import Facts, check
from .count import count
from .errors import (
    CollectiveTimeout,
    GroupBroken,
    HocketError,
    MismatchError,
    PeerLost,
    PlanError,
    RendezvousError,
)
from .group import Group, init
from .launch import spawn
from .plan import Plan
from .run.interpret import interpret
from .work import Work

__version__ = _version("hocket")

__all__ = [
    "CollectiveTimeout",
    "Facts",
    "Group",
    "GroupBroken",
    "HocketError",
    "MismatchError",
    "PeerLost",
    "Plan",
    "PlanError",
    "RendezvousError",
    "Work",
    "check",
    "count",
    "init",
    "interpret",
    "plan",
    "spawn",
]
