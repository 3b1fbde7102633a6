"""Rows as tables for people, and as JSON and CSV for programs."""

from __future__ import annotations

import csv
import json
import math
import os
import platform
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, TextIO

from rich import box
from rich.table import Table

from ..tuning import saved
from .figures import binary, duration, three
from .peers import FLOORS
from .peers.data import REDUCES
from .sweep import is_peer, ratio

Row = dict[str, Any]


def by_size(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows of each size, as they follow each other."""
    return [list(group) for _, group in groupby(rows, key=lambda row: row["bytes"])]


def own_table(rows: Sequence[Row], title: str, *, narrow: bool = False) -> Table:
    """hocket's rows, one line per size, with the columns of nccl-tests, out of place and in place. A `narrow` one, of
    one of these ways, fits into 80 columns: without the count, which is the size in elements."""
    ways = sorted({row["in_place"] for row in rows})
    table = _table(title, "out of place, then in place" if len(ways) > 1 else f"{'in' if ways[0] else 'out of'} place")
    if narrow:
        table.padding, table.show_edge = (0, 0), False
    counts = [] if narrow else ["count"]
    for name in ("size", *counts, "type", "op", *["p50 µs", "p99 µs", "algbw", "busbw", "wrong"] * len(ways)):
        table.add_column(name, justify="right", no_wrap=True)
    is_told = any(row["predicted_us"] is not None for row in rows)
    if is_told:
        table.add_column("pre-\ndicted" if narrow else "predicted µs", justify="right", no_wrap=True)
    table.add_column("algorithm", no_wrap=not narrow, overflow="fold")
    for group in by_size(rows):
        first, cells = group[0], []
        for way in ways:
            cells += _own_cells(next((row for row in group if row["in_place"] == way), None))
        op = first["op"] if first["collective"] in REDUCES else "-"
        algorithm = next((row["algorithm"] for row in group if row["algorithm"]), "")
        told = ["-" if first["predicted_us"] is None else three(first["predicted_us"])] if is_told else []
        count = [] if narrow else [str(first["count"])]
        table.add_row(str(first["bytes"]), *count, first["dtype"], op, *cells, *told, algorithm)
    return table


def _own_cells(row: Row | None) -> list[str]:
    if row is None or not row["samples"]:
        return ["[red]failed[/]" if row and row["error"] else "-", *["-"] * 4]
    wrong = f"[red]{row['wrong']}[/]" if row["wrong"] else "0"
    return [*(three(row[name]) for name in ("p50_us", "p99_us", "algbw", "busbw")), wrong]


def _table(title: str, caption: str) -> Table:
    table = Table(title=title, caption=caption, title_style="bold", box=box.SIMPLE_HEAD)
    table.title_justify = table.caption_justify = "left"
    return table


def versus_table(rows: Sequence[Row], title: str) -> Table:
    """The libraries side by side, one line per size; the shortest time is green. Where there are peers, the ratio is
    best peer / hocket; those that are no peers have columns of their own."""
    table = _table(title, "")
    table.add_column("size", justify="right")
    libraries = names(rows)
    for key, name in libraries.items():
        table.add_column(name.replace(" (", "\n("), justify="right", style="bold" if key == "hocket" else "")
    has_peers = any(is_peer(key) for key in libraries)
    if has_peers:
        table.add_column("best peer\n/ hocket", justify="right")
    beside = [key for key in libraries if key != "hocket" and not is_peer(key)]
    for key in beside:
        table.add_column(f"{key.removeprefix('hocket ')}\n/ hocket", justify="right")
    for group in by_size(rows):
        times = [row["p50_us"] for row in group if row["samples"] and not row["wrong"] and row["key"] not in FLOORS]
        cells = [cell(row, min(times, default=0.0)) for row in group]
        times_faster = ratio(group)
        mark = three(times_faster)
        colour = "red" if times_faster < 1 else "green"
        marks = [mark if mark == "-" else f"[{colour}]{mark}[/]"] if has_peers else []
        others = [three(ratio(group, key.__eq__)) for key in beside]
        table.add_row(binary(group[0]["bytes"]), *cells, *marks, *others)
    return table


def names(rows: Iterable[Row]) -> dict[str, str]:
    """The libraries' full names, by key, in the order of the rows."""
    found: dict[str, str] = {}
    for row in rows:
        found[row["key"]] = str(row["library"] or found.get(row["key"], row["key"]))
    return found


def cell(row: Row, best: float) -> str:
    """A median, with markup; "-" where the library has no such call."""
    if row["error"]:
        return "[red]failed[/]"
    if row["wrong"]:
        return f"[red]{row['wrong']} wrong[/]"
    if not row["samples"]:
        return "-"
    text = duration(row["p50_us"] / 1e6)
    return f"[green]{text}[/]" if row["p50_us"] == best else text


def machine() -> dict[str, Any]:
    """What the figures were taken on. Virtual processors of one name differ in what they are, as their family and
    caches tell: a Zen 4 may be an "AMD EPYC" as well as a Zen 5."""
    known = saved.machine()
    family = f"family {known['family']}, " if known["family"] else ""
    return {
        "processor": f"{known['processor']} ({family}{binary(known['l2'])} L2)",
        "cores": len(os.sched_getaffinity(0)),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def write_json(rows: Sequence[Row], file: TextIO) -> None:
    """The machine and all rows; null for what was not measured."""
    plain = [{k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()} for row in rows]
    json.dump({"machine": machine(), "rows": plain}, file, indent=1)
    file.write("\n")


def write_csv(rows: Sequence[Row], file: TextIO) -> None:
    """One line per row; the first names the columns."""
    writer = csv.DictWriter(file, list(rows[0]) if rows else [])
    writer.writeheader()
    writer.writerows(rows)
