"""Sockets between every two ranks that have read each other's cards: one, or between hosts as many as were asked
for; and on one host a descriptor of each's memory.

```
rank r dials every lower rank, and is dialled by every higher one       all at the same time, in one loop
both prove to belong to the job                                         strangers only ever get this far
both send their rank and some numbers, and on one host their outbox, a pidfd of their process and, where there are
     several hosts, an eventfd; who dialled says which of the link's sockets this is
where they talk through UCX, that comes about (ucx)
both say "met" when they have all that of every rank                    so that none is met by some ranks only
```

A rank that gave up may try again, and is waited for: it dials anew, or listens where it did. One that died is not. Of
its earlier attempt no socket is kept once it has come anew. A moment without a network is borne (gap).
"""

from __future__ import annotations

import itertools
import selectors
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import NamedTuple, TypeAlias

from .._core import Credentials, Ucx, UcxContext
from ..deadline import Deadline
from ..errors import RendezvousError
from .gap import NAP, Gap
from .parcels import Incoming, Outgoing
from .reception import Reception
from .sockets import Address, Handshake, finish, reach, reason
from .tls import secured
from .ucx import Crossing

GREETING = struct.Struct("<IHQQ")  # the rank, which of the link's sockets, which attempt of its, and which greeting
_MET = b"\1"
_LOST = (EOFError, ConnectionError)  # what shows that the other end has left
_numbers = itertools.count()
_LOOK = 0.02  # seconds between two looks of the owner
_STEP = 0.001  # seconds between two looks at what comes about through UCX
_AGAIN = 0.005  # seconds between two attempts, where a listener holds too many callers or sent us away


Look: TypeAlias = "Callable[[list[int]], object] | None"


class Met(NamedTuple):
    """A connected socket, the peer's descriptors, as many as it was given and none from another host, the way through
    UCX, where there is one, the link's other sockets, in the order that they have at the other end, too, and the one
    over which it goes on where these break."""

    sock: socket.socket
    fds: list[int]
    ucx: Ucx | None
    more: list[socket.socket]
    spare: socket.socket | None


class Strand(NamedTuple):
    """One of the sockets between this rank and `peer`, in the order that they have at both ends."""

    peer: int
    place: int


class Gone(RendezvousError):
    """A rank left its card, and went before it was met."""


