"""A store of somebody else's as the place where ranks meet: any of torch.distributed's, or what has its methods.

```
hocket/0/size, hocket/0/3              a note of the first meeting: how many ranks, and the card of rank 3
hocket/0/3/writers                     how many have begun to write that note: it is the first one's
hocket/arrivals/3                      how many meetings rank 3 has come to
hocket/name                            by which a process knows the store again, whatever object it comes by
```

Such a store may outlive a group, a process, and all of the job's processes: torchrun's agent keeps its own. So which
meeting a rank is at is counted there, and no note is ever written twice. Where a rank came to a meeting and died, and
comes again, it is one meeting ahead: the others find its card, but not itself (`mesh.Gone`), and their next try meets
it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Protocol

from ..errors import RendezvousError
from .sockets import SLACK
from .store import Absent, Taken


class TorchStore(Protocol):
    """What is asked of such a store: torch's TCPStore, FileStore, HashStore and PrefixStore have it all.

    Several ranks use it at once, and `add` counts them all. It may raise whatever it likes.
    """

    def set(self, key: str, value: Any, /) -> object:
        """Leave a value of bytes."""

    def get(self, key: str, /) -> bytes:
        """The value."""

    def wait(self, keys: list[str], timeout: timedelta, /) -> object:
        """Return as soon as all keys are there; raise after `timeout`."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a number, which begins at zero, and return what it is then."""

    def check(self, keys: list[str], /) -> bool:
        """Whether all keys are there."""


_METHODS = ("set", "get", "wait", "add", "check")


class ForeignStore:
    """A `store.Store` in such a `store`. Raises TypeError for what is none."""

    def __init__(self, store: Any) -> None:
        if isinstance(store, type) or not all(callable(getattr(store, name, None)) for name in _METHODS):
            raise TypeError(
                'rendezvous is "tcp://host:port", "file:///folder", or a torch.distributed store (TCPStore, FileStore, '
                f"HashStore, PrefixStore, or what has their {', '.join(_METHODS)}), not {store!r:.80}"
            )
        self.store: TorchStore = store

    def name(self, timeout: float) -> str:
        """A name that no other store has. Raises RendezvousError after `timeout` seconds without."""
        try:
            self.set("name", own := os.urandom(16), timeout)
        except Taken as taken:
            return taken.value.hex()
        return own.hex()

    def arrive(self, rank: int) -> int:
        """Come to a meeting, as that rank. The meeting's number: how many it has come to before."""
        with _translated():
            return self.store.add(f"hocket/arrivals/{rank}", 1) - 1

    def set(self, key: str, value: bytes, timeout: float = SLACK) -> None:
        """Leave `value` under `key`. Raises Taken where another value is there already, and Absent where somebody has
        begun to write one and has not done so after `timeout` seconds."""
        name = f"hocket/{key}"
        with _translated():
            if self.store.add(f"{name}/writers", 1) == 1:
                self.store.set(name, value)
                return
        if (held := self.get(key, timeout)) != value:
            raise Taken(key, held)

    def give_up(self, key: str) -> None:
        """Leave nothing under `key`, which somebody has begun to write and, being dead or stopped, has not: so nobody
        waits for it any more. If that one goes on, what it writes takes the place of nothing."""
        with _translated():
            if not self.store.check([f"hocket/{key}"]):
                self.store.set(f"hocket/{key}", b"")

    def get(self, key: str, timeout: float) -> bytes:
        """The value under `key`, as soon as it is there. Raises Absent after `timeout` seconds without."""
        name = f"hocket/{key}"
        with _translated():
            if timeout > 0:
                with suppress(Exception):  # each kind of store has its own for a wait in vain
                    self.store.wait([name], timedelta(seconds=max(timeout, 0.001)))
            if not self.store.check([name]):
                raise Absent(f'nobody wrote "{key}" within {timeout:g} s')
            return bytes(self.store.get(name))


@contextmanager
def _translated() -> Iterator[None]:
    """The store's own errors, whatever they are, as hocket's."""
    try:
        yield
    except RendezvousError:
        raise
    except Exception as error:
        raise RendezvousError(f"the store in which the ranks meet failed, or went away: {error}") from error
