"""The store: where the ranks of a job leave notes for each other until they are connected. And how to trust a socket.

Everything is Unix sockets in the abstract namespace: nothing is written to disk, nothing is left when a process dies.
Who calls and who is called look at each other twice before they say a word: the kernel tells the other's user id
(SO_PEERCRED), and both prove by HMAC that they know the job's secret. No frame is read before that, and none is longer
than `MAX_FRAME`. Every wait has a deadline.
"""

from __future__ import annotations

import errno
import hmac
import os
import secrets
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Any, Protocol

import msgpack  # type: ignore[import-untyped]

from ..deadline import Deadline
from ..errors import RendezvousError

MAX_FRAME = 1 << 20  # bytes
SLACK = 5.0  # seconds that a handshake may take, and an answer beyond the wait that was asked for
LONGEST = 1e6  # seconds that one get may wait


class Store(Protocol):
    """A place that all ranks of a job see. A key is written once."""

    def set(self, key: str, value: bytes) -> None:
        """Leave `value` under `key`. Raises RendezvousError where another value is there already."""

    def get(self, key: str, timeout: float) -> bytes:
        """The value under `key`, as soon as it is there. Raises RendezvousError after `timeout` seconds without."""


class Absent(RendezvousError):
    """Nobody wrote the key in time."""


class Taken(RendezvousError):
    """The key holds another value already: `value`."""

    def __init__(self, key: str, value: bytes) -> None:
        super().__init__(f'"{key}" holds another value already')
        self.value = value


class UnixStoreServer:
    """Holds the notes. It listens from the first line on, and serves, in threads of its own, between start and close.

    Raises RendezvousError where `address` is still taken after `timeout` seconds.
    """

    def __init__(self, address: str, secret: bytes, timeout: float = SLACK) -> None:
        self._listener = _bind(address, Deadline(timeout))
        self._secret = secret
        self._notes: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._closed = ""  # the reason, once it is
        self._clients: list[tuple[threading.Thread, socket.socket]] = []
        self._thread = threading.Thread(target=self._accept, name="hocket-store")

    def start(self) -> UnixStoreServer:
        """Begin to serve. Returns itself."""
        self._thread.start()
        return self

    def close(self, reason: str = "the meeting point was closed") -> None:
        """Tell those who wait why, and end all threads. A second call does nothing."""
        with self._changed:
            first, self._closed = not self._closed, self._closed or reason
            self._changed.notify_all()
        if not first:
            return
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        if self._thread.ident is not None:
            self._thread.join()
        self._listener.close()
        for thread, client in self._clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RD)  # wakes recv; a last answer still goes out
            thread.join()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed, or out of descriptors, which may pass
                time.sleep(0.0 if self._closed else 0.01)
                continue
            thread = threading.Thread(target=self._serve, args=(client,), name="hocket-store-client")
            self._clients = [(t, c) for t, c in self._clients if t.is_alive()] + [(thread, client)]
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError, EOFError, ValueError, RendezvousError):
            verify(client, self._secret, "host", Deadline(SLACK))
            try:
                while True:
                    answer = self._answer(_read_frame(client, None))
                    _write_frame(client, answer, Deadline(SLACK))
            finally:
                if self._closed:  # a last word, for who asks too late
                    _write_frame(client, ["closed", self._closed.encode()], Deadline(SLACK))

    def _answer(self, request: object) -> list[object]:
        with self._changed:
            match request:
                case ["set", str(key), bytes(value)]:
                    held = self._notes.setdefault(key, value)
                    self._changed.notify_all()
                    return ["ok", b""] if held == value else ["taken", held]
                case ["get", str(key), float(timeout)]:
                    self._changed.wait_for(lambda: key in self._notes or self._closed, min(timeout, LONGEST))
                    if key in self._notes:
                        return ["ok", self._notes[key]]
                    return ["closed", self._closed.encode()] if self._closed else ["absent", b""]
        raise ValueError("no such request")


class UnixStore:
    """A rank's end of the store. Not for several threads at once.

    Raises RendezvousError where nobody listens at `address` within `timeout` seconds, or another user or job does.
    """

    def __init__(self, address: str, secret: bytes, timeout: float) -> None:
        deadline = Deadline(timeout)
        try:
            self._socket = call(address, secret, deadline, early=True)
        except TimeoutError:
            raise Absent(f"nobody opened the meeting point {address} within {deadline}") from None
        except (OSError, EOFError) as error:
            raise RendezvousError(f"the meeting point {address} does not answer: {error}") from error

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
                _write_frame(self._socket, request, deadline)
            answer = _read_frame(self._socket, deadline)
        except (OSError, EOFError, ValueError) as error:
            raise RendezvousError(
                f"the meeting point went away, and with it the process that held it: {error}"
            ) from error
        match answer:
            case ["ok", bytes(value)]:
                return value
            case ["absent", _]:
                raise Absent(f'nobody wrote "{key}" within {timeout:g} s')
            case ["taken", bytes(value)]:
                raise Taken(key, value)
            case ["closed", bytes(reason)]:
                raise RendezvousError(reason.decode(errors="replace"))
        raise RendezvousError(f"the meeting point answered what no version of hocket says: {answer!r:.80}")


