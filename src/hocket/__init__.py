"""hocket: collective communication between processes.

    import hocket
    with hocket.init() as group:
        y = group.all_reduce(x)

Start several processes with `hocket run -n 4 script.py`, or call `hocket.spawn(function, 4)`.
"""

from __future__ import annotations

import gc
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._core import VERSION as __version__
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
    from .launch.spawn import spawn
    from .plans.algorithms import plan
    from .plans.check import Facts, check
    from .plans.count import count
    from .plans.interchange import read_plan
    from .plans.interpret import interpret
    from .plans.plan import Plan

# The same once more: a name is imported when it is used, so that what few programs need costs nobody else anything, and
# the commands, as `hocket run`, begin without NumPy.
_HOMES = {
    "_core": "VERSION",
    "arrays.ops": "whole_rows",
    "calls.messages": "Envelope Received",
    "calls.work": "Work wait_all wait_any",
    "errors": "CollectiveTimeout GroupBroken HocketError MismatchError PeerLost PlanError RendezvousError",
    "group": "Group init join",
    "group.elastic": "elastic",
    "launch.spawn": "spawn",
    "plans.algorithms": "plan",
    "plans.check": "Facts check",
    "plans.count": "count",
    "plans.interchange": "read_plan",
    "plans.interpret": "interpret",
    "plans.plan": "Plan",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

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
    "__version__",
    "check",
    "count",
    "elastic",
    "init",
    "interpret",
    "join",
    "plan",
    "read_plan",
    "spawn",
    "wait_all",
    "wait_any",
    "whole_rows",
]


def __getattr__(name: str) -> object:
    wanted = "VERSION" if name == "__version__" else name
    if wanted not in _HOME:
        raise AttributeError(f"module 'hocket' has no attribute {name!r}{_method(name)}")
    collects = gc.isenabled()
    gc.disable()  # of what modules make nothing is garbage, and to look for some takes a tenth of the time
    try:
        module = import_module(f".{_HOME[wanted]}", __name__)
    finally:
        if collects:
            gc.enable()
    found = globals()[name] = getattr(module, wanted)
    return found


def _method(name: str) -> str:
    """Where a call is that somebody looks for here."""
    is_one = not name.startswith("_") and hasattr(import_module(".group", __name__).Group, name)
    return f": calls are methods of a group, such as hocket.init().{name}" if is_one else ""


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
