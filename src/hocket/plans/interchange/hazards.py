"""Who must come before whom on one rank: a read after the write before it, a write after the reads since."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Op = TypeVar("Op", bound=Hashable)


class Hazards(Generic[Op]):
    """The last writer of each place, and who has read it since."""

    def __init__(self) -> None:
        self.wrote: dict[Hashable, Op] = {}
        self.read: dict[Hashable, list[Op]] = {}

    def before(self, reads: Iterable[Hashable], writes: Iterable[Hashable]) -> list[Op]:
        """The operations that one must come after which reads and writes these places."""
        writes = list(writes)
        found = [self.wrote[at] for at in (*reads, *writes) if at in self.wrote]
        found += [op for at in writes for op in self.read.get(at, ())]
        return list(dict.fromkeys(found))

    def did(self, op: Op, reads: Iterable[Hashable], writes: Iterable[Hashable]) -> None:
        """It reads these places, then writes those."""
        for at in reads:
            self.read.setdefault(at, []).append(op)
        for at in writes:
            self.wrote[at] = op
            self.read.pop(at, None)
