"""Groups out of a group: every rank says which part it belongs to, and the ranks of each part meet on their own."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..deadline import Deadline
from .links import Links, connect
from .store import UnixStore, UnixStoreServer

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


class Part(NamedTuple):
    """One rank's place in its new group: its rank there, the members' ranks in the parent, and where they meet."""

    rank: int
    members: list[int]
    address: str
    secret: bytes


def form(gather: Callable[[Array], Array], color: int | None, key: int) -> Part | None:
    """This rank's part: the ranks of equal `color`, in the order of (key, rank). None for a rank without a colour.

    `gather(row)` gives all ranks' rows, by rank. Each row also holds a meeting point; the first member's is used.
    """
    token = np.frombuffer(secrets.token_bytes(48), np.int64)
    rows = gather(np.concatenate(([color is not None, color or 0, key], token)).astype(np.int64))
    if color is None:
        return None
    same = np.flatnonzero((rows[:, 0] == 1) & (rows[:, 1] == color))
    members = same[np.lexsort((same, rows[same, 2]))]
    point = rows[members[0], 3:].tobytes()
    own = int(np.flatnonzero((rows[members, 3:] == token).all(axis=1))[0])
    return Part(own, members.tolist(), f"@hocket-{point[:16].hex()}", point[16:])


def meet(part: Part, fd: int, timeout: float) -> Links:
    """Link with the other members, as `rendezvous.join` does; the first of them holds the store meanwhile."""
    deadline = Deadline(timeout)
    with ExitStack() as stack:
        if part.rank == 0:
            stack.enter_context(closing(UnixStoreServer(part.address, part.secret, timeout).start()))
        store = stack.enter_context(closing(UnixStore(part.address, part.secret, deadline.left())))
        return connect(store, part.rank, len(part.members), fd, deadline.left())
