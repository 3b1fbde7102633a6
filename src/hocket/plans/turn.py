"""A front that goes round a circle: the same moves step by step, each time with every rank one further.

    sums = reduce(out((c + 1) % n, c), out(c, c))      what a ring does in its first step,
    turned(sums, hop, n)                               and `hop` steps later: ranks are c + hop + 1 and c + hop

The columns of a turn are made when somebody looks at them. Who knows that the circle looks the same from every rank
needs none but the first: so 16 384 ranks with their 32 766 steps and half a billion moves are one front and a number.
"""

from __future__ import annotations

from .plan import Column, Front

_TURNING = ("dst_rank", "src_rank")


class Turned(Front):
    """The moves of `base` with `by` added to every rank, modulo `size`."""

    by: int
    size: int

    def __init__(self, base: Front, by: int, size: int) -> None:
        kept = {name: column for name, column in vars(base).items() if name not in _TURNING}
        vars(self).update(kept, _base=base, by=by, size=size)

    @property
    def base(self) -> Front:
        """The front that is turned."""
        base: Front = vars(self)["_base"]
        return base

    def __len__(self) -> int:
        return len(self.base)

    def is_sound(self) -> bool:
        """As it is of the front that is turned."""
        return self.base.is_sound()

    def __getattr__(self, name: str) -> Column:
        if name not in _TURNING:
            raise AttributeError(name)
        column: Column = (getattr(self.base, name) + self.by) % self.size
        vars(self)[name] = column
        return column


def turned(front: Front, by: int, size: int) -> Front:
    """The moves of `front`, every rank `by` further round a circle of `size` ranks."""
    return Turned(front, by, size)
