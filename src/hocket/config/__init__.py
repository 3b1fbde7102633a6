"""What the launcher told this process: the only room that reads environment variables. `children` is the other way.

```
any, across hosts    HOCKET_RENDEZVOUS=tcp://host:port (or file:///folder) HOCKET_SECRET, with RANK WORLD_SIZE or the
                     places below
hocket run, spawn    HOCKET_ADDRESS HOCKET_SECRET, with RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
torchrun             the same four, with MASTER_ADDR MASTER_PORT (and TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT);
                     on several hosts with a HOCKET_SECRET: they meet there, at the port behind torch's
mpirun (Open MPI)    OMPI_COMM_WORLD_RANK ..SIZE ..LOCAL_RANK ..LOCAL_SIZE, with PMIX_NAMESPACE or the older job id
mpirun (MPICH)       PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS, with the process that started the ranks
srun                 SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID, with SLURM_JOB_ID SLURM_STEP_ID
none of them         a world of one
```

The first line that matches is taken. A half-set or malformed variable is an error, never a guess. hocket's own launcher
sets MASTER_ADDR and MASTER_PORT too: not for hocket, but for torch.distributed.

The ranks meet at an **address**, a name in the kernel's abstract socket namespace, and prove to belong to one job by a
**secret**. hocket's own launcher draws both at random. Other launchers have none to give: there every rank derives the
same two from what identifies the job, and the user id, which the kernel vouches for, keeps strangers out.

Across hosts they meet at `tcp://host:port`, where rank 0 listens, or in a folder that all of them see; and the secret
must be given, since there is nobody to vouch for anyone. HOCKET_TRANSPORT lists what ranks may talk over, of shm, ucx
and tcp: without shm those of one host talk as those of different hosts do, and with ucx these talk through the libucp
that HOCKET_UCX names, or that is found, by what UCX_TLS says, but for TCP. HOCKET_TCP_CONGESTION names the congestion
control of the job's sockets (cubic where the kernel has it, else its own default). HOCKET_SOCKET_IFNAME names the
interface by which a rank is reached, in NCCL's forms; else it is the one that the way to the others takes.
HOCKET_FALLBACK_IFNAME names another one, by which a rank is reached when the way over the first has broken.
HOCKET_TLS_CERT, HOCKET_TLS_KEY and HOCKET_TLS_CA name the files, in PEM, with which these sockets speak TLS;
HOCKET_INTEGRITY=1 has them carry checksums. HOCKET_TCP_STREAMS says over how many of them goes what two ranks of
different hosts send each other. HOCKET_HEARTBEAT_TIMEOUT says after how many seconds one of which nothing is heard is
given up. HOCKET_WIRE says how many bytes a link between hosts carries in the time of a round,
which is measured where it is not set.

HOCKET_RESTARTS says how often this rank was started again, 0 where it is not set: from 1 on it is to join the others,
which have gone on. HOCKET_MIN_RANKS says how many are enough for the job to go on, 1 where it is not set.

HOCKET_METRICS says where the ranks serve what they count: a port of this host alone, or host:port, for the first rank
of each host; the next one has the next port. HOCKET_TRACE is a folder to which each writes its timeline as it leaves,
HOCKET_FLIGHT one to which it writes what it did last when an error breaks its group. HOCKET_PROFILE is the file of what
`hocket tune` has measured, "none" for doing without; else it is in XDG_CACHE_HOME or ~/.cache. With HOCKET_PROTECT=1 a
call that fails leaves its output as it was. With HOCKET_PROTOCOL=staged two ranks send sums back from slots of their
own, where they would lend each other theirs, and long messages are never copied by the kernel from memory to memory;
with HOCKET_PROTOCOL=offered they always are, where that is possible, and not only where it is found faster. The results
are the same.

Long, because every launcher has its own variables, and nobody else is to know them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from ..addresses import Peer, host_and_port, shared_folder, tcp_url
from ..addresses import peers as peers_of
from ..errors import RendezvousError
from ..launchers import IDENTITIES, LAUNCHERS, TORCHRUN, Environ, Launcher, flag, integer, nbytes, number, seconds, text

HOCKET_RUN = "hocket run"
TIMEOUT = 30.0
ANYWHERE = "anywhere"  # where ranks meet at no address of which anybody knows
NO_TCP = "^tcp"  # UCX's own would listen, and believe whoever comes
MOST_STREAMS = 16
PROTOCOLS = ("lent", "staged", "offered")
LIFE = 2.0  # seconds that a rank of another host may be silent
LEAST_LIFE, MOST_LIFE = 0.5, 86400.0
TLS = ("HOCKET_TLS_CERT", "HOCKET_TLS_KEY", "HOCKET_TLS_CA")


class SocketOptions(NamedTuple):
    """How the job's TCP sockets are to be: their congestion control and their interface, in the forms of
    HOCKET_SOCKET_IFNAME (empty: chosen); the files of HOCKET_TLS_CERT, HOCKET_TLS_KEY and HOCKET_TLS_CA, where they
    encrypt; whether what they carry has checksums; how many bytes a link carries in the time of a round, 0 where that
    is to be measured; over what ranks of different hosts may talk, "ucx" or "tcp" or both, the best first, with the
    libucp that is to be used, and what that may use, as UCX_TLS has it; how many sockets a link of TCP has; after how
    many seconds of silence it is given up; and over which other interface, in the same forms, it goes on where the
    first way breaks (empty: there is none)."""

    congestion: str = ""
    interface: str = ""
    tls: tuple[str, str, str] | None = None
    integrity: bool = False
    wire: int = 0
    ways: tuple[str, ...] = ("tcp",)
    libucp: str = "libucp.so.0"
    ucx_transports: str = NO_TCP
    streams: int = 1
    life: float = LIFE
    fallback: str = ""


@dataclass(frozen=True)
class Given:
    """What a caller of `init` says; what it does not, the environment tells."""

    rank: int | None = None
    size: int | None = None
    secret: str | None = field(default=None, repr=False)
    integrity: bool | None = None

    def over(self, environ: Environ, **more: object) -> Environ:
        """The environment as it would be if this, and `more`, had been set there."""
        integrity = None if self.integrity is None else int(self.integrity)
        given = {
            "RANK": self.rank,
            "WORLD_SIZE": self.size,
            "HOCKET_SECRET": self.secret,
            "HOCKET_INTEGRITY": integrity,
        }
        around = {name: value for name, value in environ.items() if self.rank is None or not name.startswith("LOCAL_")}
        return {**around, **{name: str(value) for name, value in (given | more).items() if value is not None}}


@dataclass(frozen=True)
class Config:
    """One process's place in the job. `address` is an abstract socket's name, as `ss` prints it ("@hocket-..."), or
    where rank 0 listens for ranks of any host ("tcp://host:port"), or a folder that all see ("file:///folder"); empty:
    in a store that somebody else has made, and where `is_open` the ranks may be on several hosts; or at the URLs of
    `peers`, of which each has its own, and rank 0's is the meeting point.

    `timeout` is in seconds. A world of one has no address. It is `alone` where no memory is to be shared, and `sockets`
    tells how those between hosts are to be; `protect` is what calls do that do not say. This rank was started again
    `restarts` times, and `min_ranks` are enough for the job to go on.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    address: str = ""
    secret: bytes = field(default=b"", repr=False)
    launcher: str = "none"
    timeout: float = TIMEOUT
    alone: bool = False
    sockets: SocketOptions = field(default_factory=SocketOptions)
    is_open: bool = False
    peers: tuple[Peer, ...] = ()
    protect: bool = False
    restarts: int = 0
    min_ranks: int = 1

    @property
    def meeting_points(self) -> tuple[str, ...]:
        """The addresses at which the store is, all of them the same one; the nearest first."""
        return self.peers[0].addresses if self.peers else (self.address,)

    @property
    def own(self) -> Peer:
        """This rank's, where each has its own."""
        return self.peers[self.rank]

    @property
    def towards(self) -> str:
        """The address to which the way goes by which ranks of other hosts can come; empty where none will."""
        if self.peers:
            return self.own.far
        if self.is_far:
            return self.address or ANYWHERE
        return tcp_url("127.0.0.1", 1) if self.alone else ""

    @property
    def is_far(self) -> bool:
        """Whether the ranks meet where those of other hosts can: over TCP, in a folder, or in another store."""
        return self.is_open or self.address.startswith("tcp://") or self.folder is not None

    @property
    def folder(self) -> Path | None:
        """The folder in which they meet, if they do."""
        return shared_folder(self.address)

    @property
    def hosts_store(self) -> bool:
        """Whether this rank opens the meeting point itself: rank 0 does where nothing else holds it, such as hocket's
        own launcher."""
        return self.rank == 0 and self.launcher != HOCKET_RUN and self.folder is None

    @staticmethod
    def from_env(environ: Environ = os.environ) -> Config:
        """Read the launcher's variables. Raises RendezvousError, naming the variable, where they make no sense."""
        return Config._equipped(_job(environ), environ)

    @staticmethod
    def at(rendezvous: str | None, given: Given, environ: Environ = os.environ) -> Config:
        """For ranks that meet at that address, or where the environment says. Raises as `from_env`, and ValueError for
        half a place."""
        if (given.rank is None) != (given.size is None) or (given.rank is not None and rendezvous is None):
            raise ValueError("give rank, size and rendezvous together, or leave rank and size to the launcher")
        return Config.from_env(given.over(environ, HOCKET_RENDEZVOUS=rendezvous))

    @staticmethod
    def newcomer(rendezvous: str | None, given: Given, environ: Environ = os.environ) -> Config:
        """For one that joins a group, at that address or where the environment says: it has no place in the job, unless
        a launcher gave it one. Raises as `from_env`."""
        if "HOCKET_ADDRESS" not in environ and Launcher.of(environ) is None:
            rendezvous = rendezvous or environ.get("HOCKET_RENDEZVOUS")
            given = replace(given, rank=0, size=2)
            if rendezvous is None:
                return Config()
        return Config.at(rendezvous, given, environ)

    @staticmethod
    def in_store(given: Given, environ: Environ = os.environ) -> Config:
        """For ranks that meet in a store that the caller of `init` has.

        Without a secret of the user's they have to be on one host. Raises ValueError for half a place.
        """
        if (given.rank is None) != (given.size is None):
            raise ValueError("give rank and size together, or leave both to the launcher")
        around = given.over(environ)
        is_open = bool(given.secret or (environ.get("HOCKET_SECRET") and "HOCKET_ADDRESS" not in environ))
        key = _digest("secret", around["HOCKET_SECRET"]) if is_open else job_secret(around)
        job = Config(*place_of(around), "", key, "hocket.init(rendezvous=...)", is_open=is_open)
        return Config._equipped(job, around)

    @staticmethod
    def among(peers: Sequence[str | Sequence[str]], given: Given, environ: Environ = os.environ) -> Config:
        """For ranks that each have a URL of their own.

        With a tcp:// URL among them they need a secret. Raises TypeError and ValueError for peers that make no sense.
        """
        each = peers_of(peers)
        around = replace(given, size=None if given.rank is None else len(each)).over(environ)
        place = place_of(around)
        if {place[1], given.size or len(each)} != {len(each)}:
            size = given.size or place[1]
            raise ValueError(f"peers has {len(each)} ranks, and there are {size}: it has a URL for each")
        key = job_secret(around)
        if text := around.get("HOCKET_SECRET"):
            key = _digest("secret", text)
        elif any(peer.far for peer in each):
            _require_secret(place[1], "", "at URLs of peers")
        job = Config._equipped(Config(*place, "", key, "hocket.init(peers=...)", peers=each), around)
        if job.alone and not all(peer.far for peer in each):
            asked = environ["HOCKET_TRANSPORT"]
            raise ValueError(
                f"HOCKET_TRANSPORT={asked} shares no memory: each rank of peers needs a tcp:// or rdma:// URL"
            )
        return replace(job, sockets=job.sockets._replace(ways=_ways_of(job, around)))

    @staticmethod
    def _equipped(job: Config, environ: Environ) -> Config:
        alone = "shm" not in _transports(environ)
        if alone and job.size > 1 and not environ.get("HOCKET_SECRET"):  # what a job's name tells others can guess
            asked = environ["HOCKET_TRANSPORT"]
            raise RendezvousError(f"HOCKET_TRANSPORT={asked} needs a HOCKET_SECRET, which only this job's ranks know")
        job_protocol(environ)  # each group asks: what makes no sense is said before there is one
        return replace(
            job,
            timeout=seconds(environ, "HOCKET_TIMEOUT", TIMEOUT),
            alone=alone,
            sockets=job_sockets(environ),
            protect=job_protect(environ),
            restarts=number(environ, "HOCKET_RESTARTS", 0),
            min_ranks=number(environ, "HOCKET_MIN_RANKS", 1),
        )