class _Line:
    """A proven socket, over which the two ranks swap what they have."""

    def __init__(self, sock: socket.socket, dialled: Strand | None) -> None:
        self.sock, self.dialled = sock, dialled
        self.strand: Strand | None = None  # known when it has said so
        self.is_near = sock.family == socket.AF_UNIX
        self.number = -1  # of its greeting: of two lines the later one counts
        self.greeting = Incoming(sock, GREETING.size, 3)
        self.met = Incoming(sock, len(_MET))
        self.said_met = False
        self.crossing: Crossing | None = None

    @property
    def ucx(self) -> Ucx | None:
        """The way through UCX, where there is one."""
        return self.crossing.pipe if self.crossing is not None else None

    def close(self) -> None:
        if self.crossing is not None:
            self.crossing.close()
        self.sock.close()

    def say(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """A few bytes, which the buffer of a new socket holds."""
        if not Outgoing(self.sock, data, fds).push():
            raise EOFError("it does not listen")


class Mesh:
    """The links of one rank, on their way. `names[r]` and `addresses[r]` are told by the cards; `listeners` are this
    rank's, each with the name that is proved there. `run` makes the links, once; that with rank r has `counts[r]`
    sockets, by default one, and another one that is dialled at `spares[r]`, where that is not empty. `upwards`: higher
    ranks are dialled.
    """

    def __init__(
        self,
        listeners: Sequence[tuple[socket.socket, bytes | None]],
        names: Sequence[str],
        addresses: Sequence[str],
        rank: int,
        secret: bytes,
        tls: Credentials | None = None,
        ucx: UcxContext | None = None,
        ways: Sequence[tuple[str, ...]] = (),
        *,
        counts: Sequence[int] = (),
        spares: Sequence[str] = (),
        upwards: bool = False,
    ) -> None:
        self._listeners, self._names, self._addresses = listeners, names, addresses
        self._rank, self._secret, self._tls, self._ucx = rank, secret, tls, ucx
        self._ways = ways or [("tcp",)] * len(names)
        self._firsts = counts or [1] * len(names)
        self._spares = spares or [""] * len(names)
        self._counts = [n + bool(spare) for n, spare in zip(self._firsts, self._spares, strict=True)]
        self._strands = {Strand(peer, i) for peer, n in enumerate(self._counts) if peer != rank for i in range(n)}
        self._fds: Sequence[int] = ()
        self._undial = sorted(
            each for each in self._strands if (each.peer > rank) == upwards
        )  # are still to be dialled
        self._lines: dict[Strand, _Line] = {}  # those that have given all but their "met"
        self._crossings: dict[Strand, _Line] = {}  # those through which UCX comes about
        self._left: dict[Strand, _Line] = {}  # those whose end has left, and who may come again
        self._attempt = next(_numbers)
        self._attempts: dict[int, int] = {}  # the latest one of each peer that was heard of
        self._nap = Deadline(0.0)  # before anybody is dialled again
        self._undo = ExitStack()  # closes what came, unless all goes well

    def run(self, fds: Sequence[int], deadline: Deadline, look: Look = None) -> dict[int, Met]:
        """Give `fds` to all of this host. What came of it, by peer, is the caller's from now on. `look(ranks)` is
        called again and again while these are waited for, and may raise.

        Raises RendezvousError, which names who could not be connected.
        """
        self._fds, self._look = fds, look
        self._gap = Gap(deadline)
        with self._undo:
            try:
                self._loop(deadline)
            except (OSError, EOFError) as error:
                raise self._failed(reason(error)) from error
            except RendezvousError as error:
                raise self._failed(str(error), type(error)) from error
            self._undo.pop_all()
        firsts = {strand.peer: line for strand, line in self._lines.items() if strand.place == 0}
        return {
            peer: Met(line.sock, line.greeting.fds, line.ucx, self._more(peer), self._spare(peer))
            for peer, line in firsts.items()
        }

    def _more(self, peer: int) -> list[socket.socket]:
        return [self._lines[Strand(peer, place)].sock for place in range(1, self._firsts[peer])]

    def _spare(self, peer: int) -> socket.socket | None:
        return self._lines[Strand(peer, self._firsts[peer])].sock if self._spares[peer] else None

    def _address(self, strand: Strand) -> str:
        return (self._spares if strand.place == self._firsts[strand.peer] else self._addresses)[strand.peer]

    def _failed(self, why: str, kind: type[RendezvousError] = RendezvousError) -> RendezvousError:
        return kind(
            f"{', '.join(self._names[peer] for peer in self._missing())} arrived, but could not be connected: {why}"
        )

    def _missing(self) -> list[int]:
        missing = {strand.peer for strand in self._strands if strand not in self._lines}
        return sorted(missing or {strand.peer for strand, line in self._lines.items() if not line.met.data})

    def _loop(self, deadline: Deadline) -> None:
        with selectors.DefaultSelector() as selector:
            self._selector = selector
            with ExitStack() as stack:
                self._halls = [
                    stack.enter_context(
                        closing(
                            Reception(sock, self._secret, selector, self._open, patient=False, name=name, tls=self._tls)
                        )
                    )
                    for sock, name in self._listeners
                ]
                while not self._all_met():
                    if not deadline.left():
                        raise RendezvousError(f"no answer{' through UCX' * bool(self._crossings)} within {deadline}")
                    self._dial()
                    self._cross()
                    if self._look is not None:
                        self._look(self._missing())
                    limits = [
                        _LOOK if self._look else None,
                        deadline.left(),
                        *(hall.tick() for hall in self._halls),
                        _AGAIN if self._undial else None,
                        _STEP if self._crossings else None,
                    ]
                    for key, _ in selector.select(min(left for left in limits if left is not None)):
                        key.data()

    def _all_met(self) -> bool:
        return len(self._lines) == len(self._strands) and all(line.met.data for line in self._lines.values())

    def _dial(self) -> None:
        if self._nap.left():
            return
        for strand in list(self._undial):
            try:
                sock = reach(self._address(strand), early=False)
            except ConnectionRefusedError as error:
                raise Gone(f"{self._names[strand.peer]} is not there any more: {error}") from error
            except OSError as error:
                self._bear(error)
                continue
            if sock is None:
                continue
            self._undial.remove(strand)
            sock = secured(sock, self._tls, calls=True)
            self._undo.callback(sock.close)
            self._selector.register(sock, selectors.EVENT_WRITE, partial(self._reached, strand, sock))

    def _reached(self, strand: Strand, sock: socket.socket) -> None:
        """The connection is there, or has failed."""
        self._selector.unregister(sock)
        try:
            finish(sock)
            handshake = Handshake(sock, self._secret, "caller", Address.of(self._address(strand)).name)
        except ConnectionRefusedError as error:
            raise Gone(f"{self._names[strand.peer]} is not there any more: {error}") from error
        except OSError as error:
            sock.close()
            self._dial_later(strand)
            if not isinstance(error, ConnectionError):
                self._bear(error)
            return
        if sock.family != socket.AF_UNIX:
            self._gap.over()
        self._selector.register(sock, selectors.EVENT_READ, partial(self._prove, strand, sock, handshake))

    def _prove(self, strand: Strand, sock: socket.socket, handshake: Handshake) -> None:
        try:
            if not handshake.advance():
                return
            self._selector.unregister(sock)
            self._open(sock, strand)
        except _LOST:
            self._selector.unregister(sock)
            sock.close()
            self._dial_later(strand)

    def _bear(self, error: OSError) -> None:
        self._gap.bear(error)
        self._nap = Deadline(NAP)

    def _dial_later(self, strand: Strand) -> None:
        self._undial.append(strand)
        self._nap = Deadline(_AGAIN)

    def _open(self, sock: socket.socket, dialled: Strand | None = None) -> None:
        """Greet the other end, which has proved to belong to the job."""
        line = _Line(sock, dialled)
        self._undo.callback(sock.close)
        self._undo.callback(line.greeting.close)
        self._selector.register(sock, selectors.EVENT_READ, partial(self._hear, line))
        with suppress(*_LOST):  # it is heard of again when it is read
            greeting = GREETING.pack(self._rank, dialled.place if dialled else 0, self._attempt, next(_numbers))
            line.say(greeting, self._fds if line.is_near else ())

    def _hear(self, line: _Line) -> None:
        if line.sock.fileno() < 0:  # its peer has dialled anew, in this very turn
            return
        try:
            if line.strand is None and line.greeting.pull():
                self._know(line)
            if line.strand in self._lines and line.met.pull():
                self._selector.unregister(line.sock)  # it may leave now
        except _LOST:
            self._lose(line)

    def _lose(self, line: _Line) -> None:
        """The other end gave up, and may try again; or it is dying, which its pidfd tells a moment later."""
        self._selector.unregister(line.sock)
        line.close()
        if line.dialled is not None:
            self._dial_later(line.dialled)
        if line.strand is None:
            line.greeting.close()
        else:
            self._lines.pop(line.strand, None)
            self._crossings.pop(line.strand, None)
            self._left[line.strand] = line
            if not line.is_near:
                return
            self._selector.register(line.greeting.fds[1], selectors.EVENT_READ, partial(self._died, line.strand))

    def _died(self, strand: Strand) -> None:
        if strand in self._left:
            raise RendezvousError(f"{self._names[strand.peer]} died")

    def _renew(self, peer: int) -> None:
        """Forget all that is left of the earlier attempt of one that has come again."""
        for place in range(self._counts[peer]):
            strand = Strand(peer, place)
            line = self._lines.get(strand) or self._crossings.get(strand)
            self._replace(strand)
            if line is not None and line.dialled is not None:
                self._dial_later(strand)

    def _replace(self, strand: Strand) -> None:
        """Forget the earlier line of one that has come again."""
        line = self._lines.pop(strand, None) or self._crossings.pop(strand, None)
        if line is not None:  # we have not heard yet that it left
            with suppress(KeyError):  # not there after its "met"
                self._selector.unregister(line.sock)
            line.close()
            line.greeting.close()
        if (line := self._left.pop(strand, None)) is not None and line.is_near:
            self._selector.unregister(line.greeting.fds[1])
            line.greeting.close()

    def _know(self, line: _Line) -> None:
        peer, place, attempt, line.number = GREETING.unpack(line.greeting.data)
        strand = Strand(peer, line.dialled.place if line.dialled else place)
        if strand not in self._strands or len(line.greeting.fds) != (len(self._fds) if line.is_near else 0):
            told = f"rank {peer}, with connection {place}"
            raise RendezvousError(f"somebody greeted as {told}: do all ranks have one version of hocket?")
        earlier = self._lines.get(strand) or self._crossings.get(strand) or self._left.get(strand)
        if attempt < self._attempts.get(peer, 0) or (earlier is not None and earlier.number > line.number):
            raise EOFError("the peer gave this line up, and has come anew already")
        if attempt > self._attempts.get(peer, attempt):
            self._renew(peer)
        self._attempts[peer] = attempt
        self._replace(strand)
        line.strand = strand
        if self._ucx is None or "ucx" not in self._ways[peer] or strand.place == self._firsts[peer]:
            self._enter(strand, line)
            return
        self._crossings[strand] = line
        line.crossing = Crossing(self._ucx, line.sock, optional="tcp" in self._ways[peer])
        self._undo.callback(line.crossing.close)

    def _cross(self) -> None:
        for strand, line in list(self._crossings.items()):
            assert line.crossing is not None
            try:
                if line.crossing.advance():
                    del self._crossings[strand]
                    self._enter(strand, line)
            except _LOST:
                self._lose(line)

    def _enter(self, strand: Strand, line: _Line) -> None:
        """All but its "met" is there."""
        self._lines[strand] = line
        if len(self._lines) == len(self._strands):
            for each in self._lines.values():  # also one that came anew, while another was missing
                if not each.said_met:
                    each.said_met = True
                    with suppress(*_LOST):
                        each.say(_MET)
            for hall in self._halls:
                hall.patient = True  # others may be through now: too late to give up for want of descriptors
