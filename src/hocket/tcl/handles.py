"""Handles: the names by which a script knows its tensors, requests and groups, which live here."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from ..calls.work import Work
from ..group import Group, init
from .errors import CommandError, TclError

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
V = TypeVar("V")


class Shelf(Generic[V]):
    """Values of one kind. A name is given once: a handle that was freed never becomes another value's."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._values: dict[str, V] = {}
        self._count = 0

    def put(self, value: V) -> str:
        """A new handle for it."""
        self._count += 1
        name = f"{self._kind}{self._count}"
        self._values[name] = value
        return name

    def get(self, name: str) -> V:
        """What it stands for. Raises CommandError."""
        try:
            return self._values[name]
        except KeyError:
            raise CommandError(
                f"{self._kind.capitalize()} not found", f"{self._kind.capitalize()}NotFound", name
            ) from None

    def drop(self, name: str) -> None:
        """Forget it, if it is there."""
        self._values.pop(name, None)

    def clear(self) -> None:
        """Forget all."""
        self._values.clear()

    def names(self) -> list[str]:
        """In the order in which they were made."""
        return list(self._values)

    def values(self) -> list[V]:
        """In the same order."""
        return list(self._values.values())


class Pending(NamedTuple):
    """A call in flight, and how its request is called."""

    name: str
    work: Work[Any]


class Handles:
    """All of one script."""

    def __init__(self) -> None:
        self.tensors: Shelf[Array] = Shelf("tensor")
        self.requests: Shelf[Work[Any]] = Shelf("request")
        self.groups: Shelf[Group | None] = Shelf("group")  # None for a group that this rank is not in
        self.world: Group | None = None
        self.random = np.random.default_rng()

    def group(self, name: str = "") -> Group:
        """The group of that handle; without one that of all ranks, which is formed by its first use."""
        if not name:
            if self.world is None:
                self.world = init()
            return self.world
        group = self.groups.get(name)
        if group is None:
            raise CommandError(f"this rank is not in {name}", "NotInGroup", name)
        return group

    def close(self, error: str | None = None) -> None:
        """Leave all groups, because of that error if there was one."""
        groups = [group for group in [*self.groups.values(), self.world] if group is not None]
        self.groups.clear()
        self.requests.clear()
        self.world = None
        for group in groups:
            if error is None:
                group.close()
            else:
                group.__exit__(TclError, TclError(error), None)
