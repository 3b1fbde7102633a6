"""What is in a column, each value once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .plan import Column


class Distinct(NamedTuple):
    """Where in a column each of its values is `first`, from the least value on, and `which` of them each element is."""

    first: Column
    which: Column


def distinct(column: Column) -> Distinct:
    """As np.unique finds them, which imports numpy.ma, to ask whether anything is masked: every rank would wait for
    that in its first call, for a fifth as long as for NumPy."""
    order = np.argsort(column, kind="stable")
    arranged = column[order]
    begins = np.ones(len(column), bool)
    begins[1:] = arranged[1:] != arranged[:-1]
    which = np.empty(len(column), np.int64)
    which[order] = np.cumsum(begins) - 1
    return Distinct(order[begins], which)
