"""What launchers give to the ranks that they start: the inverse of `Config.from_env`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..addresses import host_and_port, shared_folder
from ..launchers import PLAIN, Environ

_OF_A_JOB = ("HOCKET_RESTARTS", "HOCKET_MIN_RANKS")  # where there are some, this one is started in that other job


@dataclass(frozen=True)
class Node:
    """One of `count` hosts that each run as many ranks, and where all meet."""

    rank: int
    count: int
    rendezvous: str

    @property
    def master(self) -> tuple[str, int]:
        """Where torch.distributed meets, unless it is told: one port further."""
        host, port, _ = host_and_port(self.rendezvous)
        return host, port + 1

    @staticmethod
    def of(rank: int | None, count: int, rendezvous: str | None, environ: Environ = os.environ) -> Node | None:
        """What the options of `hocket run` say; None where they say nothing. Raises ValueError where they make no
        sense."""
        if count == 1 and rank is None and rendezvous is None:
            return None
        if rank is None or rendezvous is None or rank >= count:
            raise ValueError(f"--nnodes {count} goes with --rendezvous and a --node-rank below it")
        if shared_folder(rendezvous) is not None:
            raise ValueError("--rendezvous is tcp://host:port here: torch.distributed meets on that host, too")
        if not environ.get("HOCKET_SECRET"):
            raise ValueError("several hosts need a HOCKET_SECRET, the same on all: openssl rand -hex 16 makes one")
        return Node(rank, count, rendezvous)


def child_environ(
    rank: int,
    size: int,
    address: str,
    secret: bytes,
    port: int,
    environ: Environ = os.environ,
    *,
    node: Node | None = None,
    metrics: str | None = None,
    trace: Path | None = None,
    restarts: int = 0,
    min_ranks: int | None = None,
) -> dict[str, str]:
    """What hocket's own launcher gives to rank `rank` of `size` here: the inverse of `Config.from_env`.

    Several ranks share the cores, so OpenMP and the BLAS libraries get one thread each, unless OMP_NUM_THREADS is set.
    The ranks of torch.distributed meet at `port`, unless MASTER_ADDR and MASTER_PORT are set. `metrics` is for
    HOCKET_METRICS, `trace` for HOCKET_TRACE, and `min_ranks`, of each host, for HOCKET_MIN_RANKS. One that was started
    again, and is to join the others, knows how often: `restarts`.
    """
    environ = {name: value for name, value in environ.items() if name not in _OF_A_JOB}
    if restarts:
        environ["HOCKET_RESTARTS"] = str(restarts)
    if min_ranks is not None:
        environ["HOCKET_MIN_RANKS"] = str(min_ranks * (node.count if node else 1))
    if trace is not None:
        environ["HOCKET_TRACE"] = str(trace.absolute())
    if metrics is not None:
        environ["HOCKET_METRICS"] = metrics
    if node is None:
        around = {name: value for name, value in environ.items() if name != "HOCKET_RENDEZVOUS"}
        meeting = {"HOCKET_ADDRESS": address, "HOCKET_SECRET": secret.hex()}
        return _given((rank, size, rank, size), meeting, ("127.0.0.1", port), around)
    place = (node.rank * size + rank, node.count * size, rank, size)
    return _given(place, {"HOCKET_RENDEZVOUS": node.rendezvous}, node.master, environ)


def placed_environ(
    place: tuple[int, int, int, int],
    rendezvous: str,
    secret: str,
    master: tuple[str, int],
    environ: Environ = os.environ,
) -> dict[str, str]:
    """What is given to a rank that a cluster has placed: its rank, the size, its local rank, the local size; where the
    ranks meet, across hosts, and their secret; and where those of torch.distributed do. Otherwise as `child_environ`.
    """
    return _given(place, {"HOCKET_RENDEZVOUS": rendezvous, "HOCKET_SECRET": secret}, master, environ)


def _given(
    place: tuple[int, int, int, int], meeting: dict[str, str], master: tuple[str, int], around: Environ
) -> dict[str, str]:
    defaults = {"OMP_NUM_THREADS": "1"} if place[3] > 1 else {}
    own = meeting | {name: str(value) for name, value in zip(PLAIN, place, strict=True)}
    # Beside a RANK they were not set by hand: they are those of a job that this one is started in.
    (own if "RANK" in around else defaults).update(MASTER_ADDR=master[0], MASTER_PORT=str(master[1]))
    return {**defaults, **around, **own}


def in_common(environ: Environ, around: Environ = os.environ) -> dict[str, str]:
    """What ranks have in common with each other and the launcher: for what is done once for all of them. `environ` is
    that of one of them."""
    return {
        name: value
        for name, value in environ.items()
        if name == "OMP_NUM_THREADS" or (name in around and name not in PLAIN)
    }


def become(environ: Environ) -> None:
    """Make this the environment of this process, and nothing else: what it has inherited may tell of another job."""
    os.environ.clear()
    os.environ.update(environ)
