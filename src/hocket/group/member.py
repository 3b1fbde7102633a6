"""What all families of a group's calls have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

import numpy as np

from ..calls.dispatch import Array as Array
from ..calls.dispatch import Dispatch
from ..calls.messages import ANY, Messages
from ..calls.objects import Objects
from ..calls.session import Session
from ..rendezvous.links import Links


class Member:
    """A rank of a group: `rank` of `size`."""

    _rank: int
    _size: int
    _go: Dispatch
    _calls: Session
    _messages: Messages
    _objects: Objects
    _links: Links

    @property
    def rank(self) -> int:
        """Which rank of the group this is, from 0 on."""
        return self._rank

    @property
    def size(self) -> int:
        """How many ranks the group has."""
        return self._size

    @abstractmethod
    def _close(self, error: BaseException | None, *, at_exit: bool = False) -> None:
        """Leave the group, because of an error, if there was one."""

    @abstractmethod
    def _drop(self) -> None:
        """Leave the group, in which this rank has made no call."""

    def _source(self, src: int | None) -> int:
        return ANY if src is None else self._go.rank_of(src, "src")


G = TypeVar("G", bound=Member)


def integer(value: int, what: str) -> int:
    """`value` as a plain integer. Raises TypeError where it is none, or too large for 64 bits."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        raise TypeError(f"{what} is an integer of 64 bits, not {value!r}")
    return int(value)
