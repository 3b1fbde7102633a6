"""What type checkers and editors know of calls: what comes back is of the kind that came in.

Arguments that most calls have alike are named once, here, for the overloads that tell a result from a promise of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, TypedDict, TypeVar

import numpy as np

from ..calls.dispatch import Algorithm, Order


class HasDtype(Protocol):
    """An array: of NumPy, a tensor of torch, or of another library that speaks DLPack."""

    @property
    def shape(self) -> Any:
        """The length of each axis."""

    @property
    def dtype(self) -> Any:
        """What its elements are."""


Number: TypeAlias = "complex | np.generic"  # Python's, as type checkers count: bool, int and float too
A = TypeVar("A", bound="HasDtype | complex")  # an array, or a number
H = TypeVar("H", bound=HasDtype)  # an array


class Moving(TypedDict, total=False):
    """Of all calls that move data."""

    out: Any
    algorithm: Algorithm
    timeout: float | None
    protect: bool | None


class MovingFrom(Moving, total=False):
    """One rank is special."""

    root: int


class MovingParts(Moving, total=False):
    """Each rank owns a part."""

    sizes: Sequence[int] | None


class MovingPartsFrom(MovingParts, total=False):
    """Both."""

    root: int


class Reducing(Moving, total=False):
    """There is an operator."""

    order: Order


class ReducingTo(Reducing, total=False):
    """One rank gets the result."""

    root: int


class ReducingParts(Reducing, total=False):
    """Each rank gets a part of the result."""

    sizes: Sequence[int] | None
