"""Pictures: of a comparison, time over size, both logarithmic, one panel per number of ranks and hosts; and of what
predicted times are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from .figures import binary
from .show import Row, names

COLOURS = {"hocket": "#d62728", "openmpi": "#1f77b4", "mpich": "#2ca02c", "impi": "#9467bd", "gloo": "#7f7f7f"}


def plot(rows: Sequence[Row], path: Path, title: str = "") -> None:
    """Write `path`, of whatever kind its suffix says. In place where that was measured. Raises ImportError without
    matplotlib, and ValueError for a suffix that it does not know."""
    import_module("matplotlib").use("Agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    panels = [*dict.fromkeys(_place(row) for row in rows if row["bytes"])]
    across = max(1, min(len(panels), 2))
    down = max(1, -(-len(panels) // across))
    figure, axes = pyplot.subplots(down, across, figsize=(6 * across, 4.2 * down), squeeze=False, layout="constrained")
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    for axis, (collective, ranks, hosts) in zip(axes.flat, panels, strict=False):
        _panel(axis, [row for row in rows if _place(row) == (collective, ranks, hosts)])
        axis.set_title(f"{collective}, {f'{ranks} ranks' if hosts == 1 else f'{hosts} hosts x {ranks // hosts}'}")
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def stacked(bars: Sequence[tuple[str, Mapping[str, float]]], path: Path, title: str = "") -> None:
    """Write `path`: a bar for each name, made up of parts in seconds. Raises as `plot`."""
    import_module("matplotlib").use("Agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    figure, axis = pyplot.subplots(figsize=(7, 1.2 + 0.4 * len(bars)), layout="constrained")
    names, left = [name for name, _ in bars], [0.0] * len(bars)
    for part in bars[0][1]:
        widths = [parts[part] for _, parts in bars]
        axis.barh(names, widths, left=left, label=part)
        left = [begin + width for begin, width in zip(left, widths, strict=True)]
    axis.invert_yaxis()
    axis.set_xlabel("s")
    axis.set_title(title, fontsize="medium")
    axis.legend(fontsize="small")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _place(row: Row) -> tuple[str, int, int]:
    return row["collective"], row["ranks"], row.get("hosts", 1)


def _panel(axis: Any, rows: Sequence[Row]) -> None:
    for key, name in names(rows).items():
        mine = [row for row in rows if row["key"] == key and row["samples"] and row["bytes"]]
        ways = {row["in_place"] for row in mine}
        mine = [row for row in mine if row["in_place"] == (True in ways)]
        sizes, times = [row["bytes"] for row in mine], [row["p50_us"] for row in mine]
        width = 2.2 if key == "hocket" else 1.4
        axis.loglog(sizes, times, "o-", base=10, label=name, color=COLOURS.get(key), linewidth=width, markersize=4)
    ticks = sorted({row["bytes"] for row in rows if row["bytes"]})
    axis.set_xscale("log", base=2)
    axis.set_xticks(ticks, [binary(size) for size in ticks], rotation=45, ha="right")
    axis.minorticks_off()
    axis.set_ylabel("µs per call (median)")
    axis.grid(True, alpha=0.3)
    axis.legend(fontsize="small")
