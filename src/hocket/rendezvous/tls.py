"""TLS 1.3 over a TCP socket, for ranks that show each other certificates before they prove the job's secret.

The bytes go through the core, and OpenSSL, from the first one on: so what the ranks say while they meet and what their
links carry later is one connection.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..deadline import Deadline
from ..errors import HocketError, RendezvousError

if TYPE_CHECKING:
    from .._core import Credentials  # the launcher, which has no use for TLS, does without the core

ALERT = b"\x15\x03"  # how TLS begins to say why it hangs up
_PROTOCOL = ALERT + b"\x01\x00\x02\x02\x46"  # because the other end speaks something else
NOT_HERE = "the other end speaks TLS, and this rank was not told to: set HOCKET_TLS_CERT, HOCKET_TLS_KEY, HOCKET_TLS_CA"


def credentials(files: tuple[str, str, str] | None) -> Credentials | None:
    """What a rank shows, and whom it believes: its certificate, its key, the authority's certificate, as PEM files.

    Raises RendezvousError, which names the one that is no good.
    """
    if files is None:
        return None
    try:
        for file in files:
            Path(file).open("rb").close()
    except OSError as error:
        raise RendezvousError(f"{error.filename}, which TLS needs, cannot be read: {error.strerror}") from None
    from .._core import Credentials

    with _told():
        return Credentials(*files)


def secured(sock: socket.socket, shown: Credentials | None, *, calls: bool) -> socket.socket:
    """A connected socket, as it is or through TLS; of a Unix socket the kernel tells whose it is. The one that was
    given is used up."""
    return sock if shown is None or sock.family == socket.AF_UNIX else TlsSocket(sock, shown, calls)


class TlsSocket(socket.socket):
    """A TCP socket whose bytes go through TLS: it blocks, has a timeout or does neither, as any socket does.

    The handshake happens by the way. What is said before it is over waits for it, and goes out as soon as something is
    read: so whoever speaks must listen.
    """

    def __init__(self, sock: socket.socket, shown: Credentials, calls: bool) -> None:
        from .._core import Tls

        timeout = sock.gettimeout()
        super().__init__(sock.family, sock.type, sock.proto, sock.detach())
        self.settimeout(timeout)
        with _told():
            self.tls = Tls(shown, self.fileno(), calls)
        self._early = b""
        self._taken = 0  # bytes that are encrypted, and not all with the kernel

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """Some bytes; none: nothing more will come. Raises RendezvousError where TLS does not come about."""
        deadline = self._deadline()
        while True:
            try:
                with _told():
                    data = self.tls.read(bufsize)
                    self._say_early()  # the handshake may be over
                    if data is not None:
                        return data
            except RendezvousError:
                self._refuse()
                raise
            self._wait(select.POLLIN, deadline)

    def send(self, data: Any, flags: int = 0, /) -> int:
        """How many bytes are sent. One that would block is made again with the same bytes, and perhaps more."""
        deadline = self._deadline()
        with _told():
            self._say_early()
            if not self._taken and not self._early:
                self._taken = self.tls.write(bytes(data))
            if not self._taken:
                self._early += data
                return len(data)
            while not self.tls.flush():
                self._wait(select.POLLOUT, deadline)
        sent, self._taken = self._taken, 0
        return sent

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        """Send all of it."""
        while data:
            data = data[self.send(data) :]

    def sendmsg(self, buffers: Any, *_: Any) -> int:
        """As `send`; over TCP no descriptors go."""
        return self.send(b"".join(buffers))

    def recvmsg(self, bufsize: int, *_: Any) -> tuple[bytes, list[tuple[int, int, bytes]], int, Any]:
        """As `recv`; over TCP no descriptors come."""
        return self.recv(bufsize), [], 0, None

    def _refuse(self) -> None:
        """Say so, to those who speak no TLS at all too: OpenSSL does not. What they say is read, or they would not hear
        it before they are hung up on."""
        with suppress(OSError):
            super().send(_PROTOCOL)
            super().recv(1 << 16, socket.MSG_DONTWAIT)

    def _say_early(self) -> None:
        if self._early:
            self._early = self._early[self.tls.write(self._early) :]

    def _deadline(self) -> Deadline:
        timeout = self.gettimeout()
        return Deadline(float("inf") if timeout is None else timeout)

    def _wait(self, event: int, deadline: Deadline) -> None:
        if self.gettimeout() == 0.0:
            raise BlockingIOError
        poll = select.poll()
        poll.register(self, event)
        left = deadline.left()
        if not poll.poll(None if left == float("inf") else max(left, 0.001) * 1000):
            raise TimeoutError("timed out")


@contextmanager
def _told() -> Iterator[None]:
    """The core's refusals, as what they are while ranks meet."""
    try:
        yield
    except RendezvousError:
        raise
    except HocketError as error:
        hint = ""
        if "wrong version number" in str(error) or "packet length" in str(error):
            hint = "; does the other end use TLS, too? HOCKET_TLS_CERT, _KEY and _CA must be set for all ranks"
        raise RendezvousError(f"{error}{hint}") from None