def _job(environ: Environ) -> Config:
    launcher = Launcher.of(environ)
    if "HOCKET_RENDEZVOUS" in environ:
        return _across_hosts(place_of(environ), text(environ, "HOCKET_RENDEZVOUS"), environ.get("HOCKET_SECRET", ""))
    if "HOCKET_ADDRESS" in environ or (launcher is None and "HOCKET_SECRET" in environ):
        return Config(*TORCHRUN.place(environ), *_meeting_point(environ), HOCKET_RUN)
    if launcher is None:
        return Config()
    if launcher is TORCHRUN and environ.get("HOCKET_SECRET") and _is_some(environ):
        master = tcp_url(text(environ, "MASTER_ADDR"), integer(environ, "MASTER_PORT", 1, 65534) + 1)
        place = launcher.place(environ, anywhere=True)
        return replace(_across_hosts(place, master, environ["HOCKET_SECRET"]), launcher=launcher.name)
    place = launcher.place(environ)
    identity = launcher.identity(environ)
    address = "@hocket-" + _digest("address", *identity).hex()[:32]
    return Config(*place, address, job_secret(environ), launcher.name)


def place_of(environ: Environ) -> tuple[int, int, int, int]:
    """That of a rank that may be on any host: its rank, the size, its local rank, the local size."""
    return (Launcher.of(environ) or TORCHRUN).place(environ, anywhere=True)


