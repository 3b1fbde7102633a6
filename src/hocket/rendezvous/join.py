"""Meetings of a job's ranks: where the store is found, or opened, and what happens to a meeting that fails.

Hocket's own launcher holds the store in its process. Under other launchers rank 0 does, while the ranks meet. Ranks of
different hosts meet at a TCP store, which rank 0 holds, in a folder, or in a store of somebody else's. Where each rank
has a URL of its own, rank 0 holds the store at its URL, and the others have their doors at theirs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

from .._core import Credentials
from ..config import HOCKET_RUN, Config
from ..deadline import Deadline
from ..errors import RendezvousError
from .cards import HOW
from .doors import Door
from .files import FileStore
from .foreign import ForeignStore
from .links import Links, Terms, connect
from .mesh import Gone
from .server import CLOSED, StoreServer
from .sockets import SLACK, explained, reason
from .store import MET, Absent, Closed, Left, Store, reach_store

_NO_WAY = "not be reachable from here: hocket doctor --on HOST,HOST tries the ways between hosts"


@dataclass
class _Meeting:
    """A rank's meeting at one place: a job may init, close and init again.

    A meeting that failed is tried again under the same number, behind the same door: the others may have read its
    address, and still wait there. So a rank that gave up too early finds those that did not.

    The numbers of meetings are counted here; in a store of somebody else's, which may outlive this process, they are
    counted there.
    """

    key: _Key
    number: int = 0
    door: Door | None = None

    @staticmethod
    def of(config: Config, foreign: ForeignStore | None, deadline: Deadline) -> _Meeting:
        """The one that this rank is at, there."""
        place = foreign.name(deadline.left()) if foreign else config.peers or config.address
        key = place, config.rank
        if key not in _meetings:
            _meetings[key] = _Meeting(key, foreign.arrive(config.rank) if foreign else 0)
        return _meetings[key]

    def over(self, foreign: ForeignStore | None) -> None:
        """The next one is another one."""
        self.number += 1
        self.leave()
        if foreign is not None:
            del _meetings[self.key]

    def leave(self) -> None:
        """Close the door."""
        if self.door is not None:
            self.door.close()
            self.door = None


_Key: TypeAlias = "tuple[object, int]"  # the place and the rank
_meetings: dict[_Key, _Meeting] = {}


def forget_doors() -> None:
    """Close the doors of meetings that failed."""
    for meeting in _meetings.values():
        meeting.leave()


os.register_at_fork(after_in_child=forget_doors)  # a rank is one process: its children do not open in its name


def join(config: Config, fd: int, timeout: float | None = None, foreign: ForeignStore | None = None) -> Links:
    """Meet the other ranks of the job and give `fd` to each of them. Raises RendezvousError after `timeout` seconds.

    They meet where `config` says, or in the `foreign` store. The n-th meeting on one rank is the n-th on the others;
    one that failed on a rank can be tried again there. A world of one meets nobody.
    """
    deadline = Deadline(config.timeout if timeout is None else timeout)
    if config.size == 1:
        with explained("this rank cannot start"):
            return Links.alone(fd)
    with _signed(config):
        meeting = _Meeting.of(config, foreign, deadline)
        try:
            with explained("this rank cannot meet the others"):
                meeting.door = meeting.door or _door(config, deadline)
                links = _meet(config, fd, deadline, meeting, foreign)
            meeting.over(foreign)
            return links
        except Gone:  # all others have met without this rank, or one has died: this meeting will not be
            meeting.over(foreign)
            raise
        finally:
            if meeting.door is not None and not meeting.door.told:
                meeting.leave()


def _door(config: Config, deadline: Deadline) -> Door:
    if config.peers:
        return Door.at(config.own, config.rank, deadline)
    return Door.open(config.towards, config.sockets, deadline)


@cache
def announce() -> None:
    """Tell hocket's own launcher, if it has started this process, that ranks have met elsewhere than in its store: from
    now on the others may go on without one that fails. It has to be told once."""
    with suppress(RendezvousError):
        config = Config.from_env()
        if config.launcher == HOCKET_RUN:
            with closing(reach_store(config.meeting_points, config.secret, Deadline(SLACK))) as store:
                store.set(MET, b"")


_Link: TypeAlias = "Callable[[Store], Links]"


def _meet(config: Config, fd: int, deadline: Deadline, meeting: _Meeting, foreign: ForeignStore | None) -> Links:
    """Find the store, or open it, and connect."""
    sockets = config.sockets._replace(interface="") if config.peers else config.sockets  # a URL of one's own tells it
    terms = Terms.of(config.secret, config.towards, config.alone, sockets)
    prefix = f"{meeting.number}/"

    def link(store: Store) -> Links:
        return connect(store, config.rank, config.size, fd, deadline, prefix, terms=terms, door=meeting.door)

    if foreign is not None:
        return link(foreign)
    if config.folder is not None:
        return _in_folder(config.folder, config.rank, prefix, link)
    return _at_server(config, prefix, deadline, link, terms.tls)


def _in_folder(folder: Path, rank: int, prefix: str, link: _Link) -> Links:
    notes = FileStore(folder)
    links = link(notes)
    if rank == 0:
        with suppress(OSError):  # all have read all cards, or they would not be linked
            notes.clear(prefix)
    return links


def _at_server(config: Config, prefix: str, deadline: Deadline, link: _Link, tls: Credentials | None) -> Links:
    reopens = bool(config.is_far or config.peers)  # each meeting's is at one address
    addresses = config.meeting_points
    if not reopens and config.launcher != HOCKET_RUN:
        addresses = tuple(f"{address}/{prefix}" for address in addresses)
    server = None
    with ExitStack() as stack:
        try:
            if config.hosts_store:
                server = StoreServer(*addresses, secret=config.secret, timeout=deadline.left(), patient=False, tls=tls)
                stack.enter_context(closing(server)).start()
            while True:
                store = stack.enter_context(closing(reach_store(addresses, config.secret, deadline, tls)))
                try:
                    links = link(store)
                    if config.launcher == HOCKET_RUN:  # which asks for it when a rank fails
                        with suppress(RendezvousError):
                            store.set(MET, b"")
                    return links
                except (Closed, Left) as error:
                    if (str(error) != CLOSED and not isinstance(error, Left)) or not reopens or not deadline.left():
                        raise
                    store.close()  # it was that of an earlier meeting, at the same port
        except Absent as error:
            holder = "The launcher" if config.launcher == HOCKET_RUN else "Rank 0"
            elsewhere = _NO_WAY if config.is_far else f"run on another host: {HOW}"
            where = f"{error}. {holder} does: it may be slow, have failed, or {elsewhere}"
            raise RendezvousError(where) from None
        except (RendezvousError, OSError) as error:
            if server is not None:
                server.close(f"rank 0, which held the meeting point, gave up: {reason(error)}")
            raise


@contextmanager
def _signed(config: Config) -> Iterator[None]:
    """Say in each error whose it is."""
    try:
        yield
    except RendezvousError as error:
        words = f"{error} (said by rank {config.rank} of {config.size}, started by {config.launcher})"
        raise RendezvousError(words) from (error if isinstance(error, Gone) else error.__cause__)
