"""How a program goes on, in torch's world, with the ranks that are left, and with those that come (`growth`).

```
recover   hocket's group gives its ranks that are left a new one: the same members on all of them; or it has grown
meet      the first of them holds a store for the groups to come, and tells the others where, and what else is so here
destroy   torch's groups end, with all that is in flight in them
init      torch.distributed begins again, over the new group
```
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import ExitStack
from contextvars import ContextVar
from datetime import timedelta
from typing import NamedTuple

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from ..config import job_route, job_sockets
from ..deadline import Deadline
from ..errors import HocketError
from ..group import Group
from ..rendezvous.interfaces import own_address
from ..rendezvous.sockets import SLACK, listen
from .group import ProcessGroup

_SOON = 1e-3  # seconds: what is left of a deadline that has passed

# The group that the default process group is made over, where there is one: else its ranks meet in torch's store.
given: ContextVar[Group | None] = ContextVar("given", default=None)


def recover(timeout: float | None = None, *, allow_minority: bool = False) -> ProcessGroup:
    """Begin torch.distributed again with the ranks that are left, after an error has ended the default group.

    All of them call it, as they would `hocket.Group.recover`, whose `timeout` and `allow_minority` these are, and which
    raises what this raises. Ranks are renumbered in order. The new default group, which is given back, has the backend
    and the timeout of the old one; its `history` tells who was lost. All other groups are gone, as after
    `destroy_process_group`: make them anew. RANK and WORLD_SIZE stay what they were.

    A DDP model is to be wrapped anew: `model = DDP(model.module)`. Ranks may differ by the step that failed:
    examples/elastic_ddp.py shows how they take its result from the rank that is furthest.
    """
    old = default("recover")
    deadline = Deadline(old._group.timeout if timeout is None else timeout)
    recovered = lambda: old._group.recover(timeout, allow_minority=allow_minority)  # noqa: E731
    return begin(recovered, deadline, allow_minority=allow_minority)


def default(what: str) -> ProcessGroup:
    """The default group. Raises ValueError where there is none, and TypeError where it is not hocket's."""
    group = c10d._get_default_group()
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"{what}() is for a default group of hocket's, and this one is of {dist.get_backend()}")
    return group


def begin(make: Callable[[], Group], deadline: Deadline, *, allow_minority: bool = False) -> ProcessGroup:
    """Begin torch.distributed, anew where it has begun, over the group that `make` makes, or over what is left of it
    where ranks of it are lost before that."""
    with ExitStack() as undo:  # whoever fails in the middle of it leaves, and the others are told
        group = undo.enter_context(make())
        while True:
            try:
                place = _meet(group, deadline)
                break
            except (HocketError, dist.DistError):  # another rank is lost
                seconds = deadline.left() or _SOON
                group = undo.enter_context(group.recover(seconds, allow_minority=allow_minority))
        _begin(place, group)
        undo.pop_all()
    new = c10d._get_default_group()
    assert isinstance(new, ProcessGroup)
    return new


class _Place(NamedTuple):
    """Where the ranks of later groups will meet, what backend all have, and how long their calls may take."""

    store: dist.Store
    backend: str
    timeout: float


def _meet(group: Group, deadline: Deadline) -> _Place:
    """In a store of torch's, at an address of rank 0, which holds it, and tells newcomers what the others know."""
    held, told = None, None
    if group.rank == 0:
        far = own_address(job_route(), job_sockets().interface) if group.topology.hosts > 1 else ""
        listener = listen(far or "tcp://127.0.0.1:0")
        host, port, *_ = listener.getsockname()
        held = dist.TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
        told = host, port, dist.get_backend() if dist.is_initialized() else "hocket", group.timeout
    host, port, backend, timeout = group.broadcast_object(told, timeout=max(deadline.left(), _SOON))
    store = held or dist.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=SLACK))
    store.set_timeout(timedelta(seconds=timeout))
    return _Place(store, backend, timeout)


def _begin(place: _Place, group: Group) -> None:
    """End torch's groups, and make the default one anew. What is in flight in a group whose ranks are all alive may
    never be answered, and is not waited for."""
    groups, device = list(c10d._world.pg_map), None
    if dist.is_initialized():
        device = c10d._get_default_group().bound_device_id
        _let_go(groups)
        for each in reversed(groups):
            each.abort()
        dist.destroy_process_group()
    group.timeout = place.timeout
    where = {"store": place.store, "rank": group.rank, "world_size": group.size}
    handed = given.set(group)
    try:
        dist.init_process_group(place.backend, **where, timeout=timedelta(seconds=place.timeout), device_id=device)
    finally:
        given.reset(handed)


def _let_go(groups: list[dist.ProcessGroup]) -> None:
    """DDP models over these groups let go of their parameters, which others are to take up. The models themselves may
    be held for longer, as by the traceback of an error."""
    for holder in gc.get_referrers(*groups):
        reducer = (holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})).get("reducer")
        if isinstance(reducer, dist.Reducer):
            reducer._remove_autograd_hooks()
