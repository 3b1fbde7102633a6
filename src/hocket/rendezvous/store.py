"""The store: where the ranks of a job leave notes for each other until they are connected. A rank's end of it.

What protects the notes: whoever speaks to the store has proved to know the job's secret (`sockets`). Every wait has a
deadline. `server` holds the notes.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from .._core import Credentials
from ..deadline import Deadline
from ..errors import RendezvousError
from .sockets import SLACK, dial, read_frame, reason, write_frame


class Store(Protocol):
    """A place that all ranks of a job see. A key is written once."""

    def set(self, key: str, value: bytes) -> None:
        """Leave `value` under `key`. Raises RendezvousError where another value is there already."""

    def get(self, key: str, timeout: float) -> bytes:
        """The value under `key`, as soon as it is there. Raises RendezvousError after `timeout` seconds without."""


class Absent(RendezvousError):
    """Nobody wrote the key in time."""


class Taken(RendezvousError):
    """The key holds another value already: `value`. `hint` is a sentence on what else that may come from."""

    def __init__(self, key: str, value: bytes, hint: str = "") -> None:
        super().__init__(f'"{key}" holds another value already')
        self.value, self.hint = value, f" {hint}" if hint else ""


class Closed(RendezvousError):
    """Who holds the store has closed it."""


class SocketStore:
    """A rank's end of the store. Not for several threads at once.

    Raises RendezvousError where nobody listens at `address` within `timeout` seconds, or another user or job does.
    """

    def __init__(self, address: str, secret: bytes, timeout: float, tls: Credentials | None = None) -> None:
        deadline = Deadline(timeout)
        try:
            self._socket = dial(address, secret, deadline, tls)
        except TimeoutError:
            raise Absent(f"nobody opened the meeting point {address} within {deadline}") from None
        except OSError as error:
            raise RendezvousError(f"the meeting point {address} cannot be reached: {reason(error)}") from error

    def set(self, key: str, value: bytes) -> None:
        """Leave `value` under `key`. Raises Taken where another value is there already."""
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
            with suppress(BrokenPipeError):  # a server that closed has left its last word
                write_frame(self._socket, request, deadline)
            answer = read_frame(self._socket, deadline)
        except (OSError, EOFError, ValueError) as error:
            raise RendezvousError(
                f"the meeting point went away, and with it the process that held it: {reason(error)}"
            ) from error
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