# ---- sockets ----


def listen(address: str, backlog: int = 4096) -> socket.socket:
    """A listening socket with the abstract name `address`, which begins with "@"."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(_sockaddr(address))
        sock.listen(backlog)
    except OSError:
        sock.close()
        raise
    return sock


def call(address: str, secret: bytes, deadline: Deadline, *, early: bool = False) -> socket.socket:
    """A verified socket to who listens at `address`. TimeoutError after the deadline.

    An `early` caller waits for the listener to come; for others, one that is not there is a ConnectionRefusedError.
    """
    nap = 0.001
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(max(deadline.left(), 0.001))
            sock.connect(_sockaddr(address))
            verify(sock, secret, "caller", deadline)
            return sock
        except (
            ConnectionRefusedError,
            BlockingIOError,
        ) as error:  # nobody there; or more callers than the backlog holds
            sock.close()
            if isinstance(error, ConnectionRefusedError) and not early:
                raise
            if not deadline.left():
                raise TimeoutError from None
            time.sleep(min(nap := nap * 1.5, 0.05, deadline.left()))  # the kernel offers nothing to wait on
        except BaseException:
            sock.close()
            raise


def verify(sock: socket.socket, secret: bytes, role: str, deadline: Deadline) -> None:
    """Raise RendezvousError unless the other end is the same user and knows `secret`. Roles: "caller" and "host".

    Each end sends a nonce, then the HMAC of role and both nonces. The role keeps a proof from being sent back as one's
    own.
    """
    uid = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
    if uid != os.geteuid():
        raise RendezvousError(
            f"the other end belongs to user id {uid}, not to {os.geteuid()}: it is no part of this job"
        )
    other = {"caller": "host", "host": "caller"}[role]
    mine = secrets.token_bytes(16)
    sock.settimeout(max(deadline.left(), 0.001))
    sock.sendall(mine)
    theirs = read(sock, 16, deadline)
    sock.sendall(hmac.digest(secret, role.encode() + mine + theirs, "sha256"))
    if not hmac.compare_digest(read(sock, 32, deadline), hmac.digest(secret, other.encode() + theirs + mine, "sha256")):
        raise RendezvousError("the other end does not know this job's secret: it belongs to another job")


def read(sock: socket.socket, count: int, deadline: Deadline | None) -> bytes:
    """Exactly `count` bytes. EOFError where the other end closed, TimeoutError after the deadline (None: never)."""
    data = bytearray()
    while len(data) < count:
        sock.settimeout(None if deadline is None else max(deadline.left(), 0.001))
        piece = sock.recv(count - len(data))
        if not piece:
            raise EOFError("the other end closed the connection")
        data += piece
    return bytes(data)


def _read_frame(sock: socket.socket, deadline: Deadline | None) -> Any:
    (length,) = struct.unpack("<I", read(sock, 4, deadline))
    if length > MAX_FRAME:
        raise ValueError(f"a frame of {length} bytes; at most {MAX_FRAME} are allowed")
    return msgpack.unpackb(read(sock, length, deadline))


def _write_frame(sock: socket.socket, value: object, deadline: Deadline) -> None:
    frame = msgpack.packb(value)
    if len(frame) > MAX_FRAME:
        raise ValueError(f"a frame of {len(frame)} bytes; at most {MAX_FRAME} are allowed")
    sock.settimeout(max(deadline.left(), 0.001))
    sock.sendall(struct.pack("<I", len(frame)) + frame)


def _bind(address: str, deadline: Deadline) -> socket.socket:
    """Listen at `address`; an earlier job of the same name may still be on its way out."""
    while True:
        try:
            return listen(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise RendezvousError(f"the meeting point {address} cannot be opened: {error}") from error
            if not deadline.left():
                raise RendezvousError(
                    f"another job holds the meeting point {address}: was this one started twice?"
                ) from None
        time.sleep(min(0.02, deadline.left()))


def _sockaddr(address: str) -> bytes:
    return b"\0" + address.removeprefix("@").encode()
