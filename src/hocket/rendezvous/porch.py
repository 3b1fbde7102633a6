"""The porch: where those wait that come when the others have formed a group already.

```
join/0, join/1, ...        the cards of those that come, each at the first number that is free
admit/1/0, admit/1/1       what the second of them is told, one time after another: with whom to link, or why not
```

These notes lie in a store: the launcher's, a folder, or somebody else's. Where rank 0 held the one in which the ranks
first met, the lowest rank on that host holds the porch from the first time on that it looks who waits, at the same
address; where nobody is left there the lowest of all does, at the same port of its own host. Where each rank has a URL
of its own it is at that of the lowest. Who waits and loses sight of it comes again. All notes are sealed with the job's
secret (`seal`).
"""

from __future__ import annotations

import errno
import os
import select
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import count
from typing import NamedTuple

import msgpack  # type: ignore[import-untyped]

from ..addresses import host_and_port, tcp_url
from ..config import HOCKET_RUN, Config
from ..deadline import Deadline
from ..errors import RendezvousError
from .cards import Card, whereabouts
from .doors import Door
from .files import FileStore
from .foreign import ForeignStore
from .gap import NO_NETWORK
from .interfaces import own_address
from .links import Terms
from .seal import seal, unseal
from .server import StoreServer
from .sockets import explained, finish, listen, reach
from .store import ADMISSIONS, ALL_ENDED, Absent, Away, Closed, SocketStore, Store, Taken, joined, reach_store

_LOOKS = 0.02  # seconds between two looks who waits
_READS = 0.2  # seconds of one of them: anybody may have left thousands of notes there
_OPENS = 1.0  # seconds before it is tried again to open a porch that could not be
_ANSWER = 5.0  # seconds for a store to answer
_PROBES = 1.0  # seconds between two looks whether they are still there: each leaves a trace at their doors
_PROBE = 200  # milliseconds for somebody's kernel to say that nobody listens there any more
_BEGUN = 2.0  # seconds for one who has begun to write a letter in a foreign store, and may be dead
_AGAIN = 0.05  # seconds before one that waits and has lost sight of the porch looks for it again


class Caller(NamedTuple):
    """One that waits: its number on the porch, and its card."""

    number: int
    card: Card


class Admission(NamedTuple):
    """With whom one links, as which rank: the cards of all, packed; the key of the new group; what is known of its
    links (`wire`); whether these carry checksums; who was let in before, by the addresses of their doors; and by what
    profile it chooses, packed, or empty."""

    rank: int
    cards: list[bytes]
    key: int
    wire: int
    checked: bool
    admitted: list[str]
    profile: str = ""

    def pack(self) -> bytes:
        """As it is passed on."""
        blob: bytes = msgpack.packb(self)
        return blob

    @staticmethod
    def unpack(blob: bytes) -> Admission:
        """Read one. RendezvousError for what is none; or where it tells why this rank is not let in."""
        with suppress(ValueError):
            match msgpack.unpackb(blob):
                case [str() as why, bool() as is_final]:
                    raise (RendezvousError if is_final else Away)(f"this rank was not let in: {why}")
                case [int(), [*_], int(), int(), bool(), [*_], str()] as told:
                    return Admission(*told)
        raise RendezvousError("the group said what this version of hocket does not understand")


