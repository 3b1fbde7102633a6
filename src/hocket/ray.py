"""`hocket.ray.run`: a function on the ranks of a Ray cluster, and their results. What `hocket.spawn` is on one host.

    import ray
    import hocket.ray
    ray.init(address="auto")
    losses = hocket.ray.run(train, 8, (settings,))

A rank is an actor of its own, in a placement group that is there for this call alone. The driver waits until all of
them are somewhere, numbers those of one node one after the other, and tells each its place, where rank 0 listens, and
the job's secret: as arguments of a call, which go from this process to that one, and not as an environment of Ray's,
which the cluster would know. From then on they are ranks as those of any launcher: `hocket.init()` finds the others,
near ones share memory, far ones talk over TCP.
"""

from __future__ import annotations

import math
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from .addresses import tcp_url
from .config.children import placed_environ
from .deadline import Deadline
from .errors import HocketError, RendezvousError
from .launch.call import checked
from .launch.processes import GRACE, reserved_port
from .launch.reports import Rank, Report, do, gather, results

try:
    import ray
except ImportError as error:
    raise ImportError("hocket.ray needs Ray, which is not installed: pip install ray", name="ray") from error

from ray import cloudpickle
from ray.exceptions import RayActorError, RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

__all__ = ["run"]

T = TypeVar("T")

_SLICE = 0.1  # seconds that a wait may take in which Ray does not look for a Ctrl-C


def run(
    fn: Callable[..., T],
    size: int,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    timeout: float | None = None,
    start_timeout: float = 60.0,
    resources: Mapping[str, float] | None = None,
    strategy: str = "PACK",
) -> list[T]:
    """Run `fn(*args, **kwargs)` on `size` ranks of a Ray cluster, where `hocket.init()` finds the others. Their
    results, by rank.

    `ray.init` must have been called. Each rank has its `resources`, {"CPU": 1} by default; `strategy` is that of Ray's
    placement groups: "PACK" on few nodes, "SPREAD" over many, "STRICT_PACK" on one, "STRICT_SPREAD" one rank per node.
    hocket must be installed on every node. Function, arguments and results travel by Ray's cloudpickle, so that lambdas
    and what a script or notebook defines will do.

    Errors are those of `hocket.spawn`: when a rank fails, the others are killed, and its exception is raised here, with
    the traceback as `__cause__`; a PeerLost only if nothing else explains it, and for a rank that died, or whose node
    did. CollectiveTimeout when the ranks have not returned after `timeout` seconds (None: as long as they take).
    RendezvousError when Ray has not placed and started them within `start_timeout` seconds, or `timeout`: where the
    cluster has no room, it says so. HocketError without a cluster. No actor and no placement group is left behind.
    """
    if size < 1:
        raise ValueError(f"size is {size}; at least one rank is needed")
    if not ray.is_initialized():
        raise HocketError('this program is connected to no Ray cluster: call ray.init(address="auto"), or ray.init()')
    needs = {"CPU": 1.0} if resources is None else {name: need for name, need in resources.items() if need}
    call = cloudpickle.dumps(checked(fn, size, args, kwargs, "ray.run"))
    deadline = None if timeout is None else Deadline(timeout)
    start = Deadline(start_timeout if timeout is None else min(timeout, start_timeout))
    with _placed(size, needs, strategy, start) as group:
        ranks = _started(group, size, needs, start)
        _begin(ranks, call, start)
        gather(ranks, deadline, lambda seconds: _hear(ranks, seconds), "ray.run")
        return results(ranks)


# ---- in the driver ----


class _Place(NamedTuple):
    """Where an actor is; `str` as of links, by its rank."""

    node: str
    address: str
    host: str
    pid: int


@dataclass
class _Process:
    """A rank's process, and who it is in messages."""

    rank: int
    place: _Place

    @property
    def pid(self) -> int:
        """On its host."""
        return self.place.pid

    def __str__(self) -> str:
        return f"rank {self.rank} (pid {self.pid} on {self.place.host})"


@dataclass
class _Rank(Rank):
    process: _Process
    actor: Any = field(kw_only=True)
    working: Any = None  # a reference to its report

    def hear(self) -> None:
        """Take its report; where it ended without one, that is the report."""
        try:
            report: Report = ray.get(self.working)
            self.report = replace(report, when=time.monotonic())  # its clock is another host's
            self.actor.leave.remote()  # so that who still needs it hears that it is gone
        except RayActorError as error:
            self.report = Report(summary=f"died before it returned: {_reason(error)}")
        except RayError as error:
            self.report = Report(summary=f"ended, and its report is lost: {_reason(error)}")


