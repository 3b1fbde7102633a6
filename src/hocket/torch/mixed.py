"""A group of several backends, `"cpu:hocket,cuda:nccl"`.

Torch takes a group that is written in Python for the group of all devices, and asks no further. So hocket's has a group
of torch's own beside it, of the other backends, and passes on to it what is not on the CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from types import FrameType, FunctionType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, _unregister_process_group
from torch.distributed import distributed_c10d as c10d

from ..group import Group
from .group import ProcessGroup
from .uncompiled import uncompiled

_HELPER = c10d._new_process_group_helper.__code__


class Elsewhere(NamedTuple):
    """The devices that are not hocket's, and the group for them."""

    devices: list[torch.device]
    group: Any


def elsewhere() -> Elsewhere | None:
    """What torch was asked for beside hocket, made by torch; to be called while it makes hocket's group. Raises
    ValueError where hocket was asked for a device that is none of its own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not _HELPER:
        frame = frame.f_back
    if frame is None:
        return None
    asked = frame.f_locals
    backends = asked["backend_config"].get_device_backend_map()
    others = {device: name for device, name in backends.items() if device != "cpu"}
    for device, name in others.items():
        if name == "hocket":
            raise ValueError(
                f'"{device}:hocket" is not possible, since hocket takes tensors on the CPU only: '
                f'give {device} a backend of its own, as in "cpu:hocket,cuda:nccl"'
            )
    if not others:
        return None
    group, _ = c10d._new_process_group_helper(
        asked["group_size"],
        asked["group_rank"],
        asked["global_ranks_in_group"],
        ",".join(f"{device}:{name}" for device, name in others.items()),
        asked["store"],
        f"{asked['group_name']}/{'+'.join(others)}",
        asked["backend_options"],
        asked["timeout"],
        group_desc=f"{asked['group_desc']}: {', '.join(others)}",
    )
    if asked["device_id"] is not None:
        group.bound_device_id = asked["device_id"]
    _forget(group)
    return Elsewhere([torch.device(device) for device in others], group)


def _forget(group: Any) -> None:
    """Take it out of torch's tables: to a program it is part of hocket's group, with which it ends."""
    world = c10d._world
    for table in (world.pg_map, world.pg_names, world.pg_backend_config, world.pg_to_tag, world.pg_group_ranks):
        table.pop(group, None)
    for groups in world.tags_to_pg.values():
        if group in groups:
            groups.remove(group)
    _unregister_process_group(group.group_name)


def _device_of(value: Any) -> str:
    """Where the tensors of a call lie, or the device that it names; empty if none of these is in `value`."""
    if isinstance(value, (list, tuple)):
        return next(filter(None, map(_device_of, value)), "")
    if isinstance(value, (torch.Tensor, c10d.BarrierOptions)):
        value = value.device
    return value.type if isinstance(value, torch.device) else ""


def _passing_on(name: str) -> Callable[..., Any]:
    here = getattr(ProcessGroup, name)

    def method(self: Mixed, *args: Any, **options: Any) -> Any:
        if _device_of([args, [*options.values()]]) in self._types:
            return getattr(self._elsewhere.group, name)(*args, **options)
        return here(self, *args, **options)

    method.__name__, method.__doc__ = name, here.__doc__
    return method


class Mixed(ProcessGroup):
    """hocket's group for what is on the CPU, and torch's for what is elsewhere."""

    def __init__(
        self, store: Any, rank: int, size: int, timeout: float, group: Group | None, elsewhere: Elsewhere
    ) -> None:
        super().__init__(store, rank, size, timeout, group)
        self._elsewhere, self._types = elsewhere, {device.type for device in elsewhere.devices}
        self.bound_device_id = elsewhere.group.bound_device_id
        for device in elsewhere.devices:  # for what C++ asks of the group by itself
            backend = self._get_backend(device)
            if isinstance(backend, Backend):
                kind = dist.ProcessGroup.BackendType
                self._register_backend(device, getattr(kind, backend.name().upper(), kind.CUSTOM), backend)

    def shutdown(self) -> None:
        """Leave both groups. A second call does nothing."""
        super().shutdown()
        self._elsewhere.group.shutdown()

    def abort(self) -> None:
        """Leave both groups at once."""
        super().abort()
        self._elsewhere.group.abort()

    def set_timeout(self, timeout: timedelta) -> None:
        """The deadline of later calls, of both groups."""
        super().set_timeout(timeout)
        for device in self._elsewhere.devices:
            self._elsewhere.group._get_backend(device)._set_default_timeout(timeout)

    _set_default_timeout = set_timeout

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), *self._elsewhere.devices]

    def _get_backend(self, device: torch.device) -> Any:
        return self if device.type not in self._types else self._elsewhere.group._get_backend(device)


for _name, _member in vars(ProcessGroup).items():
    if isinstance(_member, FunctionType) and hasattr(dist.ProcessGroup, _name):  # what torch calls
        setattr(Mixed, _name, _passing_on(_name))
uncompiled(Mixed)