class Porch:
    """As one rank sees it. Only one of a group looks who waits, and lets them in."""

    def __init__(self, config: Config, foreign: ForeignStore | None = None) -> None:
        self._config, self._foreign = config, foreign
        self._terms: Terms | None = None
        self._undo = ExitStack()
        self._store: Store | None = None
        self._server: StoreServer | None = None
        self._seen = 0  # numbers
        self._callers: list[Caller] = []
        self._again = self._probed = Deadline(0.0)
        self._failed: RendezvousError | None = None
        self.admitted: set[str] = set()
        _porches.add(self)
        weakref.finalize(self, self._undo.close)

    def again(self) -> Porch:
        """Another one at the same place."""
        return Porch(self._config, self._foreign)

    @property
    def leads_nowhere(self) -> bool:
        """Whether nobody can come, as there is no place at which the ranks met: a world of one."""
        return self._foreign is None and not self._addresses

    @property
    def is_here(self) -> bool:
        """Whether this rank can look who waits, at the place that all know: who is on another host than that cannot."""
        config = self._config
        if self._foreign is not None or config.peers or not config.address.startswith("tcp://"):
            return True
        with suppress(OSError, RendezvousError), listen(tcp_url(host_and_port(config.address)[0], 0)):
            return True
        return False

    @property
    def terms(self) -> Terms:
        """On which ranks are linked here. Raises RendezvousError where these make no sense."""
        if self._terms is None:
            config = self._config
            self._terms = Terms.of(config.secret, config.towards, config.alone, config.sockets)
        return self._terms

    def door(self, limit: Deadline | None = None) -> Door:
        """A new one, to which others can come. A moment without a network is borne, not beyond the `limit`."""
        return Door.open(self._config.towards, self._config.sockets, limit)

    # ---- the group's side --------------------------------------------------------------------------------------------

    def waiting(self) -> list[Caller]:
        """Those that wait now, and can be reached. Raises RendezvousError where nobody can come."""
        if self.leads_nowhere or (self._store is not None and self._again.left()):
            return self._callers
        if self._failed is not None and self._again.left():
            raise self._failed
        try:
            with explained("nobody can join this group"):
                self._store = self._store or self._open()
                self._read(self._store)
                self._callers = [one for one in self._callers if one.card.address not in self.admitted]
                if not self._probed.left():
                    here = whereabouts()
                    self._callers = [one for one in self._callers if _is_there(one.card, here)]
                    self._probed = Deadline(_PROBES)
        except RendezvousError as error:
            self.close()
            self._failed, self._again = error, Deadline(_OPENS)
            raise
        self._failed, self._again = None, Deadline(_LOOKS)
        return self._callers

    def admit(self, caller: Caller, admission: Admission) -> None:
        """Tell one that waits to link."""
        self._tell(caller.number, admission.pack())

    @contextmanager
    def welcome(self, caller: Caller) -> Iterator[None]:
        """Tell one that waits that it will not be let in, and why, where that raises RendezvousError."""
        try:
            yield
        except RendezvousError as error:
            self._callers = [one for one in self._callers if one != caller]
            self._tell(caller.number, _refusal(str(error)))

    def send_away(self, late: list[Caller]) -> None:
        """Wait no longer for these, who did not link in time; if they wake up they may come again."""
        self._callers = [one for one in self._callers if one not in late]
        for caller in late:
            self._tell(caller.number, _refusal("it did not link with the others in time", is_final=False))

    def no_more(self) -> None:
        """Tell all that wait now that nobody will let them in any more; also those of which nothing has been read yet,
        where they hear of it when the store is closed."""
        self._again = self._probed = Deadline(0.0)
        with suppress(RendezvousError):
            for caller in self.waiting():
                self._tell(caller.number, _refusal(ALL_ENDED))
        if self._server is not None:
            self._server.close(ALL_ENDED)

    def filled(self, admission: Admission) -> None:
        """It has come about: nobody in it waits any more."""
        self.admitted.update(admission.admitted, (Card.unpack(card).address for card in admission.cards))
        self._callers = [one for one in self._callers if one.card.address not in self.admitted]

    def close(self) -> None:
        """Hold it no longer. It is opened anew where somebody looks."""
        self._store = self._server = None
        self._undo.close()
        self._seen, self._callers, self._probed = 0, [], Deadline(0.0)

    def forget(self) -> None:
        """In a forked child: what is open is the parent's, and lasts only as long as that has it."""
        if self._server is not None:
            self._server.forget()
        if isinstance(self._store, SocketStore):
            self._store.close()
        self._undo.pop_all()
        self._store = self._server = None

    def _read(self, store: Store) -> None:
        """The notes that are new, or as many as there is time for."""
        until = Deadline(_READS)
        for turn in count():
            if turn and not until.left():
                return
            number, secret = self._seen, self._config.secret
            try:
                note = store.get(f"join/{number}", 0.0)
            except Absent:
                return
            self._seen += 1
            if not note:  # who wrote it may only have been stopped
                self._tell(number, _refusal("it did not write its letter in time", is_final=False))
                continue
            try:
                card = Card.read(note, secret, f"join/{number}", number, self._config.rank)
            except RendezvousError as error:
                self._tell(number, _refusal(str(error)))
            else:
                self._callers.append(Caller(number, card))

    def _tell(self, number: int, what: bytes) -> None:
        assert self._store is not None
        for turn in count():
            label = f"{ADMISSIONS}{number}/{turn}"
            if _write(self._store, label, seal(self._config.secret, label, what), _ANSWER):
                return  # else it is of an earlier attempt, maybe of a rank that is lost

    # ---- where it is -------------------------------------------------------------------------------------------------

    def _open(self) -> Store:
        addresses = self._config.own.addresses if self._config.peers else self._addresses
        if self._foreign is None and self._config.folder is None and self._config.launcher != HOCKET_RUN:
            self._server, addresses = self._hold(addresses)
        return self._reached(addresses, Deadline(_ANSWER), self._undo)

    def _hold(self, addresses: tuple[str, ...]) -> tuple[StoreServer, tuple[str, ...]]:
        """At that address; where that is another host's, at the same port of this one."""
        config = self._config
        try:
            server = StoreServer(*addresses, secret=config.secret, timeout=0.0, tls=self.terms.tls)
        except RendezvousError as error:
            cause = error.__cause__
            if not isinstance(cause, OSError) or cause.errno != errno.EADDRNOTAVAIL or config.peers:
                raise
            own = own_address(config.towards, config.sockets.interface)
            addresses = (tcp_url(host_and_port(own)[0], host_and_port(addresses[0])[1]),)
            server = StoreServer(*addresses, secret=config.secret, timeout=0.0, tls=self.terms.tls)
        self._undo.enter_context(closing(server))
        return server.start(), addresses

    @property
    def _addresses(self) -> tuple[str, ...]:
        """All at which it may be; none where it is at no address, or nobody can come."""
        config = self._config
        if config.peers:
            return tuple(address for peer in config.peers for address in peer.addresses)
        if not config.address or config.launcher == HOCKET_RUN or config.is_far:
            return (config.address,) if config.address else ()
        return (f"{config.address}/porch",)

    def _reached(self, addresses: tuple[str, ...], deadline: Deadline, undo: ExitStack) -> Store:
        config = self._config
        if self._foreign is not None:
            return self._foreign
        if config.folder is not None:
            return FileStore(config.folder)
        if not addresses:
            raise RendezvousError("there is no group to join: neither a launcher nor `rendezvous` tells where it is")
        return undo.enter_context(closing(reach_store(addresses, config.secret, deadline, self.terms.tls)))

    # ---- the side of those that wait ---------------------------------------------------------------------------------

    def admissions(self, door: Door, deadline: Deadline) -> Iterator[Admission]:
        """Wait at that door, and be told again and again whom to link with. Raises RendezvousError at the deadline, or
        where the group does not want this rank, and says why."""
        for turn in count():
            card = self.terms.card(door, turn)  # a note of its own, each time
            try:
                with explained("this rank cannot join"), ExitStack() as stack:
                    store = self._reached(self._addresses, deadline, stack)
                    yield from self._told(store, self._leave(store, card, deadline), deadline)
            except (Absent, Away, Closed) as error:
                is_last = self._config.launcher == HOCKET_RUN or ALL_ENDED in str(error)  # no other one is opened
                if isinstance(error, Closed) and is_last:
                    raise RendezvousError(f"this rank was not let in: {error}") from None
                if not deadline.left():
                    raise RendezvousError(
                        f"no group let this rank in within {deadline} ({error}). A group takes in those that wait when "
                        "all of its ranks call grow(), or in hocket.elastic: is there one, and does it?"
                    ) from None
            time.sleep(min(_AGAIN, deadline.left()))

    def arrived(self, admission: Admission) -> None:
        """It has come about, for this rank too. Hocket's own launcher is told, where it has started this one again."""
        self.filled(admission)
        config = self._config
        if config.launcher == HOCKET_RUN and config.restarts:
            with suppress(RendezvousError), ExitStack() as stack:
                store = self._reached(self._addresses, Deadline(_ANSWER), stack)
                store.set(joined(config.rank, config.restarts), b"")

    def _leave(self, store: Store, card: Card, deadline: Deadline) -> int:
        for number in count():
            label = f"join/{number}"
            if _write(store, label, card.note(self._config.secret, label), deadline.left()):
                return number
        raise AssertionError

    def _told(self, store: Store, number: int, deadline: Deadline) -> Iterator[Admission]:
        for turn in count():
            label = f"{ADMISSIONS}{number}/{turn}"
            if note := store.get(label, deadline.left()):
                yield Admission.unpack(unseal(self._config.secret, label, note))


