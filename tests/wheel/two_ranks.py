"""Two ranks sum, out of an installed wheel: `hocket run -n 2 tests/wheel/two_ranks.py`."""

import numpy as np

import hocket

with hocket.init(timeout=30) as group:
    y = group.all_reduce(np.arange(1000.0) + group.rank)
    assert group.size == 2
    assert (y == 2 * np.arange(1000.0) + 1).all()
    print(f"rank {group.rank} of 2 is right")
