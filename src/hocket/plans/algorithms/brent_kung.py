"""Up a tree and down again: as few messages as a scan in about 2 log2 n rounds can have.

    0   1   2   3   4   5   6   7
    └──▶┘   └──▶┘   └──▶┘   └──▶┘      up: the sums of two, of four, of eight ranks, each at the last of them
        └──────▶┘       └──────▶┘
                └──────────────▶┘
                └──────▶┘              down: what is whole goes to the middle of the next four, then of the next two
        └──▶┘   └──▶┘   └──▶┘

Operands stay in the order of ranks; the bits are not those of a fold from the first rank on.

Brent & Kung, "A regular layout for parallel adders", IEEE ToC C-31(3), 1982.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..plan import Column, Steps
from .combine import in_front, moved_on


def rounds(n: int) -> Iterator[tuple[Column, Column]]:
    """Who gets, and what is put in front of it."""
    spans = [1 << k for k in range((n - 1).bit_length())]
    for span in spans:
        to = np.arange(2 * span - 1, n, 2 * span)
        yield to, to - span
    for span in reversed(spans):
        to = np.arange(3 * span - 1, n, 2 * span)
        yield to, to - span


def scan(n: int) -> Steps:
    """Rounds at most 2⌈log2 n⌉ - 1, messages fewer than 2n in total."""
    return in_front(n, rounds(n))


def exscan(n: int) -> Steps:
    """One round more: each rank's input goes to the next rank, and is scanned there."""
    return moved_on(n, rounds(n - 1))