def _is_some(environ: Environ) -> bool:
    """Whether torchrun started only some of the ranks on this host."""
    return environ.get("LOCAL_WORLD_SIZE", environ.get("WORLD_SIZE")) != environ.get("WORLD_SIZE")


def _across_hosts(place: tuple[int, int, int, int], address: str, secret: str) -> Config:
    """The place of a rank that meets the others at "tcp://host:port". Raises RendezvousError without a secret."""
    _require_secret(place[1], secret, f"at {address}")
    if shared_folder(address) is None:
        host_and_port(address)  # or it says what one looks like
    return Config(*place, address, _digest("secret", secret), "HOCKET_RENDEZVOUS")


def _require_secret(size: int, secret: str, where: str) -> None:
    if size > 1 and not secret:
        raise RendezvousError(
            f"the ranks are to meet {where}, and anybody can reach that: give them all one secret "
            "(HOCKET_SECRET=$(openssl rand -hex 16), or hocket.init(secret=...)), by which they know each other"
        )


def job_secret(environ: Environ = os.environ) -> bytes:
    """What the ranks of this job know and other jobs do not: as in `Config.from_env`, but never an error.

    For ranks that were told their places in another way, such as the arguments of torch's init_process_group. Where the
    variables tell nothing, or make no sense, it is empty on every rank: then only the user id keeps strangers out.
    """
    try:
        if "HOCKET_ADDRESS" in environ:
            return bytes.fromhex(environ["HOCKET_SECRET"])
        if environ.get("HOCKET_SECRET"):
            return _digest("secret", environ["HOCKET_SECRET"])
        if (launcher := Launcher.of(environ)) is not None:
            return _digest("secret", *launcher.identity(environ))
    except (RendezvousError, ValueError, LookupError):
        pass
    return b""


