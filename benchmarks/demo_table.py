"""A small table: how long an all-reduce takes, from 8 bytes to 64 MiB, in hocket and in the libraries beside it.

    python benchmarks/demo_table.py [--ranks 2 4] [--thorough]

Every number is measured here and now, each library in processes of its own, one after another; see peers/measure.py for
what is timed. What is not installed is left out: `make bench` installs it.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from peers import HOCKET, PEERS
from rich.console import Console
from rich.table import Table

# Bytes, and how often: enough for a steady median in a demo of a minute.
REPETITIONS = {8: 200, 1 << 10: 200, 16 << 10: 100, 256 << 10: 60, 4 << 20: 12, 64 << 20: 3}
THOROUGH = {8: 2000, 1 << 10: 2000, 16 << 10: 1000, 256 << 10: 400, 4 << 20: 80, 64 << 20: 11}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="numbers of processes")
    parser.add_argument("--thorough", action="store_true", help="more repetitions, for figures to be quoted")
    options = parser.parse_args()
    repetitions = THOROUGH if options.thorough else REPETITIONS

    console = Console()
    present = [peer for peer in PEERS if peer.place()]
    for ranks in options.ranks:
        lines: dict[str, dict[int, dict[str, Any]]] = {}
        for peer in present:
            with console.status(f"timing {peer.name}, {ranks} processes"):
                try:
                    lines[peer.name] = {line["bytes"]: line for line in peer.measure(ranks, repetitions, timeout=300.0)}
                except RuntimeError as error:
                    console.print(str(error), markup=False)
        console.print(f"float32 all-reduce, {ranks} processes on {os.cpu_count()} cores, median time", style="bold")
        console.print(table(list(repetitions), lines))
        if HOCKET.name not in lines:
            return 1
    missing = ", ".join(peer.name for peer in PEERS if peer not in present)
    if missing:
        console.print(f"Not installed here: {missing}. [bold]make bench[/] installs them and times them too.")
    return 0


def table(sizes: list[int], lines: dict[str, dict[int, dict[str, Any]]]) -> Table:
    """One row per size, one column per library; the shortest time of a row is green."""
    page = Table()
    page.add_column("bytes", justify="right")
    for name, measured in lines.items():
        library = next((line["library"] for line in measured.values()), name)
        page.add_column(library.replace(" (", "\n("), justify="right")
    for size in sizes:
        row = [measured.get(size) for measured in lines.values()]
        best = min((line["microseconds"] for line in row if line), default=0.0)
        page.add_row(binary(size), *(cell(line, best) for line in row))
    return page


def cell(line: dict[str, Any] | None, best: float) -> str:
    if line is None:
        return "-"
    if line["wrong"]:
        return "[red]wrong sum[/]"
    text = duration(line["microseconds"])
    return f"[green]{text}[/]" if line["microseconds"] == best else text


def duration(microseconds: float) -> str:
    """Three significant digits, in µs or ms: `0.83 µs`, `12.4 ms`."""
    value, unit = (microseconds, "µs") if microseconds < 1000 else (microseconds / 1000, "ms")
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def binary(size: int) -> str:
    for unit in ("B", "KiB"):
        if size < 1024:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} MiB"


if __name__ == "__main__":
    sys.exit(main())
