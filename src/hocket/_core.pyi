"""The native core. Private: addresses are integers, and nothing is checked."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

# Of a rank's outbox: group, rank, pid, host, when it was formed, all pids; whether it left, why it broke; whom it waits
# for, in what, since when; its calls and its waits. Times are those of CLOCK_MONOTONIC, in nanoseconds; 0: none.
CallTuple = tuple[int, int, str, int, int, bool, int, str]
WaitTuple = tuple[str, int, int, str]
FlightTuple = tuple[int, int, int, str, int, list[int], bool, str, int, str, int, list[CallTuple], list[WaitTuple]]

class Failure(RuntimeError):
    """`args` are the kind (csrc/wait/wait.h), the peer, the text, and whether another rank found it."""

class Custom:
    """`function(a, b, out)`, for elements of `dtype`."""

    def __init__(self, function: Callable[..., Any], dtype: np.dtype[Any], elementwise: bool, raises: bool) -> None: ...

class Program:
    def __init__(
        self,
        sends: Sequence[tuple[int, int, int, int, int, list[int], int, bool, bool, int, bool]],
        receives: Sequence[tuple[int, int, int, int, Sequence[tuple[int, int, int, int]], bool, list[int], int]],
        unheard: list[int],
        untold: list[int],
        segment: int,
        tmp_bytes: int,
        itemsize: int,
        divisor: int,
        signals: bool,
        exposed: bool,
        writers: int,
        dtype: int,
        op: int,
        custom: Custom | None,
        text: str,
        meter: Meter,
        bytes: int,
        trace: Trace | None,
        group: int,
    ) -> None: ...

class Trace:
    """When calls were made, the first `most` of them."""

    def __init__(self, most: int) -> None: ...
    def add(self, title: str, group: int, begun: int, failed: bool) -> None:
        """Something that began then, in nanoseconds of the monotonic clock, and has just ended."""

    @property
    def events(self) -> list[tuple[str, int, int, int, int, bool]]:
        """The call, its group, when it began by the monotonic clock, how long it took and waited (all in nanoseconds),
        and whether it failed."""

    @property
    def dropped(self) -> int: ...

class Traffic:
    """What calls moved to and from each of `size` peers."""

    def __init__(self, size: int) -> None: ...
    def of(self, peer: int) -> tuple[int, int]:
        """Bytes sent and received."""

class Meter:
    """What calls of one kind have cost, and of the vectors they were for; the seconds are estimates."""

    def __init__(self, traffic: Traffic) -> None: ...
    @property
    def calls(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def waiting(self) -> float: ...

class Endpoint:
    def __init__(
        self,
        rank: int,
        fds: list[int],
        sockets: list[int],
        pidfds: list[int],
        events: list[int],
        slots: int,
        arena: int,
        crowd: int,
        pipes: list[Pipe | None],
        checked: bool,
        life: float,
    ) -> None: ...
    @staticmethod
    def outbox_bytes(size: int, slots: int, arena: int) -> int: ...
    @property
    def arena(self) -> int: ...
    def give_back(self, begin: int, bytes: int) -> None: ...
    def stage_all(self) -> None:
        """From now on nothing is lent or offered."""

    def offer_all(self) -> None:
        """From now on all is offered that can be, and nothing is tried out."""

    def end(self, kind: int, peer: int, text: str) -> None: ...
    def say_where(self, attempt: int, formed: bool, card: bytes) -> None: ...
    @property
    def absence(self) -> float: ...
    def notes(self) -> list[tuple[int, bool, bytes]]: ...
    def absent(self) -> list[int]: ...
    def settle(
        self, round: int, failed: bool, text: str, lost: Sequence[int], patience: float
    ) -> tuple[bool, list[int]]: ...
    @property
    def completed(self) -> int: ...
    def outcome(self) -> tuple[int, int, str, list[int], int, int, str] | None: ...
    def look(self, peer: int, within: float) -> None: ...
    def survey(self, patience: float, asks: bool) -> list[tuple[str, float, int, str, bool, bool, bool]]:
        """By rank: what it waits in, for how many seconds, its last call, what that is, and whether it left, is gone,
        is silent. Who `asks` since its call failed gets a Failure raised that another rank told first."""

    def sign(self, group: int, host: str, pids: list[int]) -> None: ...
    def flight(self, rank: int) -> FlightTuple | None: ...
    def leave(self) -> None: ...
    def close(self) -> None: ...
    def disown(self) -> None: ...
    def disconnect(self, for_all: bool) -> None: ...

class Credentials:
    def __init__(self, certificate: str, key: str, authority: str) -> None: ...

class Pipe:
    def __init__(self, socket: int) -> None: ...

class Stripes(Pipe):
    def __init__(self, pipes: list[Pipe]) -> None: ...

class Fallback(Pipe):
    def __init__(self, ways: list[Pipe], patience: float) -> None: ...
    @property
    def way(self) -> int: ...

class UcxContext:
    def __init__(self, path: str, transports: str) -> None: ...
    @property
    def version(self) -> str: ...
    @property
    def path(self) -> str: ...

class Ucx(Pipe):
    def __init__(self, context: UcxContext, socket: int) -> None: ...
    def address(self) -> bytes: ...
    def connect(self, address: bytes) -> bool: ...
    def greeted(self) -> bool: ...
    def transports(self) -> str: ...
    def close(self) -> None: ...

class Tls(Pipe):
    def __init__(self, credentials: Credentials, socket: int, calls: bool) -> None: ...
    def read(self, most: int) -> bytes | None: ...
    def write(self, data: bytes) -> int: ...
    def flush(self) -> bool: ...

class Request:
    @property
    def over(self) -> bool: ...
    @property
    def error(self) -> BaseException | None: ...
    @property
    def text(self) -> str: ...
    @property
    def writes(self) -> bool:
        """Whether it may write to memory of the caller's while it is in flight."""

    def wait(self, timeout: float | None = None) -> Any: ...

