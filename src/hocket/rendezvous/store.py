"""The store: where the ranks of a job leave notes for each other until they are connected. A rank's end of it.

What protects the notes: whoever speaks to the store has proved to know the job's secret (`sockets`). Every wait has a
deadline. `server` holds the notes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from ..deadline import Deadline
from ..errors import RendezvousError
from .gap import Gap
from .sockets import SLACK, dial, read_frame, reason, write_frame

if TYPE_CHECKING:
    from .._core import Credentials

# For hocket's own launcher, which holds the store:
MET = "met"  # the note of who has met the others
ALL_ENDED = "all others have ended"  # why who would join them is not let in
ADMISSIONS = "admit/"  # so the notes begin that those wait for who would join the others

_SHORTEST, _LONGEST = 0.1, 2.0  # seconds for one of several addresses


def joined(rank: int, restarts: int) -> str:
    """The note of a rank that was started again, the `restarts`-th time, once it belongs to the others."""
    return f"joined/{rank}/{restarts}"


class Store(Protocol):
    """A place that all ranks of a job see: here, in a folder (`files`), or somebody else's (`foreign`).

    A key is written once, so to read it is to wait for it; and nothing is ever counted, or removed, by the ranks.
    """

    def set(self, key: str, value: bytes, timeout: float = ...) -> None:
        """Leave `value` under `key`, within `timeout` seconds. Raises Taken where another value is there already."""

    def get(self, key: str, timeout: float) -> bytes:
        """The value under `key`, as soon as it is there. Raises Absent after `timeout` seconds without."""


class Absent(RendezvousError):
    """Nobody wrote the key in time."""


class Taken(RendezvousError):
    """The key holds another value already: `value`. `hint` is a sentence on what else that may come from."""

    def __init__(self, key: str, value: bytes, hint: str = "") -> None:
        super().__init__(f'"{key}" holds another value already')
        self.value, self.hint = value, f" {hint}" if hint else ""


class Closed(RendezvousError):
    """Who holds the store has closed it."""


class Away(RendezvousError):
    """Who holds the store has left without a word."""


class Left(Away):
    """And never answered this rank: as it came, a store of an earlier meeting may close, which knows nobody yet to whom
    it would say so."""


def reach_store(
    addresses: Sequence[str], secret: bytes, deadline: Deadline, tls: Credentials | None = None
) -> SocketStore:
    """A rank's end of the store that listens at all these addresses: the first that answers. Raises as SocketStore.

    They are tried by turns, and longer each time: one that leads nowhere from here looks like one who is late.
    """
    if len(addresses) == 1:
        return SocketStore(addresses[0], secret, deadline.left(), tls)
    patience, gap = _SHORTEST, Gap(deadline)
    while True:
        errors: list[RendezvousError] = []
        for address in addresses:
            with _collected(errors):
                return SocketStore(address, secret, min(patience, deadline.left()), tls)
        known = [error for error in errors if not isinstance(error, Absent)]
        if known and not deadline.left():
            raise known[0]
        if len(known) == len(errors):
            _bear(gap, known[0])
        if not deadline.left():
            raise Absent(f"nobody opened the meeting point {' or '.join(addresses)} within {deadline}")
        patience = min(2 * patience, _LONGEST)


def _bear(gap: Gap, error: RendezvousError) -> None:
    cause = error.__cause__
    if not isinstance(cause, OSError):
        raise error
    try:
        gap.bear(cause)
    except OSError:
        raise error from cause


@contextmanager
def _collected(errors: list[RendezvousError]) -> Iterator[None]:
    try:
        yield
    except RendezvousError as error:
        errors.append(error)


class SocketStore:
    """A rank's end of the store. Not for several threads at once.

    Raises RendezvousError where nobody listens at `address` within `timeout` seconds, or another user or job does.
    """

    def __init__(self, address: str, secret: bytes, timeout: float, tls: Credentials | None = None) -> None:
        deadline = Deadline(timeout)
        self._answered = False  # anything yet
        try:
            self._socket = dial(address, secret, deadline, tls)
        except TimeoutError:
            raise Absent(f"nobody opened the meeting point {address} within {deadline}") from None
        except OSError as error:
            raise RendezvousError(f"the meeting point {address} cannot be reached: {reason(error)}") from error

    def set(self, key: str, value: bytes, timeout: float = 0.0) -> None:
        """Leave `value` under `key`. Raises Taken where another value is there already. Nothing is waited for but the
        answer."""
        self._ask(["set", key, value], key, 0.0)

    def get(self, key: str, timeout: float) -> bytes:
        """The value under `key`, as soon as it is there. Raises Absent after `timeout` seconds without."""
        return self._ask(["get", key, float(timeout)], key, timeout)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _ask(self, request: list[object], key: str, timeout: float) -> bytes:
        deadline = Deadline(timeout + SLACK)
        try:
            with suppress(ConnectionError):  # a server that closed has left its last word
                write_frame(self._socket, request, deadline)
            answer = read_frame(self._socket, deadline)
        except (OSError, EOFError, ValueError) as error:
            gone = isinstance(error, (EOFError, ConnectionError))
            kind = (Away if self._answered else Left) if gone else RendezvousError
            raise kind(f"the meeting point went away, and with it the process that held it: {reason(error)}") from error
        self._answered = True
        match answer:
            case ["ok", bytes(value)]:
                return value
            case ["absent", _]:
                raise Absent(f'nobody wrote "{key}" within {timeout:g} s')
            case ["taken", bytes(value)]:
                raise Taken(key, value)
            case ["closed", bytes(why)]:
                raise Closed(why.decode(errors="replace"))
        raise RendezvousError(f"the meeting point answered what no version of hocket says: {answer!r:.80}")
