"""The section of docs/performance.md that puts kinds of machines side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kept import Found, measured_at
from page import Row, groups, paragraph, table

from hocket.bench.figures import binary, duration, three
from hocket.bench.sweep import is_peer, ratio

LIBRARY = {"openmpi": "Open MPI", "mpich": "MPICH", "impi": "Intel MPI", "gloo": "gloo"}


def cpus(found: Found, others: Sequence[Found]) -> list[str]:
    """The all-reduce on the machine at hand and on each of the others; nothing where there are none."""
    machines = [found, *others]
    if not others:
        return []
    facts = table(["", "cores", "system", "measured", "commit"], [_facts(each) for each in machines])
    parts = ["## On other processors", paragraph(TEXT), facts]
    names = [each["machine"]["processor"] for each in machines]
    for key, ranks in [("all_reduce", 2), ("all_reduce", 4), ("crowd", 8), ("crowd", 16)]:
        by_size = [_by_size(each.get(f"{key} {ranks}", [])) for each in machines]
        sizes = sorted(set().union(*by_size[1:]))
        if not sizes:
            continue
        lines = [[binary(size), *(cell for each in by_size for cell in _cells(each.get(size, [])))] for size in sizes]
        columns = ["size", *(text for name in names for text in (f"{name}: hocket", "best peer", "ratio"))]
        parts += [f"### {ranks} ranks, processor by processor", table(columns, lines)]
    for each in others:
        if each.get("remarks"):
            parts.append(paragraph(f"**{each['machine']['processor']}.** {each['remarks']}"))
    return parts


TEXT = (
    "The float32 all-reduce in place on the machine of this page, which comes first, and on others that were measured "
    "before: `make bench` writes what it finds into `benchmarks/figures`, a file for each kind of machine, and reads "
    "those of the others there. Rows of different machines were not taken on the same day, nor of the same hocket: "
    "only within one of them are times to be compared."
)


def _facts(found: Found) -> list[str]:
    machine = found["machine"]
    return [machine["processor"], str(machine["cores"]), machine["kernel"], *measured_at(found)]


def _by_size(rows: Sequence[Row]) -> dict[int, list[Row]]:
    return {group[0]["bytes"]: group for group in groups(rows, "bytes")}


def _cells(rows: Sequence[Row]) -> list[str]:
    own = next((row["p50_us"] for row in rows if row["key"] == "hocket"), math.nan)
    peers = [row for row in rows if is_peer(row["key"]) and not math.isnan(row["p50_us"])]
    if math.isnan(own) or not peers:
        return ["-" if math.isnan(own) else duration(own / 1e6), "-", "-"]
    best = min(peers, key=lambda row: float(row["p50_us"]))
    name = LIBRARY.get(best["key"], best["library"])
    return [duration(own / 1e6), f"{duration(best['p50_us'] / 1e6)} ({name})", three(ratio(rows))]
