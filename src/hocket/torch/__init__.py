"""hocket for torch.distributed, on CPUs.

    import hocket.torch                           # torch 2.14 finds hocket without this line
    torch.distributed.init_process_group("hocket")

Everything in torch that communicates through a process group then does so through hocket: `dist.*`, DDP, FSDP, DTensor
and the rest. docs/torch.md says what is supported.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from . import functional
from .group import ProcessGroup
from .growth import grow, init, join, pending
from .mixed import Mixed, elsewhere
from .reconfiguration import Reconfigurable
from .recovery import given, recover

__all__ = ["ProcessGroup", "grow", "init", "join", "pending", "recover"]


def _create(options: Any, backend_options: Any = None) -> ProcessGroup:
    """What torch calls for every new group, on each of its ranks."""
    place = options.store, options.group_rank, options.group_size, options.timeout.total_seconds(), given.get()
    others = elsewhere()
    if getattr(options, "enable_reconfigure", False):  # torch 2.14 and newer
        if others is not None:
            raise ValueError('enable_reconfigure is for a group of one backend: "hocket"')
        return Reconfigurable(*place[:4])
    return ProcessGroup(*place) if others is None else Mixed(*place, others)


def register() -> None:
    """Tell torch of the backend `hocket`; done by importing this module. A second call does nothing."""
    if "HOCKET" not in dist.Backend._plugins:
        dist.Backend.register_backend("hocket", _create, extended_api=True, devices=["cpu"])
        functional.register()


register()
