"""Sizes, units, and the two bandwidths of nccl-tests."""

from __future__ import annotations

import math
import re
from itertools import takewhile

UNITS = {"": 0, "K": 10, "M": 20, "G": 30}


def parse_size(text: str) -> int:
    """Bytes: "8", "1K", "64M", "64MiB", "1.5G", in powers of 1024. Raises ValueError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?\s*", text, re.IGNORECASE)
    size = float(match[1]) * 2 ** UNITS[match[2].upper()] if match else 0.5
    if size != int(size):
        raise ValueError(f'"{text}" is not a size: a number of bytes, or one with K, M or G, such as 64M')
    return int(size)


def sweep_of(begin: int, end: int, factor: int) -> list[int]:
    """`begin`, `begin * factor`, ... up to `end`. Raises ValueError for what never gets there."""
    if not 0 < begin <= end:
        raise ValueError(f"sizes go from {begin} to {end} bytes: the first is above zero, and the last no less")
    if factor < 2:
        raise ValueError(f"the factor between sizes is at least 2, not {factor}")
    steps = range(1 + math.ceil(math.log(end / begin, factor)) + 1)
    return list(takewhile(lambda size: size <= end, (begin * factor**step for step in steps)))


def bus_factor(collective: str, ranks: int) -> float:
    """busbw / algbw, as nccl-tests' PERFORMANCE.md has it: what crosses the busiest link, per byte of the vector."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective.removesuffix("_object") in ("reduce_scatter", "all_gather", "all_to_all", "scatter", "gather"):
        return (ranks - 1) / ranks
    return 1.0


def elements(nbytes: int, itemsize: int, ranks: int, blocks: bool) -> int:
    """How many elements `nbytes` are, rounded up to whole ones, and to a multiple of `ranks` where each has a part."""
    count = -(-nbytes // itemsize)
    return -(-count // ranks) * ranks if blocks else count


def binary(size: int) -> str:
    """`8 B`, `16 KiB`, `64 MiB`."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024 or size % 1024:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} GiB"


def duration(seconds: float) -> str:
    """Three digits, in µs or ms: `0.83 µs`, `12.4 ms`."""
    value, unit = (seconds * 1e6, "µs") if seconds < 1e-3 else (seconds * 1e3, "ms")
    return f"{three(value)} {unit}"


def three(value: float) -> str:
    """Three significant digits, but whole numbers in full."""
    if not math.isfinite(value):
        return "-"
    return f"{value:.{max(0, min(3, 2 - math.floor(math.log10(value))))}f}" if value > 0 else "0"
