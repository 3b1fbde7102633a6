"""Unix sockets in the abstract namespace, and how to trust who is at their other end.

Who dials and who listens look at each other twice before they say a word: the kernel tells the other's user id
(SO_PEERCRED), and both prove by HMAC that they know the job's secret. Nothing else is read before that.

```
caller   nonce c ───▶                 ───▶ HMAC("caller", name, c, h)
listener nonce h ───▶                 ───▶ HMAC("host",   name, h, c)
```

The role keeps a proof from being sent back as one's own, and the listener's name keeps it from being passed on to
another listener of the job.
"""

from __future__ import annotations

import errno
import hmac
import os
import resource
import secrets
import socket
import struct
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import msgpack  # type: ignore[import-untyped]

from ..deadline import Deadline
from ..errors import HocketError, RendezvousError

MAX_FRAME = 1 << 20  # bytes
SLACK = 5.0  # seconds that a handshake may take, and an answer beyond the wait that was asked for
USED_UP = (errno.EMFILE, errno.ENFILE, errno.ETOOMANYREFS)


def listen(address: str, backlog: int = 4096) -> socket.socket:
    """A listening socket with the abstract name `address`, which begins with "@"."""
    with ExitStack() as undo:
        sock = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        sock.bind(_sockaddr(address))
        sock.listen(backlog)
        undo.pop_all()
    return sock


def dial(address: str, secret: bytes, deadline: Deadline) -> socket.socket:
    """A verified socket to who listens at `address`, who may come, or come again, later. TimeoutError after the
    deadline."""
    nap = 0.001
    while True:
        if (sock := reach(address)) is not None:
            with ExitStack() as undo:
                undo.enter_context(sock)
                with suppress(EOFError, ConnectionError):  # it went away before it knew us
                    verify(sock, secret, "caller", deadline)
                    undo.pop_all()
                    return sock
        if not deadline.left():
            raise TimeoutError
        time.sleep(min(nap := nap * 1.5, 0.05, deadline.left()))  # the kernel offers nothing to wait on


def reach(address: str, *, early: bool = True) -> socket.socket | None:
    """A non-blocking socket to who listens at `address`. None while more callers wait there than may.

    An `early` caller gets None for a listener that is not there too, others a ConnectionRefusedError.
    """
    with ExitStack() as undo:
        sock = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        sock.setblocking(False)
        try:
            sock.connect(_sockaddr(address))
        except BlockingIOError:
            return None
        except ConnectionRefusedError:
            if not early:
                raise
            return None
        undo.pop_all()
    return sock


# ---- the proof ----


def _proving(sock: socket.socket, secret: bytes, role: str) -> Generator[int, bytes, None]:
    """The proof of one end, "caller" or "host". Yields how many bytes must come next, and is sent these.

    What it says fits into the buffer of any socket that is new.
    """
    uid = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
    if uid != os.geteuid():
        raise RendezvousError(
            f"the other end belongs to user id {uid}, not to {os.geteuid()}: it is no part of this job"
        )
    other = {"caller": "host", "host": "caller"}[role]
    name = sock.getpeername() if role == "caller" else sock.getsockname()
    name = name if isinstance(name, bytes) else name.encode()
    mine = secrets.token_bytes(16)
    sock.sendall(mine)
    theirs = yield 16
    sock.sendall(_digest(secret, role, name, mine, theirs))
    proof = yield 32
    if not hmac.compare_digest(proof, _digest(secret, other, name, theirs, mine)):
        raise RendezvousError("the other end does not know this job's secret: it belongs to another job")


def _digest(secret: bytes, role: str, name: bytes, first: bytes, second: bytes) -> bytes:
    return hmac.digest(secret, first + second + role.encode() + b"\0" + name, "sha256")


class Handshake:
    """The proof over a non-blocking socket, step by step. It reads no byte beyond its own.

    Raises RendezvousError for another user or job, as soon as that shows.
    """

    def __init__(self, sock: socket.socket, secret: bytes, role: str) -> None:
        self._sock = sock
        self._proof = _proving(sock, secret, role)
        self._needed = next(self._proof)
        self._held = b""
        self.begun = False  # whether the other end has said anything

    def advance(self) -> bool:
        """Read what has come. True when the other end has proved to belong to the job; EOFError where it left."""
        while True:
            try:
                data = self._sock.recv(self._needed - len(self._held))
            except BlockingIOError:
                return False
            if not data:
                raise EOFError("the other end closed the connection")
            self.begun = True
            self._held += data
            if len(self._held) == self._needed:
                try:
                    held, self._held = self._held, b""
                    self._needed = self._proof.send(held)
                except StopIteration:
                    return True


def verify(sock: socket.socket, secret: bytes, role: str, deadline: Deadline) -> None:
    """Raise RendezvousError unless the other end is the same user and knows `secret`. Roles: "caller" and "host"."""
    proof = _proving(sock, secret, role)
    sock.settimeout(max(deadline.left(), 0.001))
    needed = next(proof)
    with suppress(StopIteration):
        while True:
            needed = proof.send(read(sock, needed, deadline))


# ---- frames: a length, and a value in msgpack ----


def read(sock: socket.socket, count: int, deadline: Deadline) -> bytes:
    """Exactly `count` bytes. EOFError where the other end closed, TimeoutError after the deadline."""
    data = bytearray()
    while len(data) < count:
        sock.settimeout(max(deadline.left(), 0.001))
        piece = sock.recv(count - len(data))
        if not piece:
            raise EOFError("the other end closed the connection")
        data += piece
    return bytes(data)


def read_frame(sock: socket.socket, deadline: Deadline) -> Any:
    """The value of the next frame. ValueError for one that is too long, or none."""
    return unpack(read(sock, frame_length(read(sock, 4, deadline)), deadline))


def write_frame(sock: socket.socket, value: object, deadline: Deadline) -> None:
    """Send a value. ValueError where it is too long."""
    data = frame(value)
    sock.settimeout(max(deadline.left(), 0.001))
    sock.sendall(data)


def frame(value: object) -> bytes:
    """A value as it is sent."""
    data: bytes = msgpack.packb(value)
    return struct.pack("<I", _capped(len(data))) + data


def frame_length(head: bytes | bytearray) -> int:
    """How many bytes follow the first four of a frame."""
    return _capped(struct.unpack("<I", head)[0])


def unpack(data: bytes) -> Any:
    """The value in a frame."""
    return msgpack.unpackb(data)


def _capped(length: int) -> int:
    if length > MAX_FRAME:
        raise ValueError(f"a frame of {length} bytes; at most {MAX_FRAME} are allowed")
    return length


# ---- errors ----


def reason(error: BaseException) -> str:
    """Why the kernel refused, for a person. Descriptors that are used up are the user's to mend, so that says how."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.ENFILE:
        return "this machine has no file descriptor left (sysctl fs.file-max)"
    if number in USED_UP:
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"this process has used up its file descriptors: {allowed} are allowed (ulimit -n)"
    return str(error)


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Let no bare OSError out: raise RendezvousError, which says what could not be done, and why."""
    try:
        yield
    except HocketError:  # some are OSErrors too, by name
        raise
    except OSError as error:
        raise RendezvousError(f"{what}: {reason(error)}") from error


def _sockaddr(address: str) -> bytes:
    return b"\0" + address.removeprefix("@").encode()
