"""How ranks that are new, or were started again, come into a job of torch's.

They wait where hocket's own do (`rendezvous.porch`): where the launcher's variables, or HOCKET_RENDEZVOUS, say. The
store in which torch's first groups met cannot be that place: it ends with the rank that holds it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from ..config import Config, Given, job_protect
from ..deadline import Deadline
from ..errors import RendezvousError
from ..group import Group, entered
from ..rendezvous.porch import Porch
from .group import ProcessGroup
from .recovery import begin, default

_NOWHERE = (
    "nobody can join this job: neither a launcher's variables nor HOCKET_RENDEZVOUS tell where one would wait for it"
)


def init(timeout: float | None = None, *, backend: str = "hocket") -> ProcessGroup:
    """Begin torch.distributed, as `init_process_group(backend)` does; or, in a rank that its launcher has started again
    (`hocket run --max-restarts`), join the others, as by `join`.

    `timeout` is in seconds, by default torch's 30 minutes: for the meeting, and for every call that names none of its
    own. Raises what these raise.
    """
    seconds = default_pg_timeout.total_seconds() if timeout is None else timeout
    if Config.from_env().restarts:
        return join(seconds)
    dist.init_process_group(backend, timeout=timedelta(seconds=seconds))
    return default("init")


def join(timeout: float | None = None, *, rendezvous: str | None = None, secret: str | None = None) -> ProcessGroup:
    """Begin torch.distributed in a process that comes later, as a rank behind the others, once all of these call
    `hocket.torch.grow`.

    The job is found by the launcher's variables, or at HOCKET_RENDEZVOUS, which all ranks have ("tcp://host:port",
    where the lowest rank on that host listens, or "file:///folder"), with the HOCKET_SECRET of the job; `rendezvous`
    and `secret` take their places. It waits for `timeout` seconds, by default 30 minutes. Backend and timeout are those
    of the others.

    Raises RendezvousError where no job takes it in before that, or this one does not want to, and says why; and
    ValueError where torch.distributed has begun in this process already.
    """
    if dist.is_initialized():
        raise ValueError("torch.distributed has begun in this process: destroy_process_group() ends it, to join others")
    seconds = default_pg_timeout.total_seconds() if timeout is None else timeout
    deadline = Deadline(seconds)
    porch = Porch(replace(Config.newcomer(rendezvous, Given(secret=secret)), alone=False))
    return begin(lambda: entered(porch, seconds, seconds, job_protect()), deadline)


def pending(*, timeout: float | None = None) -> int:
    """How many wait to join (`hocket.torch.join`), the same number on all ranks of the default group. All of them call
    it, between two calls; it takes some microseconds on one host.

    Raises RendezvousError where nobody can join; else as other calls.
    """
    group = default("pending")
    return group.in_turn(lambda: _open(group).pending(timeout=timeout))


def grow(size: int | None = None, *, timeout: float | None = None) -> ProcessGroup:
    """Begin torch.distributed anew with those that wait to join, which have the ranks behind the present ones.

    All ranks call it, as they would `hocket.Group.grow`, whose `size` and `timeout` these are, and which raises what
    this raises. Where an error has ended the default group it recovers first, as `hocket.torch.recover` does. Where
    nothing has ended it and nobody waits it is given back as it was; else all that is said of `recover` holds: other
    groups are gone, and DDP models are to be wrapped anew. What the newcomers have to know, as the weights, the ranks
    tell them: examples/elastic_ddp.py.
    """
    old = default("grow")
    deadline = Deadline(old._group.timeout if timeout is None else timeout)
    group = old.in_turn(lambda: _open(old).grow(size, timeout=timeout))
    return old if group is old._group else begin(lambda: group, deadline)


def _open(group: ProcessGroup) -> Group:
    """Hocket's group, which others can join from now on."""
    its = group._group
    if its._porch is None:
        porch = Porch(replace(Config.from_env(), alone=False))
        if porch.leads_nowhere:
            raise RendezvousError(_NOWHERE)
        its._porch = porch
    return its
