"""Torch's store as the place where the ranks of a group meet."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

from ..errors import RendezvousError
from ..store import Absent, Taken


class TorchStore:
    """A `hocket.rendezvous.Store` in any `torch.distributed.Store`.

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
            except dist.DistStoreError:
                raise Absent(f'nobody wrote "{key}" within {timeout:g} s') from None
            value: bytes = self._store.get(key)
            return value


class _translated:
    """Torch's errors of the network, as hocket's."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, dist.DistError) and not isinstance(error, dist.DistStoreError):
            raise RendezvousError(
                f"torch's store, and with it the process that holds it, went away: {error}"
            ) from error