@contextmanager
def _placed(size: int, needs: Mapping[str, float], strategy: str, start: Deadline) -> Iterator[PlacementGroup]:
    """Room for all of them. At the end of the block it is given back, and who still is there is killed."""
    group = placement_group([dict(needs)] * size, strategy=strategy)
    try:
        while not group.wait(min(_SLICE, start.left())):
            if not start.left():
                raise RendezvousError(_no_room(size, needs, strategy, start))
        yield group
    finally:
        remove_placement_group(group)


def _no_room(size: int, needs: Mapping[str, float], strategy: str, start: Deadline) -> str:
    wants = " and ".join(f"{need:g} {name}" for name, need in needs.items())
    free, total = ray.available_resources(), ray.cluster_resources()
    has = " and ".join(f"{free.get(name, 0):g} of {total.get(name, 0):g} {name}" for name in needs)
    nodes = sum(node["Alive"] for node in ray.nodes())
    return (
        f"Ray found no room for {size} ranks with {wants} each (strategy {strategy}) within {start}: "
        f"{has} are free on the nodes, of which there are {nodes}"
    )


def _started(group: PlacementGroup, size: int, needs: Mapping[str, float], start: Deadline) -> list[_Rank]:
    """The ranks, each in its place: those of one node are neighbours."""
    others = {name: need for name, need in needs.items() if name not in ("CPU", "GPU", "memory")}
    shape = {
        "num_cpus": needs.get("CPU", 0),
        "num_gpus": needs.get("GPU", 0),
        "memory": needs.get("memory"),
        "resources": others,
        "max_restarts": 0,
        "lifetime": "non_detached",
    }
    actors = [
        ray.remote(_Actor).options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, index), **shape).remote()
        for index in range(size)
    ]
    places: list[_Place] = _answers([actor.place.remote() for actor in actors], start)
    nodes = list(dict.fromkeys(place.node for place in places))
    found = sorted(zip(places, actors, strict=True), key=lambda each: nodes.index(each[0].node))
    return [_Rank(_Process(rank, place), actor=actor) for rank, (place, actor) in enumerate(found)]


def _answers(asked: list[Any], start: Deadline) -> list[Any]:
    """What actors that have just been made answer."""
    _, missing = ray.wait(asked, num_returns=len(asked), timeout=start.left())
    if missing:
        raise RendezvousError(f"Ray placed all ranks, and {len(missing)} of {len(asked)} did not start within {start}")
    try:
        return list(ray.get(asked))
    except RayError as error:
        raise RendezvousError(f"Ray could not start a rank: {_reason(error)}") from error


def _begin(ranks: list[_Rank], call: bytes, start: Deadline) -> None:
    """Tell each its place and the call."""
    (ports,) = _answers([ranks[0].actor.reserve.remote()], start)
    address = ranks[0].process.place.address
    meeting, master = tcp_url(address, ports[0]), (address, ports[1])
    secret, shared = secrets.token_hex(16), ray.put(call)
    local: dict[str, list[_Rank]] = {}
    for rank in ranks:
        local.setdefault(rank.process.place.node, []).append(rank)
    for neighbours in local.values():
        for local_rank, rank in enumerate(neighbours):
            place = (rank.process.rank, len(ranks), local_rank, len(neighbours))
            rank.working = rank.actor.work.remote(shared, place, meeting, secret, master)


def _hear(ranks: list[_Rank], seconds: float | None) -> None:
    """Wait for the next report."""
    working = {rank.working: rank for rank in ranks if rank.report is None}
    ready, _ = ray.wait(list(working), timeout=seconds)
    for reference in ready:
        working[reference].hear()


def _reason(error: RayError) -> str:
    """What Ray knows, in a line, without what it guesses."""
    lines = str(error).splitlines()
    if any(line.startswith("\t") for line in lines):  # a headline, a table, and then what happened
        lines = [" ".join(line for line in lines[1:] if line and not line.startswith("\t"))]
    return lines[-1].partition(" Some common causes")[0]  # of a traceback, the last line


# ---- in the rank ----


class _Actor:
    """One rank, in a process of its own. Ray makes its calls in the main thread, one after the other."""

    def place(self) -> _Place:
        """Where it is."""
        node = ray.get_runtime_context().get_node_id()
        return _Place(node, ray.util.get_node_ip_address(), socket.gethostname(), os.getpid())

    def reserve(self) -> list[int]:
        """Two ports here: for the ranks to meet at, and those of torch.distributed."""
        self._held = ExitStack()
        return [self._held.enter_context(reserved_port()) for _ in range(2)]

    def work(
        self, call: bytes, place: tuple[int, int, int, int], meeting: str, secret: str, master: tuple[str, int]
    ) -> Report:
        """Its life as a rank."""
        os.environ.update(placed_environ(place, meeting, secret, master))
        return do(call, cloudpickle.dumps)

    def leave(self) -> None:
        """End this process as processes end, which tells its peers. Ray forgets it then: should it hang, it dies of
        SIGALRM."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(math.ceil(GRACE))
        ray.actor.exit_actor()
