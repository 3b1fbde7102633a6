"""What `algorithm=None` means never shows in the bits: docs/decisions/0004."""

from __future__ import annotations

import pytest

from hocket.algorithms import ALGORITHMS, plan
from hocket.check import check
from hocket.choose import choose
from hocket.collectives import find

COLLECTIVES = sorted({collective for collective, _ in ALGORITHMS})


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_the_choice_keeps_the_order_of_ranks_for_every_size(collective: str) -> None:
    for size in (1, 2, 3, 4, 5, 8, 16, 33):
        for name in {choose(collective, nbytes, size) for nbytes in (0, 1, *(1 << bit for bit in range(1, 36)))}:
            facts = check(plan(collective, name, size))
            assert facts.same_everywhere, (name, size)
            assert facts.rank_order or not find(collective).reduces, (name, size)
            assert facts.size_invariant or not find(collective).reduces, (name, size)
