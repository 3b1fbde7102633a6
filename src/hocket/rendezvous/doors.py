"""Where one rank listens while the ranks meet."""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass

from ..addresses import Peer, tcp_url
from ..config import SocketOptions
from ..cores import domain_here
from ..deadline import Deadline
from .cards import Card, whereabouts
from .gap import LONGEST, NAP, Gap
from .interfaces import own_address
from .server import bind
from .sockets import SLACK, explained, listen


@dataclass
class Door:
    """Where one rank listens while the ranks meet: for those of its host, and for others where there may be some, who
    are told its `url`, and that of its `spare` socket, over which they go on where the first way breaks. Once its
    addresses are `told`, others may come at any time. Where ranks have URLs of their own, rank 0's is the meeting
    point's, and nobody comes to its door: all doors are dialled `upwards`, by lower ranks."""

    listener: socket.socket
    remote: socket.socket | None = None
    name: str = ""
    url: str = ""
    told: bool = False
    upwards: bool = False
    spare: socket.socket | None = None
    spare_url: str = ""

    @staticmethod
    def open(towards: str = "", sockets: SocketOptions | None = None, limit: Deadline | None = None) -> Door:
        """A door with a name that nobody can guess; for ranks elsewhere, on the interface `towards` that address, or on
        the one that is wished for. A moment without a network is borne (gap), not beyond the `limit`."""
        gap = Gap(limit or Deadline(LONGEST))
        while True:
            try:
                return Door._open(towards, sockets or SocketOptions())
            except OSError as error:
                gap.bear(error)
            time.sleep(min(NAP, gap.left()))

    @staticmethod
    def _open(towards: str, wishes: SocketOptions) -> Door:
        name = os.urandom(16).hex()
        with ExitStack() as undo:
            door = Door(undo.enter_context(listen(f"@hocket-{name}")), None, name)
            if towards and (own := own_address(towards, wishes.interface)):
                door.remote = undo.enter_context(listen(own))
                door.url = _url(door.remote)
            if door.url and wishes.fallback:
                door.spare = listen(own_address(towards, wishes.fallback, "HOCKET_FALLBACK_IFNAME"))
                door.spare_url = _url(door.spare)
            undo.pop_all()
        return door

    @staticmethod
    def at(own: Peer, rank: int, deadline: Deadline) -> Door:
        """That of a rank whose URLs everybody knows. Raises RendezvousError where it cannot listen there."""
        if rank == 0:
            door = Door.open()
            door.url, door.upwards = own.far, True
            return door
        name, wait = os.urandom(16).hex(), Deadline(min(deadline.left(), SLACK))

        def held(address: str) -> str:
            return f"something else listens at {address}: was rank {rank} started twice?"

        with ExitStack() as undo, explained(f"rank {rank} cannot listen at {' and '.join(own.addresses)}"):
            near = undo.enter_context(bind(own.near or f"@hocket-{name}", wait, held(own.near)))
            far = undo.enter_context(bind(own.far, wait, held(own.far))) if own.far else None
            spare = undo.enter_context(bind(own.spare, wait, held(own.spare))) if own.spare else None
            undo.pop_all()
        return Door(near, far, name, own.far, upwards=True, spare=spare, spare_url=own.spare)

    @property
    def address(self) -> str:
        """Its name, as others dial it."""
        return f"@{self.listener.getsockname()[1:].decode()}"

    def card(self, rank: int) -> Card:
        """What the others must know to come here."""
        doors = self.address, self.remote_address
        spare = f"{self.spare_url}#{self.name}" if self.spare_url else ""
        return Card(rank, socket.gethostname(), os.getpid(), *whereabouts(), *doors, spare=spare, domain=domain_here())

    @property
    def remote_address(self) -> str:
        """As ranks of other hosts dial it; empty where they cannot."""
        return f"{self.url}#{self.name}" if self.url else ""

    @property
    def listeners(self) -> list[tuple[socket.socket, bytes | None]]:
        """The sockets, and what they are called in proofs."""
        near: list[tuple[socket.socket, bytes | None]] = [(self.listener, None)]
        return near + [(sock, self.name.encode()) for sock in (self.remote, self.spare) if sock is not None]

    def close(self) -> None:
        """Listen no longer."""
        self.listener.close()
        for sock in (self.remote, self.spare):
            if sock is not None:
                sock.close()


def _url(sock: socket.socket) -> str:
    host, port, *_ = sock.getsockname()
    return tcp_url(host, port)
