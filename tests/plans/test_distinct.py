"""The values of a column, each once."""

from __future__ import annotations

import numpy as np
import pytest

from hocket.plans.distinct import distinct


@pytest.mark.parametrize("length", [0, 1, 2, 7, 300])
@pytest.mark.parametrize("values", [1, 3, 40])
def test_what_numpy_finds_is_found(length: int, values: int) -> None:
    column = np.random.default_rng(length * 100 + values).integers(-values, values, length)
    found = distinct(column)
    _, first, which = np.unique(column, return_index=True, return_inverse=True)
    assert (found.first.tolist(), found.which.tolist()) == (first.tolist(), which.tolist())
