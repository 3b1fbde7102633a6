"""Stream sockets, and how to trust who is at their other end.

```
@hocket-4f...             a Unix socket in the abstract namespace: ranks of one host and network namespace
tcp://host:port#name      TCP, over v4 or v6 ([::1]:port); the name is the listener's, and proved, not dialled
```

Who dials and who listens prove to each other by HMAC that they know the job's secret; of a Unix socket the kernel tells
the other's user id as well (SO_PEERCRED). Nothing else is read before that.

```
caller   nonce c ───▶                 ───▶ HMAC("caller", name, c, h)
listener nonce h ───▶                 ───▶ HMAC("host",   name, h, c)
```

The role keeps a proof from being sent back as one's own, and the listener's name keeps it from being passed on to
another listener of the job. What is proved is the connection at its beginning, not each byte that comes later: over TCP
who can change packets on their way could still write into it.
"""

from __future__ import annotations

import errno
import hmac
import os
import resource
import select
import socket
import struct
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack  # type: ignore[import-untyped]

from ..addresses import host_and_port
from ..deadline import Deadline
from ..errors import HocketError, RendezvousError
from .gap import Gap
from .tls import ALERT, NOT_HERE, secured

if TYPE_CHECKING:
    from .._core import Credentials

MAX_FRAME = 1 << 20  # bytes
_MOST_PARTS = 3  # of what is asked or answered
SLACK = 5.0  # seconds that a handshake may take, and an answer beyond the wait that was asked for
USED_UP = (errno.EMFILE, errno.ENFILE, errno.ETOOMANYREFS)


class Address(NamedTuple):
    """Where somebody listens, as the kernel takes it, and the name that is proved; None: the kernel's own."""

    family: socket.AddressFamily
    place: Any
    name: bytes | None

    @staticmethod
    def of(text: str) -> Address:
        """What `text` means. Raises RendezvousError where it means nothing, or names an unknown host; socket.gaierror
        where nobody answers who knows its address, as where there is no network (gap)."""
        if text.startswith("@"):
            return Address(socket.AF_UNIX, b"\0" + os.fsencode(text.removeprefix("@")), None)
        host, port, name = host_and_port(text)
        try:
            family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        except (OSError, ValueError) as error:  # of no such host, and of what cannot be the name of one
            why = f"the host of {text} is unknown here: {getattr(error, 'strerror', None) or error}"
            if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
                raise socket.gaierror(error.errno, why) from None
            raise RendezvousError(why) from None
        return Address(family, place, os.fsencode(name))


def listen(address: str, backlog: int = 4096) -> socket.socket:
    """A listening socket at `address`."""
    at = Address.of(address)
    with ExitStack() as undo:
        sock = undo.enter_context(socket.socket(at.family, socket.SOCK_STREAM))
        if at.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # an earlier job's connections may linger
        sock.bind(at.place)
        sock.listen(backlog)
        undo.pop_all()
    return sock


def steer(sock: socket.socket, congestion: str) -> None:
    """Have a TCP socket use that congestion control; an empty one is cubic, where the kernel has it. Raises
    RendezvousError for one that it has not, or does not allow.

    BBR, some machines' default, paces what it sends, and takes twice the time where nothing is in the way
    (docs/hosts.md).
    """
    if sock.family == socket.AF_UNIX:
        return
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, (congestion or "cubic").encode())
    except OSError as error:
        if congestion:
            allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().strip()
            raise RendezvousError(
                f'the congestion control "{congestion}" cannot be used ({error}); allowed are: {allowed}'
            ) from None


def dial(address: str, secret: bytes, deadline: Deadline, tls: Credentials | None = None) -> socket.socket:
    """A verified socket to who listens at `address`, who may come, or come again, later. TimeoutError after the
    deadline. A moment without a network is borne (gap)."""
    nap, gap = 0.001, Gap(deadline)
    while True:
        try:
            sock = reach(address)
            if sock is not None:
                with ExitStack() as undo:
                    undo.enter_context(sock)
                    _wait_connected(sock, deadline)
                    sock = undo.enter_context(secured(sock, tls, calls=True))
                    verify(sock, secret, "caller", Address.of(address).name, deadline)
                    undo.pop_all()
                    return sock
        except (EOFError, ConnectionError):  # it went away before it knew us
            gap.over()
        except TimeoutError:
            raise
        except OSError as error:
            gap.bear(error)
        if not deadline.left():
            raise TimeoutError
        time.sleep(min(nap := nap * 1.5, 0.05, deadline.left()))  # the kernel offers nothing to wait on


