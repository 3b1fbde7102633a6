"""A few bytes and some descriptors, over a non-blocking Unix socket: how ranks hand memory to each other.

A stream keeps descriptors with the first byte that they were sent with. So a parcel may be sent and received in pieces,
and one that is read to its last byte leaves the next one untouched.
"""

from __future__ import annotations

import array
import errno
import os
import socket
from collections.abc import Sequence


class Outgoing:
    """A parcel on its way out. `fds` stay the caller's."""

    def __init__(self, sock: socket.socket, data: bytes, fds: Sequence[int] = ()) -> None:
        self._sock, self._data, self._fds = sock, data, fds

    def push(self) -> bool:
        """Send what the socket takes. True when all is sent."""
        while self._data:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", self._fds))] if self._fds else []
            try:
                sent = self._sock.sendmsg([self._data], rights, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return False
            self._data, self._fds = self._data[sent:], ()
        return True


class Incoming:
    """A parcel of `length` bytes and at most `most` descriptors, which are the caller's to close."""

    def __init__(self, sock: socket.socket, length: int, most: int = 0) -> None:
        self._sock, self._length, self._most = sock, length, most
        self.data = b""
        self.fds: list[int] = []

    def pull(self) -> bool:
        """Read what has come. True when all is here. EOFError where the other end left before, and an OSError of
        EMFILE where this process cannot hold the descriptors."""
        room = socket.CMSG_SPACE(self._most * array.array("i").itemsize)
        flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
        while len(self.data) < self._length:
            try:
                data, rights, told, _ = self._sock.recvmsg(self._length - len(self.data), room, flags)
            except BlockingIOError:
                return False
            for level, kind, body in rights:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    received = array.array("i")
                    received.frombytes(body[: len(body) - len(body) % received.itemsize])
                    self.fds += received
            if told & socket.MSG_CTRUNC:  # what the kernel does with descriptors that do not fit
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            if not data:
                raise EOFError("it left before it had said all")
            self.data += data
        return True

    def close(self) -> None:
        """Close the descriptors."""
        while self.fds:
            os.close(self.fds.pop())