def _write(store: Store, label: str, letter: bytes, seconds: float) -> bool:
    """Whether that letter lies there now. Not where another one does, or none, as who had begun to write it did not."""
    try:
        store.set(label, letter, min(seconds, _BEGUN))
    except Taken:
        return False
    except Absent:
        if not isinstance(store, ForeignStore):  # in all others a letter appears whole
            raise
        store.give_up(label)
        return False
    return True


def _refusal(why: str, *, is_final: bool = True) -> bytes:
    blob: bytes = msgpack.packb([why, is_final])
    return blob


def _is_there(card: Card, here: tuple[str, str]) -> bool:
    """Whether somebody listens at its door: the kernel answers, also for who is busy or stopped."""
    address = card.address if (card.boot, card.network) == here and not card.alone else card.remote
    try:
        sock = reach(address, early=False) if address else None
        if sock is None:
            return True  # it is at least too crowded to say no, or on another host that cannot be reached from here
        with closing(sock):
            poll = select.poll()
            poll.register(sock, select.POLLOUT)
            if poll.poll(_PROBE):
                finish(sock)
    except ConnectionError:
        return False
    except OSError as error:
        if error.errno not in NO_NETWORK:
            raise
    return True


_porches: weakref.WeakSet[Porch] = weakref.WeakSet()


def _forget() -> None:
    for porch in list(_porches):
        porch.forget()


os.register_at_fork(after_in_child=_forget)
