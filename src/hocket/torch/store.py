"""Torch's store as the place where the ranks of a group meet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from ..errors import RendezvousError
from ..rendezvous.store import Absent, Taken


class TorchStore:
    """A `hocket.rendezvous.store.Store` in any `torch.distributed.Store`.

    The store may outlive a group, and the next group of the same name may find the notes of the one before: torchrun's
    agent keeps its store while a process destroys its groups and makes new ones. So whoever comes is counted, and every
    `size` arrivals begin with a clean page.
    """

    def __init__(self, store: Any, size: int) -> None:
        with _translated():
            arrivals = store.add("hocket/arrivals", 1)
        self._store = dist.PrefixStore(f"hocket/{(arrivals - 1) // size}", store)

    def set(self, key: str, value: bytes) -> None:
        """Leave `value` under `key`. Raises Taken where another value is there already."""
        with _translated():
            held = self._store.compare_set(key, "", value)
        if held != value:
            raise Taken(key, held)

    def get(self, key: str, timeout: float) -> bytes:
        """The value under `key`, as soon as it is there. Raises Absent after `timeout` seconds without."""
        with _translated():
            try:
                self._store.wait([key], timedelta(seconds=max(timeout, 0.001)))
            except dist.DistNetworkError:
                raise
            except RuntimeError:  # each kind of store has its own for a wait in vain
                if not self._store.check([key]):
                    raise Absent(f'nobody wrote "{key}" within {timeout:g} s') from None
            value: bytes = self._store.get(key)
            return value


@contextmanager
def _translated() -> Iterator[None]:
    """Torch's errors of the network, as hocket's."""
    try:
        yield
    except dist.DistNetworkError as error:
        raise RendezvousError(f"torch's store went away, and with it the process that held it: {error}") from error
