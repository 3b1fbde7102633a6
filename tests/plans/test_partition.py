"""How vectors are cut."""

from __future__ import annotations

import numpy as np
import pytest

from hocket.plans.partition import bounds


def test_as_array_split() -> None:
    for count in (0, 1, 2, 7, 8, 9, 1000):
        for chunks in range(1, 12):
            wanted = [len(piece) for piece in np.array_split(np.empty(count), chunks)]
            assert np.diff(bounds(count, chunks)).tolist() == wanted
            assert bounds(count, chunks)[[0, -1]].tolist() == [0, count]


def test_blocks_are_cut_one_by_one() -> None:
    assert bounds(10, 6, [3, 0, 7]).tolist() == [0, 2, 3, 3, 3, 7, 10]
    assert bounds(3, 3, [0, 3, 0]).tolist() == [0, 0, 3, 3]


def test_beyond_32_bits() -> None:
    cut = bounds((1 << 40) + 5, 8)
    assert cut.dtype == np.int64
    assert cut[-1] == (1 << 40) + 5
    assert set(np.diff(cut).tolist()) == {1 << 37, (1 << 37) + 1}


@pytest.mark.parametrize(
    ("count", "chunks", "sizes"),
    [(-1, 2, None), (3, 0, None), (3, 2, [1, 1]), (3, 3, [1, 2]), (3, 2, [4, -1]), (0, 1, [])],
)
def test_what_cannot_be_cut(count: int, chunks: int, sizes: list[int] | None) -> None:
    with pytest.raises(ValueError, match="cut"):
        bounds(count, chunks, sizes)
