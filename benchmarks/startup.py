"""How long a job takes that does nothing: from the command until all ranks have met, been in one barrier, and ended.

    python benchmarks/startup.py [--ranks 2,4,16] [--rounds 7]

Beside the libraries of `make bench`, as far as they are installed, stands what nobody can go below: as many Pythons at
once, which import NumPy and end; and what hocket cannot without --preload: as many that import hocket, too. Libraries
take turns, another one first in each round; medians are shown, and how many times the least that is.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from hocket.bench.peers import FORGOTTEN, LIBRARIES

PATIENCE = 120.0  # seconds
LEAST, IMPORTS = "NumPy alone", "import hocket"
PROGRAMS = {
    LEAST: "import numpy",
    IMPORTS: "import numpy, hocket\nhocket.Group",
    "hocket": "import hocket, numpy\nwith hocket.init() as group: group.barrier()",
    "mpi": "import numpy\nfrom mpi4py import MPI\nMPI.COMM_WORLD.Barrier()",
    "torch": "import torch.distributed as d\nd.init_process_group('gloo')\nd.barrier()\nd.destroy_process_group()",
}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "{ranks}"]
ENVIRON = {name: value for name, value in os.environ.items() if name not in FORGOTTEN} | {"OMP_NUM_THREADS": "1"}


def run(commands: list[list[str]]) -> None:
    """All at once, to their end. Raises CalledProcessError."""
    started = [
        subprocess.Popen(command, env=ENVIRON, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for command in commands
    ]
    for process in started:
        _, said = process.communicate(timeout=PATIENCE)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args, stderr=said)


def contestants(folder: Path) -> dict[str, Callable[[int], None]]:
    """What starts so many ranks of each, by the names that are shown."""
    files = {name: folder / f"with_{name.split()[0]}.py" for name in PROGRAMS}
    for name, file in files.items():
        file.write_text(f"{PROGRAMS[name]}\n")
    found: dict[str, Callable[[int], None]] = {
        name: lambda ranks, name=name: run([[sys.executable, str(files[name])]] * ranks)  # type: ignore[misc]
        for name in (LEAST, IMPORTS)
    }
    cores = len(os.sched_getaffinity(0))
    for name in ("hocket", "openmpi", "mpich", "impi"):
        peer = LIBRARIES[name]
        if place := peer.place():
            commands = partial(peer.commands, place, "", cores=cores, script=str(files[peer.script]))
            found[peer.name] = lambda ranks, commands=commands: run(commands(ranks))  # type: ignore[misc]
    preload = [sys.executable, "-m", "hocket", "run", "--preload", "numpy", "-n"]
    found["hocket, preloaded"] = lambda ranks: run([[*preload, str(ranks), str(files["hocket"])]])
    if LIBRARIES["gloo"].place():
        found["torchrun, gloo"] = lambda ranks: run(
            [[*(word.format(ranks=ranks) for word in TORCHRUN), str(files["torch"])]]
        )
    return found


def main() -> None:
    """Measure, and show the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4,16", help="how many, several with commas (%(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="of each (%(default)s)")
    args = parser.parse_args()
    sizes = [int(word) for word in args.ranks.split(",")]
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        all_of_them = contestants(Path(folder))
        seconds: dict[tuple[str, int], list[float]] = defaultdict(list)
        names = list(all_of_them)
        for number in track(range(args.rounds), "rounds", console=Console(stderr=True), transient=True):
            for ranks in sizes:
                turn = number % len(names)
                for name in names[turn:] + names[:turn]:
                    begin = time.monotonic()
                    all_of_them[name](ranks)
                    seconds[name, ranks].append(time.monotonic() - begin)
    table = Table(title=f"Seconds of a job with one barrier, median of {args.rounds}; and times the least")
    table.add_column("")
    for ranks in sizes:
        table.add_column(f"{ranks} ranks", justify="right")
    for name in names:
        cells = []
        for ranks in sizes:
            median, least = (statistics.median(seconds[who, ranks]) for who in (name, LEAST))
            cells.append(f"{median:.2f}  {median / least:.2f}")
        table.add_row(name, *cells)
    console.print(table)


if __name__ == "__main__":
    main()
