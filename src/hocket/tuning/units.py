"""Times and rates as people write them: `2us`, `100Gbit/s`, `12.5GB/s`. Times in seconds, rates in seconds per byte."""

from __future__ import annotations

import math
import re

KIB = 1 << 10
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_SIZES = {"": 1, "K": KIB, "M": KIB**2, "G": KIB**3}

Pieces = tuple[tuple[float, float], ...]  # up to so many bytes, so many seconds for each; the last limit is infinite


def seconds(text: str) -> float:
    """`2us` is 2e-6. Raises ValueError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?(?:e-?\d+)?) ?([mnuµ]?s)", str(text).strip())
    if not found:
        raise ValueError(f"a time is a number with s, ms, us or ns, such as 2us, not {text!r}")
    return float(found[1]) * _TIMES[found[2]]


def per_byte(text: str) -> float:
    """`100Gbit/s` is 8e-11 seconds; `inf` is 0. Raises ValueError."""
    if str(text).strip() == "inf":
        return 0.0
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kKMGT]?)(i?)(bit|B)(?:/s|ps)?", str(text).strip())
    rate = float(found[1]) if found else 0.0
    if found is None or rate <= 0:
        raise ValueError(f"a rate is a number with bit/s or B/s, such as 100Gbit/s or 12.5GB/s, or inf, not {text!r}")
    scale = _SIZES.get(found[2].upper(), KIB**4) if found[3] else _SCALES[found[2].lower()]
    return (8.0 if found[4] == "bit" else 1.0) / (rate * scale)


def pieces(text: str) -> Pieces:
    """`20GB/s:1MiB:8GB/s`: 20 GB/s for the first MiB of a message, and 8 GB/s beyond. Raises ValueError."""
    words = str(text).split(":")
    limits = [*map(_size, words[1::2]), math.inf]
    rates = [per_byte(word) for word in words[::2]]
    if len(words) % 2 == 0 or limits != sorted(set(limits)):
        raise ValueError(f"rates have rising sizes between them, such as 20GB/s:1MiB:8GB/s, not {text!r}")
    return tuple(zip(limits, rates, strict=True))


def _size(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMG]?)(?:i?B)?", text.strip())
    if not found:
        raise ValueError(f"a size is a number of bytes, or one with K, M or G, such as 1MiB, not {text!r}")
    return float(found[1]) * _SIZES[found[2]]