def job_route(environ: Environ = os.environ) -> str:
    """Towards whom the way leads by which ranks of other hosts may come, for ranks that meet in a store of torch's;
    empty unless the user gave the job a secret."""
    if "HOCKET_ADDRESS" in environ or not environ.get("HOCKET_SECRET") or not environ.get("MASTER_ADDR"):
        return ""
    return tcp_url(environ["MASTER_ADDR"], 1)


def job_sockets(environ: Environ = os.environ) -> SocketOptions:
    """What is wished for. Raises RendezvousError where it is half said."""
    files = [environ.get(name, "") for name in TLS]
    if any(files) and not all(files):
        missing = " and ".join(name for name, file in zip(TLS, files, strict=True) if not file)
        raise RendezvousError(f"TLS needs three files, of PEM, and {missing} names none: {', '.join(TLS)}")
    name = "HOCKET_TCP_STREAMS"
    return SocketOptions(
        environ.get("HOCKET_TCP_CONGESTION", ""),
        environ.get("HOCKET_SOCKET_IFNAME", ""),
        (files[0], files[1], files[2]) if all(files) else None,
        flag(environ, "HOCKET_INTEGRITY"),
        nbytes(environ, "HOCKET_WIRE"),
        tuple(way for way in _transports(environ) if way != "shm"),
        environ.get("HOCKET_UCX") or "libucp.so.0",
        _ucx_transports(environ.get("UCX_TLS", "")),
        number(environ, name, 1, MOST_STREAMS),
        seconds(environ, "HOCKET_HEARTBEAT_TIMEOUT", LIFE, LEAST_LIFE, MOST_LIFE),
        environ.get("HOCKET_FALLBACK_IFNAME", ""),
    )


def job_protect(environ: Environ = os.environ) -> bool:
    """Whether calls protect their output that do not say. Raises RendezvousError."""
    return flag(environ, "HOCKET_PROTECT")