def _wait_connected(sock: socket.socket, deadline: Deadline) -> None:
    """Raise the OSError of a connection that was begun and failed; TimeoutError after the deadline."""
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    while not poll.poll(max(deadline.left(), 0.001) * 1000):
        if not deadline.left():
            raise TimeoutError
    finish(sock)


def finish(sock: socket.socket) -> None:
    """Raise the OSError of a connection that was begun and failed."""
    if number := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(number, os.strerror(number))


def reach(address: str, *, early: bool = True) -> socket.socket | None:
    """A non-blocking socket to who listens at `address`, which is connected when it can be written (`finish`). None
    while more callers wait there than may.

    An `early` caller gets None for a listener that is not there too, others a ConnectionRefusedError.
    """
    at = Address.of(address)
    with ExitStack() as undo:
        sock = undo.enter_context(socket.socket(at.family, socket.SOCK_STREAM))
        sock.setblocking(False)
        if at.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            sock.connect(at.place)
        except BlockingIOError as error:
            if error.errno != errno.EINPROGRESS:
                return None
        except ConnectionRefusedError:
            if not early:
                raise
            return None
        undo.pop_all()
    return sock


# ---- the proof ----


def peer_of(sock: socket.socket) -> tuple[int, int]:
    """The process id and the user id of who connected, or listened, at the other end of a Unix socket."""
    pid, uid, _ = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


def _proving(sock: socket.socket, secret: bytes, role: str, name: bytes | None) -> Generator[int, bytes, None]:
    """The proof of one end, "caller" or "host". Yields how many bytes must come next, and is sent these.

    What it says fits into the buffer of any socket that is new. `name` is the listener's; None: as the kernel tells it.
    """
    if sock.family == socket.AF_UNIX:
        _, uid = peer_of(sock)
        if uid != os.geteuid():
            raise RendezvousError(
                f"the other end belongs to user id {uid}, not to {os.geteuid()}: it is no part of this job"
            )
    other = {"caller": "host", "host": "caller"}[role]
    if name is None:
        told = sock.getpeername() if role == "caller" else sock.getsockname()
        name = told if isinstance(told, bytes) else told.encode()
    mine = os.urandom(16)
    sock.sendall(mine)
    theirs = yield 16
    sock.sendall(_digest(secret, role, name, mine, theirs))
    proof = yield 32
    if not hmac.compare_digest(proof, _digest(secret, other, name, theirs, mine)):
        raise RendezvousError(
            "the other end does not know this job's secret: it belongs to another job, or to another version of hocket"
        )


def _digest(secret: bytes, role: str, name: bytes, first: bytes, second: bytes) -> bytes:
    return hmac.digest(secret, first + second + role.encode() + b"\0" + name, "sha256")


class Handshake:
    """The proof over a non-blocking socket, step by step. It reads no byte beyond its own.

    Raises RendezvousError for another user or job, as soon as that shows.
    """

    def __init__(self, sock: socket.socket, secret: bytes, role: str, name: bytes | None = None) -> None:
        self._sock = sock
        self._proof = _proving(sock, secret, role, name)
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
                raise _hung_up(self._held)
            self.begun = True
            self._held += data
            if len(self._held) == self._needed:
                try:
                    held, self._held = self._held, b""
                    self._needed = self._proof.send(held)
                except StopIteration:
                    return True


def _hung_up(said: bytes | bytearray) -> Exception:
    """What it means that the other end closed the connection after it had said this."""
    return RendezvousError(NOT_HERE) if said.startswith(ALERT) else EOFError("the other end closed the connection")


def verify(sock: socket.socket, secret: bytes, role: str, name: bytes | None, deadline: Deadline) -> None:
    """Raise RendezvousError unless the other end is the same user and knows `secret`. Roles: "caller" and "host"; the
    name is the listener's."""
    proof = _proving(sock, secret, role, name)
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
            raise _hung_up(data)
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
    """The value in a frame. ValueError where there is none; an array is not made because its length is told, if that is
    more than anybody asks or answers."""
    return msgpack.unpackb(data, max_array_len=_MOST_PARTS, max_map_len=0, max_ext_len=0)


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
