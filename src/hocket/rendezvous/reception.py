"""Who comes to a listener is heard out, all at the same time; who proves to belong to the job is handed over.

Whoever runs as our user, and over TCP anybody, can connect, and say nothing, or nonsense. That must cost the job
nothing: a stranger has no thread and `SLACK` seconds, and of too many the one that has been silent longest has to go.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ..deadline import Deadline
from ..errors import RendezvousError
from .sockets import SLACK, USED_UP, Handshake
from .tls import secured

if TYPE_CHECKING:
    from .._core import Credentials

STRANGERS = 256  # at a time; members of the job do not remain strangers for long
_AT_ONCE = 64  # callers that are taken before others get their turn
_PAUSE = 0.05  # seconds without accepting anybody, where there are no descriptors
_YOUNG = 1.0  # seconds in which one that has begun to prove itself is not sent away for another


@dataclass(eq=False)
class _Stranger:
    sock: socket.socket
    handshake: Handshake
    limit: Deadline = field(default_factory=lambda: Deadline(SLACK))
    youth: Deadline = field(default_factory=lambda: Deadline(_YOUNG))


class Reception:
    """Accepts from `listener` within its owner's loop: what `selector` holds as data is to be called when it is ready.

    `welcome` gets each proven socket, which is non-blocking and in no selector. The listener stays the owner's. Where
    descriptors are used up, one who is `patient` waits for better times, and others get the OSError. `name` is what the
    listener is called in proofs; None: as the kernel calls it. Over TCP those who come must come through `tls`, where
    it is given.
    """

    def __init__(
        self,
        listener: socket.socket,
        secret: bytes,
        selector: selectors.BaseSelector,
        welcome: Callable[[socket.socket], None],
        *,
        patient: bool = True,
        name: bytes | None = None,
        tls: Credentials | None = None,
    ) -> None:
        self._name, self._tls = name, tls
        self._listener, self._secret, self._selector, self._welcome = listener, secret, selector, welcome
        self.patient = patient
        self._strangers: dict[_Stranger, None] = {}  # the oldest first
        self._pause: Deadline | None = None
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, self._accept)

    def tick(self) -> float | None:
        """Send those away whose time is over. How many seconds the owner may wait before it asks again."""
        while self._strangers and not (oldest := next(iter(self._strangers))).limit.left():
            self._dismiss(oldest)
        if self._pause is not None and not self._pause.left():
            self._pause = None
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        limits = [stranger.limit for stranger in self._strangers][:1] + ([self._pause] if self._pause else [])
        return min((limit.left() for limit in limits), default=None)

    def close(self) -> None:
        """Send all strangers away."""
        for stranger in list(self._strangers):
            self._dismiss(stranger)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                sock, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._refused(error)
                return
            self._meet(sock)
            if len(self._strangers) > STRANGERS:
                self._make_room(least=True)

    def _refused(self, error: OSError) -> None:
        if error.errno in USED_UP:
            if self._make_room():
                return
            if not self.patient:
                raise error
        self._selector.unregister(self._listener)  # it stays readable: no reason to look all the time
        self._pause = Deadline(_PAUSE)

    def _meet(self, sock: socket.socket) -> None:
        try:
            sock.setblocking(False)
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock = secured(sock, self._tls, calls=False)
            stranger = _Stranger(sock, Handshake(sock, self._secret, "host", self._name))
        except (OSError, RendezvousError):  # another user, or gone again
            sock.close()
            return
        self._selector.register(sock, selectors.EVENT_READ, partial(self._hear, stranger))
        self._strangers[stranger] = None
        self._hear(stranger)

    def _hear(self, stranger: _Stranger) -> None:
        if stranger not in self._strangers:  # sent away in this very turn
            return
        try:
            if not stranger.handshake.advance():
                return
        except (OSError, EOFError, RendezvousError):
            self._dismiss(stranger)
            return
        self._forget(stranger)
        self._welcome(stranger.sock)

    def _make_room(self, *, least: bool = False) -> bool:
        """Send one away: the oldest of the silent, else one whose youth is over, else, at `least`, the oldest."""
        silent = (stranger for stranger in self._strangers if not stranger.handshake.begun)
        old = (stranger for stranger in self._strangers if least or not stranger.youth.left())
        chosen = next(silent, None) or next(old, None)
        if chosen is not None:
            self._dismiss(chosen)
        return chosen is not None

    def _dismiss(self, stranger: _Stranger) -> None:
        self._forget(stranger)
        with suppress(OSError):
            stranger.sock.close()

    def _forget(self, stranger: _Stranger) -> None:
        del self._strangers[stranger]
        self._selector.unregister(stranger.sock)