def job_protocol(environ: Environ = os.environ) -> str:
    """What this rank lets others do with its memory, one of PROTOCOLS. Raises RendezvousError."""
    asked = environ.get("HOCKET_PROTOCOL", "") or PROTOCOLS[0]
    if asked not in PROTOCOLS:
        raise RendezvousError(f'HOCKET_PROTOCOL is "{asked}"; it is lent (the default), staged, or offered')
    return asked


def names() -> set[str]:
    """All variables that hocket reads, its launchers' too."""
    found = {"HOCKET_ADDRESS", "HOCKET_RENDEZVOUS", "HOCKET_SECRET", "HOCKET_TIMEOUT", *IDENTITIES}
    found |= {"HOCKET_TRANSPORT", "HOCKET_TCP_CONGESTION", "HOCKET_SOCKET_IFNAME", "HOCKET_INTEGRITY"}
    found |= {"HOCKET_FALLBACK_IFNAME", "HOCKET_PROTOCOL"}
    found |= {"HOCKET_WIRE", "HOCKET_TCP_STREAMS", "HOCKET_HEARTBEAT_TIMEOUT", "HOCKET_UCX", "UCX_TLS", *TLS}
    found |= {"HOCKET_METRICS", "HOCKET_TRACE", "HOCKET_FLIGHT", "HOCKET_PROTECT", "HOCKET_PROFILE"}
    found |= {"HOCKET_RESTARTS", "HOCKET_MIN_RANKS"}
    found.update(name for launcher in LAUNCHERS for name in launcher.variables if name)
    return found


def seen(environ: Environ = os.environ) -> dict[str, str]:
    """The launchers' variables that are set, for `hocket info`. The secret is not shown."""
    found = {name: environ[name] for name in sorted(names()) if name in environ}
    return {name: "(set)" if name == "HOCKET_SECRET" else value for name, value in found.items()}


def concerning(environ: Environ = os.environ) -> dict[str, str]:
    """What is set that hocket reads, the secret too, or that looks as if it did; for `hocket doctor`."""
    return {
        name: value
        for name, value in environ.items()
        if name in names() or name.startswith("HOCKET_") or name == "OMP_NUM_THREADS"
    }


def _meeting_point(environ: Environ) -> tuple[str, bytes]:
    address, secret = text(environ, "HOCKET_ADDRESS"), text(environ, "HOCKET_SECRET")
    try:
        key = bytes.fromhex(secret)
    except ValueError:
        raise RendezvousError("HOCKET_SECRET is not hexadecimal; it is set by hocket run, not by hand") from None
    if not address.startswith("@"):
        raise RendezvousError(f'HOCKET_ADDRESS is "{address}"; it begins with @ and is set by hocket run, not by hand')
    return address, key


def _transports(environ: Environ) -> tuple[str, ...]:
    """What ranks may talk over, the best first."""
    text = environ.get("HOCKET_TRANSPORT", "") or "shm,tcp"
    given = {word.strip() for word in text.split(",")}
    if given <= {"shm", "ucx", "tcp"} and given != {"shm"}:
        return tuple(way for way in ("shm", "ucx", "tcp") if way in given)
    raise RendezvousError(
        f'HOCKET_TRANSPORT is "{text}"; it is a list of what ranks may talk over: shm (with those of their own host), '
        'and ucx or tcp or both (with others); without it "shm,tcp"'
    )


def _ways_of(job: Config, environ: Environ) -> tuple[str, ...]:
    """What this rank's URL of peers and HOCKET_TRANSPORT both allow. Raises ValueError where that is nothing."""
    ways = job.own.ways
    if environ.get("HOCKET_TRANSPORT"):
        ways = tuple(way for way in ways if way in job.sockets.ways)
    if job.own.far and not ways:
        schemes = " and ".join({"ucx": "rdma", "tcp": "tcp"}[way] for way in job.own.ways)
        asked = environ["HOCKET_TRANSPORT"]
        raise ValueError(f"HOCKET_TRANSPORT={asked} does not go with rank {job.rank} of peers, which has {schemes}://")
    return ways or ("tcp",)


def _ucx_transports(text: str) -> str:
    """What UCX may use: what UCX_TLS says, but never TCP; empty where that leaves nothing."""
    if text.startswith("^"):
        return f"{text},tcp"
    names = [name for name in text.split(",") if name]
    if "all" in names or not names:
        return NO_TCP
    return ",".join(name for name in names if name.partition(":")[0] != "tcp")


def _digest(*words: str) -> bytes:
    return hashlib.sha256(os.fsencode("\0".join(words))).digest()
