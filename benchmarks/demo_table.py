"""A small table: how long an all-reduce takes, from 8 bytes to 64 MiB, in hocket and in the libraries beside it.

    python benchmarks/demo_table.py [--ranks 2 4]

Every number is measured here and now, the libraries taking turns. What is not installed is left out: `make bench`
installs it. `hocket bench` measures everything else, `hocket bench --help` says how.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from rich.console import Console

from hocket.bench.peers import LIBRARIES, Peer
from hocket.bench.session import LibraryFailed
from hocket.bench.show import versus_table
from hocket.bench.sweep import Effort, Field, task_for

SIZES = (8, 1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20)
EFFORT = Effort(rounds=3, times=10, seconds=0.2)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="numbers of processes")
    ranks: list[int] = parser.parse_args().ranks
    console = Console()
    present = {name: peer for name, peer in LIBRARIES.items() if peer.place()}
    rows: list[dict[str, Any]] = []
    for size in ranks:
        try:
            measured = compare(console, present, size)
        except LibraryFailed as error:
            console.print(str(error), markup=False)
            return 1
        console.print(versus_table(measured, f"float32 all-reduce, {size} processes on {os.cpu_count()} cores, median"))
        rows += measured
    missing = ", ".join(peer.name for name, peer in LIBRARIES.items() if name not in present)
    if missing:
        console.print(f"Not installed here: {missing}. [bold]make bench[/] installs them and times them too.")
    return 1 if any(row["wrong"] or row["error"] for row in rows if row["key"] == "hocket") else 0


def compare(console: Console, libraries: dict[str, Peer], ranks: int) -> list[dict[str, Any]]:
    """The all-reduce in place, which all of them have, at every size."""
    rows: list[dict[str, Any]] = []
    with console.status(f"starting {ranks} processes of each library") as status, Field(libraries, ranks) as field:
        status.stop()  # nothing may turn while something is timed
        for size in SIZES:
            rows += field.compare(task_for("all_reduce", size, ranks, EFFORT, in_place=True), EFFORT)
    return rows


if __name__ == "__main__":
    sys.exit(main())
