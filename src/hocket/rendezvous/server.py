"""The store's other end: one thread holds the notes and serves everybody, whoever else may come."""

from __future__ import annotations

import errno
import selectors
import socket
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ..deadline import Deadline
from ..errors import RendezvousError
from .reception import Reception
from .sockets import SLACK, Address, explained, frame, frame_length, listen, peer_of, reason, unpack

if TYPE_CHECKING:
    from .._core import Credentials

CLOSED = "the meeting point was closed"
LONGEST = 1e6  # seconds that one get may wait


@dataclass(eq=False)
class _Client:
    """One who has proved to belong to the job. It asks, and waits for the answer before it asks again."""

    sock: socket.socket
    asked: bytearray = field(default_factory=bytearray)
    answer: bytes = b""  # what of it is still to be sent
    wants: str | None = None  # the key that it waits for
    limit: Deadline | None = None  # of that wait, or for taking the answer


class StoreServer:
    """Holds the notes. It listens from the first line on, and serves, in a thread of its own, between start and close.

    Raises RendezvousError where one of its `addresses` is still taken after `timeout` seconds. Where its process has
    used up its descriptors, one that is `patient` waits until some are closed; others close, and tell all who wait.
    """

    def __init__(
        self,
        *addresses: str,
        secret: bytes,
        timeout: float = SLACK,
        patient: bool = True,
        tls: Credentials | None = None,
    ) -> None:
        limit = Deadline(timeout)
        self._listeners: list[socket.socket] = []
        self._receptions: list[Reception] = []
        with ExitStack() as undo:
            self._selector = undo.enter_context(selectors.DefaultSelector())
            for address in addresses:
                with explained(f"the meeting point {address} cannot be opened"):
                    taken = f"another job holds the meeting point {address}: was this one started twice?"
                    listener = undo.enter_context(bind(address, limit, taken))
                    self._listeners.append(listener)
                    self._receptions.append(
                        Reception(
                            listener,
                            secret,
                            self._selector,
                            self._welcome,
                            patient=patient,
                            name=Address.of(address).name,
                            tls=tls,
                        )
                    )
            undo.pop_all()
        self._notes: dict[str, bytes] = {}
        self._clients: set[_Client] = set()
        self._waiting: set[_Client] = set()  # those with a limit
        self._closed = ""  # the reason, once it is
        self._once = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="hocket-store", daemon=True)

    def start(self) -> StoreServer:
        """Begin to serve. Returns itself."""
        try:
            self._thread.start()
        except RuntimeError as error:
            self.close()
            raise RendezvousError(f"the meeting point cannot be opened: {error}") from error
        return self

    def close(self, why: str = CLOSED) -> None:
        """Tell those who wait why, and end the thread. A second call does nothing."""
        with self._once:
            self._closed = self._closed or why
            if self._listeners[0].fileno() < 0:
                return
            self._refuse()  # which wakes the thread
            if self._thread.ident is not None:
                self._thread.join()
            for reception in self._receptions:
                reception.close()
            self._selector.close()
            for listener in self._listeners:
                listener.close()

    def forget(self) -> None:
        """In a forked child, which has no such thread: close what is open here, and tell nobody."""
        for listener in self._listeners:
            listener.close()
        for client in self._clients:
            client.sock.close()
        self._selector.close()

    def has(self, key: str) -> bool:
        """Whether anybody has written that note. For any thread: notes are only ever added, each by one step."""
        return key in self._notes

    def awaited(self, prefix: str) -> set[int]:
        """The processes that wait for notes whose names begin so, where they came over a Unix socket. For any thread:
        a set is copied in one step."""
        pids = set()
        for client in list(self._waiting):
            with suppress(OSError):  # it has gone
                if (client.wants or "").startswith(prefix):
                    pids.add(peer_of(client.sock)[0])
        return pids

    def _refuse(self) -> None:
        for listener in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)

    # ---- in the thread ----

    def _serve(self) -> None:
        try:
            while not self._closed:
                limits = [*(reception.tick() for reception in self._receptions), self._expire()]
                for key, _ in self._selector.select(min((left for left in limits if left is not None), default=None)):
                    key.data()
        except OSError as error:
            self._closed = self._closed or f"the meeting point was closed: {reason(error)}"
            self._refuse()  # who comes now need not wait
        finally:
            self._say_goodbye()

    def _welcome(self, sock: socket.socket) -> None:
        client = _Client(sock)
        self._clients.add(client)
        self._selector.register(sock, selectors.EVENT_READ, partial(self._hear, client))

    def _expire(self) -> float | None:
        """Answer those whose wait is over; the seconds until the next one's is."""
        for client in [client for client in self._waiting if client.limit and not client.limit.left()]:
            if client.wants is None:
                self._drop(client)  # it does not take its answer
            else:
                self._reply(client, ["absent", b""])
        return min((client.limit.left() for client in self._waiting if client.limit), default=None)

    def _hear(self, client: _Client) -> None:
        """The client has said something, has left, or can take more of its answer."""
        if client not in self._clients:  # dropped in this very turn
            return
        try:
            self._send(client)
            if client.answer:
                return
            data = client.sock.recv(1 << 16)
            if not data or client.wants is not None:
                raise EOFError
            client.asked += data
            self._work(client)
        except BlockingIOError:
            return
        except (OSError, EOFError, ValueError, TypeError):
            self._drop(client)

    def _work(self, client: _Client) -> None:
        """Answer what the client asks, once that is here."""
        if len(client.asked) < 4 or len(client.asked) < (end := 4 + frame_length(client.asked[:4])):
            return
        request, rest = unpack(bytes(client.asked[4:end])), client.asked[end:]
        if rest:
            raise ValueError("a question behind a question")
        client.asked.clear()
        self._obey(client, request)

    def _obey(self, client: _Client, request: object) -> None:
        match request:
            case ["set", str(key), bytes(value)]:
                held = self._notes.setdefault(key, value)
                self._reply(client, ["ok", b""] if held == value else ["taken", held])
                for other in [other for other in self._waiting if other.wants == key]:
                    self._reply(other, ["ok", held])
            case ["get", str(key), float(timeout)]:
                if key in self._notes:
                    self._reply(client, ["ok", self._notes[key]])
                elif not timeout > 0:
                    self._reply(client, ["absent", b""])
                else:
                    self._wait(client, key, Deadline(min(timeout, LONGEST)))
            case _:
                raise ValueError("no such request")

    def _wait(self, client: _Client, key: str | None, limit: Deadline | None) -> None:
        client.wants, client.limit = key, limit
        (self._waiting.discard if limit is None else self._waiting.add)(client)

    def _reply(self, client: _Client, answer: list[object]) -> None:
        self._wait(client, None, None)
        client.answer += frame(answer)
        try:
            self._send(client)
        except OSError:
            self._drop(client)

    def _send(self, client: _Client) -> None:
        """Send what the client takes of its answer; while some is left, hear of it when it takes more."""
        if not client.answer:
            return
        with suppress(BlockingIOError):
            client.answer = client.answer[client.sock.send(client.answer) :]
        stuck = bool(client.answer)
        if stuck != (client.limit is not None):
            self._wait(client, None, Deadline(SLACK) if stuck else None)
            mode = selectors.EVENT_WRITE if stuck else selectors.EVENT_READ
            self._selector.modify(client.sock, mode, partial(self._hear, client))

    def _drop(self, client: _Client) -> None:
        if client in self._clients:
            self._clients.discard(client)
            self._waiting.discard(client)
            self._selector.unregister(client.sock)
            client.sock.close()

    def _say_goodbye(self) -> None:
        """A last word to everyone: to who waits, and to who asks too late."""
        limit = Deadline(SLACK)
        for client in list(self._clients):
            last = frame(["closed", self._closed.encode()])
            with suppress(OSError):
                client.sock.settimeout(max(limit.left(), 0.001))
                client.sock.sendall(client.answer + last * (1 if client.wants is None else 2))
            self._drop(client)


def bind(address: str, deadline: Deadline, taken: str) -> socket.socket:
    """Listen at `address`; an earlier job of the same name may still be on its way out. Raises RendezvousError where it
    is still taken at the deadline, which says so: `taken`."""
    while True:
        try:
            return listen(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            if not deadline.left():
                raise RendezvousError(taken) from None
        time.sleep(min(0.02, deadline.left()))
