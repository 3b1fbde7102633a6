"""How a vector is cut into chunks: the only place that divides by the number of chunks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def bounds(count: int, chunks: int, sizes: Sequence[int] | None = None) -> npt.NDArray[np.int64]:
    """Where each chunk of a vector of `count` elements begins, and where the last one ends: `chunks + 1` int64 offsets.

    Without `sizes`, the first `count % chunks` chunks are one element longer than the others (the rule of
    `np.array_split`). With `sizes`, block i has `sizes[i]` elements, and each block is cut by that rule into
    `chunks / len(sizes)` chunks. Raises ValueError where the sizes do not fit the count or the number of chunks.
    """
    if count < 0 or chunks < 1:
        raise ValueError(f"cannot cut {count} elements into {chunks} chunks")
    if sizes is None:
        i = np.arange(chunks + 1)
        return i * (count // chunks) + np.minimum(i, count % chunks)
    blocks = np.asarray(sizes, np.int64)
    if len(blocks) == 0 or chunks % len(blocks) or blocks.min() < 0 or blocks.sum() != count:
        raise ValueError(f"sizes {blocks.tolist()} do not cut {count} elements into {chunks} chunks")
    per = chunks // len(blocks)
    lengths = blocks[:, None] // per + (np.arange(per) < blocks[:, None] % per)
    offsets = np.zeros(chunks + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
