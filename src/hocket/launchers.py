"""The launchers that hocket understands: by which variables each tells a rank its place, and what names the job.

What they are read from is handed over by `config`, which alone reads the environment.
"""

from __future__ import annotations

import math
import os
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from .errors import RendezvousError

Environ = Mapping[str, str]


class Launcher(NamedTuple):
    """One of them. `variables` are the rank, the size, the local rank and the local size; the last two may be absent.
    `job` is what no two jobs of one user on one host share; where one of `triggers` is set, it is this launcher. `told`
    is how a user hands its ranks on several hosts what it cannot tell them, the `{address}` at which rank 0 listens."""

    name: str
    variables: tuple[str, str, str, str]
    job: Callable[[Environ], tuple[str, ...]]
    triggers: tuple[str, ...]
    told: str

    @staticmethod
    def of(environ: Environ) -> Launcher | None:
        """The first whose variables are set."""
        return next((each for each in LAUNCHERS if any(variable in environ for variable in each.triggers)), None)

    def identity(self, environ: Environ) -> tuple[str, ...]:
        """What no two jobs on one host share."""
        return self.name, *self.job(environ), str(os.getuid())

    def place(self, environ: Environ, *, anywhere: bool = False) -> tuple[int, int, int, int]:
        """Rank, size, local rank, local size; unless ranks may be `anywhere`, one host is checked here, as far as the
        launcher knows."""
        rank_name, size_name, local_rank_name, local_size_name = self.variables
        size = integer(environ, size_name, 1)
        rank = integer(environ, rank_name, 0, size - 1)
        if anywhere:
            local_rank = integer(environ, local_rank_name, 0, size - 1, default="0")
            return rank, size, local_rank, integer(environ, local_size_name, 1, size, default=str(local_rank + 1))
        local_size = integer(environ, local_size_name, 1, size, default=str(size))
        if local_size != size:
            here = f"{local_size} of them on this host ({local_size_name})"
            raise RendezvousError(f"{self.name} started {size} ranks, {here}: {self.on_several_hosts(rank)}")
        return rank, size, integer(environ, local_rank_name, 0, local_size - 1, default=str(rank)), local_size

    def on_several_hosts(self, rank: int) -> str:
        """What is missing there; rank 0 knows best how its own host is called."""
        address = f"tcp://{socket.gethostname() if rank == 0 else 'HOST'}:4711"
        whose = "" if rank == 0 or "{address}" not in self.told else ", HOST being that of rank 0"
        return f"the ranks of several hosts need a HOCKET_SECRET{self.told.format(address=address)}{whose}"


def text(environ: Environ, name: str) -> str:
    """A variable that must be set."""
    value = environ.get(name, "")
    if not value:
        raise RendezvousError(
            f"{name} is {'empty' if name in environ else 'not set'}, but other variables of its launcher are: "
            "start all ranks with one launcher (hocket run -n 4 script.py), or unset them all for a world of one"
        )
    return value


def integer(environ: Environ, name: str, least: int, most: int = 2**31 - 1, default: str | None = None) -> int:
    """A whole number within bounds, or the default where the variable is not set."""
    value = default if default is not None and name not in environ else text(environ, name)
    if value.isascii() and value.isdigit() and len(value) < 20 and least <= int(value) <= most:
        return int(value)
    span = f"from {least} to {most}" if most < 2**31 - 1 else f"of at least {least}"
    raise RendezvousError(f'{name} is "{value}", which is no whole number {span}')


def number(environ: Environ, name: str, least: int, most: int = 2**31 - 1) -> int:
    """A whole number within bounds; the least where it is not set, or empty."""
    return integer({name: environ.get(name) or str(least)}, name, least, most)


def flag(environ: Environ, name: str) -> bool:
    """1 or 0; no where it is not set."""
    value = environ.get(name, "")
    if value not in ("", "0", "1"):
        raise RendezvousError(f'{name} is "{value}"; it is 1, or 0')
    return value == "1"


