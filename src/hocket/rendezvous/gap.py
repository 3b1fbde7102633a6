"""A host that has no network for a moment while a group is formed: borne, as in calls of a group that is there."""

from __future__ import annotations

import errno
import socket

from ..deadline import Deadline

# Of a socket, where there is no way to the other end, or this host's own address is not there; and of a name, where
# there is none to who knows its address.
NO_NETWORK = (errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, socket.EAI_AGAIN)
LONGEST = 2.0  # seconds: for so long links bear silence
NAP = 0.02  # seconds between two looks


class Gap:
    """A while without a network, from the first error that tells of it until it is `over`. It is borne for `LONGEST`
    seconds, and no longer than `limit` allows."""

    def __init__(self, limit: Deadline) -> None:
        self._limit = limit
        self._patience: Deadline | None = None

    def bear(self, error: OSError) -> None:
        """Return where it is to be tried again, a little later; else raise the error, which tells how long it was."""
        if error.errno not in NO_NETWORK:
            raise error
        self._patience = self._patience or Deadline(min(LONGEST, self._limit.left()))
        if not self._patience.left():
            raise OSError(error.errno, f"{error.strerror}, for {self._patience}") from error

    def over(self) -> None:
        """There is a network."""
        self._patience = None

    def left(self) -> float:
        """Seconds for which it will still be borne; 0 where there is none."""
        return self._patience.left() if self._patience is not None else 0.0
