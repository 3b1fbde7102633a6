"""One socket between every two ranks that have read each other's cards, and over it a descriptor of each's memory.

```
rank r dials every lower rank, and is dialled by every higher one       all at the same time, in one loop
both prove to belong to the job                                         strangers only ever get this far
both send their rank, their outbox and a pidfd of their process
both say "met" when they have all that of every rank                    so that none is met by some ranks only
```
"""

from __future__ import annotations

import selectors
import socket
import struct
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial

from ..deadline import Deadline
from ..errors import RendezvousError
from .parcels import Incoming, Outgoing
from .reception import Reception
from .sockets import Handshake, reach, reason

_RANK = struct.Struct("<I")
_MET = b"\1"
_AGAIN = 0.005  # seconds between two attempts where more callers wait at a listener than may


class Gone(RendezvousError):
    """A rank left its card, and went before it was met."""


class _Line:
    """A proven socket, over which the two ranks swap what they have."""

    def __init__(self, sock: socket.socket, rank: int, fds: Sequence[int]) -> None:
        self.sock = sock
        self.peer: int | None = None  # known when it has said so
        self.greeting = Incoming(sock, _RANK.size, 2)
        self.met = Incoming(sock, len(_MET))
        self.say(_RANK.pack(rank), fds)

    def say(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """A few bytes, which the buffer of a new socket holds."""
        if not Outgoing(self.sock, data, fds).push():
            raise EOFError("it does not listen")


class Mesh:
    """The links of one rank, on their way. `names[r]` and `addresses[r]` are told by the cards; `fds` are given to all.

    `run` makes them, once.
    """

    def __init__(
        self, listener: socket.socket, names: Sequence[str], addresses: Sequence[str], rank: int, secret: bytes
    ) -> None:
        self._listener, self._names, self._addresses = listener, names, addresses
        self._rank, self._secret = rank, secret
        self._fds: Sequence[int] = ()
        self._undial = list(range(rank))  # who is still to be dialled
        self._lines: dict[int, _Line] = {}  # by peer: those that have given all but their "met"
        self._said_met = False
        self._undo = ExitStack()  # closes what came, unless all goes well

    def run(self, fds: Sequence[int], deadline: Deadline) -> dict[int, tuple[socket.socket, list[int]]]:
        """Give `fds` to all. A socket and as many descriptors, the caller's from now on, by peer.

        Raises RendezvousError, which names who could not be connected.
        """
        self._fds = fds
        with self._undo:
            try:
                self._loop(deadline)
            except (OSError, EOFError) as error:
                raise self._failed(reason(error)) from error
            except RendezvousError as error:
                raise self._failed(str(error), type(error)) from error
            self._undo.pop_all()
        return {peer: (line.sock, line.greeting.fds) for peer, line in self._lines.items()}

    def _failed(self, why: str, kind: type[RendezvousError] = RendezvousError) -> RendezvousError:
        others = [peer for peer in range(len(self._names)) if peer != self._rank]
        missing = [peer for peer in others if peer not in self._lines]
        missing = missing or [peer for peer in others if not self._lines[peer].met.data]
        return kind(f"{', '.join(self._names[peer] for peer in missing)} arrived, but could not be connected: {why}")

    def _loop(self, deadline: Deadline) -> None:
        with selectors.DefaultSelector() as selector:
            self._selector = selector
            reception = Reception(self._listener, self._secret, selector, self._open, patient=False)
            with closing(reception):
                while not (self._said_met and all(line.met.data for line in self._lines.values())):
                    if not deadline.left():
                        raise RendezvousError(f"no answer within {deadline}")
                    self._dial()
                    limits = [deadline.left(), reception.tick(), _AGAIN if self._undial else None]
                    for key, _ in selector.select(min(left for left in limits if left is not None)):
                        key.data()

    def _dial(self) -> None:
        for peer in list(self._undial):
            try:
                sock = reach(self._addresses[peer], early=False)
            except ConnectionRefusedError as error:
                raise Gone(f"{self._names[peer]} is not there any more: {error}") from error
            if sock is None:
                continue
            self._undial.remove(peer)
            self._undo.callback(sock.close)
            handshake = Handshake(sock, self._secret, "caller")
            self._selector.register(sock, selectors.EVENT_READ, partial(self._prove, sock, handshake))

    def _prove(self, sock: socket.socket, handshake: Handshake) -> None:
        if handshake.advance():
            self._selector.unregister(sock)
            self._open(sock)

    def _open(self, sock: socket.socket) -> None:
        """Greet the other end, which has proved to belong to the job."""
        self._undo.callback(sock.close)
        line = _Line(sock, self._rank, self._fds)
        self._undo.callback(line.greeting.close)
        self._selector.register(sock, selectors.EVENT_READ, partial(self._hear, line))
        self._hear(line)

    def _hear(self, line: _Line) -> None:
        if line.sock.fileno() < 0:  # its peer has dialled anew, in this very turn
            return
        if line.peer is None and line.greeting.pull():
            self._know(line)
        if line.peer is not None and line.met.pull():
            self._selector.unregister(line.sock)  # it may leave now

    def _know(self, line: _Line) -> None:
        (line.peer,) = _RANK.unpack(line.greeting.data)
        if line.peer == self._rank or line.peer >= len(self._names) or len(line.greeting.fds) != len(self._fds):
            raise RendezvousError(f"somebody greeted as rank {line.peer}: do all ranks have one version of hocket?")
        if (before := self._lines.get(line.peer)) is not None:  # it gave up, and tries again
            with suppress(KeyError):
                self._selector.unregister(before.sock)
            before.sock.close()
            before.greeting.close()
        self._lines[line.peer] = line
        if len(self._lines) == len(self._names) - 1:
            for each in [line] if self._said_met else self._lines.values():
                each.say(_MET)
            self._said_met = True