def nbytes(environ: Environ, name: str) -> int:
    """With K, M or G behind them, or without; 0 where it is not set."""
    found = re.fullmatch(r"(\d{1,9})([KMG]?)", environ.get(name, "") or "0")
    if found is None:
        raise RendezvousError(f'{name} is "{environ[name]}", which is no number of bytes, such as 65536 or 64K')
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]]


def seconds(environ: Environ, name: str, default: float, least: float = 0.0, most: float = math.inf) -> float:
    """A time within bounds, or the default where the variable is not set."""
    value = environ.get(name) or str(default)
    try:
        found = float(value)
    except ValueError:
        found = 0.0
    if 0 < found < math.inf and least <= found <= most:
        return found
    span = f"from {least:g} to {most:g}" if least else "above zero"
    raise RendezvousError(f'{name} is "{value}", which is no number of seconds {span}')


def _torchrun(environ: Environ) -> tuple[str, ...]:
    optional = (environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"))
    return (*(text(environ, name) for name in ("MASTER_ADDR", "MASTER_PORT")), *optional)


def _open_mpi(environ: Environ) -> tuple[str, ...]:
    names = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid")
    for name in names:
        if environ.get(name):
            return (environ[name],)
    raise RendezvousError(
        f"Open MPI's mpirun set OMPI_COMM_WORLD_SIZE but no job id: none of {', '.join(names)} is set"
    )


def _mpich(environ: Environ) -> tuple[str, ...]:
    """Hydra tells its ranks no job id, so the job is the process that started them: its pid and its time of birth.

    A rank may run inside a wrapper script, which has the rank's own PMI_RANK; the first ancestor without it is meant.
    """
    mine = b"PMI_RANK=" + environ["PMI_RANK"].encode()
    pid = os.getppid()
    while pid > 1 and mine in _proc(pid, "environ").split(b"\0"):
        pid = int(_stat(pid)[1])
    return str(pid), _stat(pid)[19]


def _srun(environ: Environ) -> tuple[str, ...]:
    nodes = integer(environ, "SLURM_STEP_NUM_NODES", 1, default="1")
    if nodes != 1:
        advice = SRUN.on_several_hosts(int(environ.get("SLURM_PROCID", "0")))
        raise RendezvousError(f"srun started this step on {nodes} hosts (SLURM_STEP_NUM_NODES): {advice}")
    return text(environ, "SLURM_JOB_ID"), text(environ, "SLURM_STEP_ID")


_MAKE = "export HOCKET_SECRET=$(openssl rand -hex 16)"
_PASSED_ON = f" and a HOCKET_RENDEZVOUS to meet at: {_MAKE} HOCKET_RENDEZVOUS={{address}} before it is started"
IDENTITIES = (
    *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
    *("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"),
    *("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NUM_NODES"),
)
_OMPI = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
_PMI = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
# The scripts of sbatch see SLURM_PROCID too; only srun sets the number of tasks of a step. It has no plain number of
# local tasks ("2(x2)"), hence the name that is never set.
_SLURM = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "")
PLAIN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")

TORCHRUN = Launcher("torchrun", PLAIN, _torchrun, PLAIN[:2], f", the same on all of them: {_MAKE}")
OPEN_MPI = Launcher(
    "mpirun (Open MPI)",
    _OMPI,
    _open_mpi,
    _OMPI[:2],
    f" and a HOCKET_RENDEZVOUS to meet at: {_MAKE}, and mpirun -x HOCKET_SECRET -x HOCKET_RENDEZVOUS={{address}} ...",
)
SRUN = Launcher("srun", _SLURM, _srun, _SLURM[1:2], _PASSED_ON)
LAUNCHERS = (TORCHRUN, OPEN_MPI, Launcher("mpirun (MPICH)", _PMI, _mpich, _PMI[:2], _PASSED_ON), SRUN)


def _proc(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # another user's process, or gone: its pid alone still tells the job from its neighbours
        return b""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/pid/stat behind the name (which may hold anything): state, ppid, ... start time at 19."""
    return _proc(pid, "stat").decode(errors="replace").rpartition(")")[2].split() or ["?", "0", *["?"] * 18]