class Requests:
    work: type[Any]
    def __init__(self) -> None: ...
    def put(self, function: Callable[[], Any], text: str) -> Any: ...
    def inside(self, function: Callable[[], Any], seconds: float) -> Any: ...
    def claim(self) -> bool: ...
    def serve(self) -> None: ...
    def stop(self) -> None: ...
    def dismiss(self) -> None: ...
    @property
    def elsewhere(self) -> bool: ...
    @property
    def busy(self) -> bool: ...

class Prepared:
    """A call that needs only to be made. Without `deliver`, `result` is what it gives. `given`: `out` is memory that
    the caller has; `protects`: it is written when the call has been made."""

    def __init__(
        self,
        program: Program,
        fingerprint: int,
        inp: int,
        out: int,
        given: bool,
        protects: bool,
        alive: Any,
        result: Any,
        deliver: Callable[[], Any] | None,
    ) -> None: ...

class Session:
    fast: int
    slow: int
    enabled: bool
    seconds: float
    protects: bool
    def __init__(
        self,
        endpoint: Endpoint,
        requests: Requests,
        fail: Callable[[BaseException | None, float, str, bool], NoReturn],
        place: Callable[[], str],
    ) -> None: ...
    def call(self, prepared: Prepared, within: float, spent: float) -> Any: ...
    def begin(self, prepared: Prepared, within: float, spent: float) -> Any: ...
    def run(self, prepared: Prepared, within: float, spent: float) -> Any: ...
    def exchange(
        self,
        prepared: Prepared,
        each: int,
        given: list[bytes],
        count: int,
        within: float,
        rest: Callable[[float], Any],
    ) -> Any: ...
    def learn(self, peer: int, text: str, within: float) -> str: ...
    def remember(
        self,
        method: int,
        x: Any,
        op: Any,
        out: Any,
        root: int,
        algorithm: Any,
        meaning: tuple[Any, ...] | None,
        any_order: bool,
        protects: bool,
        prepared: Prepared,
        learns: int,
    ) -> None: ...
    def release(self) -> None: ...
    @property
    def forked(self) -> bool: ...
    @property
    def inside(self) -> bool: ...

class Persistent:
    """A call that was prepared, and is made by calling this. See Group.all_reduce_init."""

    def __init__(self, session: Session, prepared: Prepared | None, again: Callable[[], Any]) -> None: ...
    def __call__(self) -> Any: ...

ATTEMPTS: int
VERSION: str  # of hocket
FORKED: str

class MessageRequest:
    @property
    def over(self) -> bool: ...
    @property
    def text(self) -> str: ...
    @property
    def source(self) -> int: ...
    @property
    def writes(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> Any: ...

class Messages:
    """`dtypes` are those that messages may have; `explain(failure, text, seconds, touched)` makes public errors.
    What begins a message gives back a MessageRequest or, where it `waits`, the result. Without `quick` no message goes
    the fast path."""

    quick: bool
    fast: int
    slow: int
    def moved(self, peer: int) -> tuple[int, int, int, int]:
        """Messages and bytes sent to it, and received from it."""

    def __init__(
        self,
        session: Session,
        dtypes: list[np.dtype[Any]],
        explain: Callable[[Failure, str, float, bool], BaseException],
    ) -> None: ...
    def send(self, x: Any, to: int, tag: int, text: str, seconds: float, waits: bool, pickled: bool) -> Any: ...
    def receive(
        self,
        source: int,
        tag: int,
        memory: Any,
        array: Any,
        out: Any,
        text: str,
        seconds: float,
        waits: bool,
        sourced: bool,
    ) -> Any: ...
    def receive_new(
        self, source: int, tag: int, text: str, seconds: float, waits: bool, sourced: bool, pickled: bool
    ) -> Any: ...
    def probe(self, source: int, tag: int, text: str, seconds: float, waits: bool) -> tuple[int, str, int] | None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...

def fast_path(method: int, function: Callable[..., Any]) -> Callable[..., Any]: ...
def read_flight(fd: int) -> FlightTuple | None: ...
def fold(dtype: int, op: int, isa: int, to: int, also: int, sources: list[int], count: int, divisor: int) -> None: ...
def supported(dtype: int, op: int) -> bool: ...
def isas() -> list[int]: ...
def kernels() -> str: ...
def prefer_node(fd: int, bytes: int, node: int) -> bool: ...
