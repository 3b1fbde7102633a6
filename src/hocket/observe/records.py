"""What one rank did last, as it is read from its outbox, or from a file that was made of that.

A rank keeps it always (csrc/transport/outbox/recording.h); `flight` writes and compares such records, `status` reads
those of ranks that run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import HocketError

if TYPE_CHECKING:
    from .._core import FlightTuple

FORMAT = 1


class Call(NamedTuple):
    """One collective. Times are those of the host's clock of the day, in nanoseconds, here and below; None: it has
    not left, or nobody knows."""

    number: int
    kind: str  # its fingerprint, which is the same where ranks mean the same
    title: str
    entered: int | None
    left: int | None
    failed: bool
    waited_for: int | None  # last, as far as it waited
    place: str  # in the program, where it waited for long

    @property
    def name(self) -> str:
        """What it is called on every rank."""
        return f"{self.title or 'a call'} (call {self.number})"

    def __str__(self) -> str:
        return f"{self.name}{self.place and f' at {self.place}'}"


class Wait(NamedTuple):
    """One that lasted, outside of collectives: for a message, or for a root to tell."""

    title: str
    begun: int | None
    ended: int | None
    place: str

    def __str__(self) -> str:
        return f"{self.title}{self.place and f' at {self.place}'}"


class Record(NamedTuple):
    """Of one rank in one group, as it was at the time `at`. `pids` has all ranks of its host, 0 for others. `condition`
    is what a rank that wrote this for another one saw of that: "dead", "stopped", "busy elsewhere"."""

    group: str
    rank: int
    pid: int
    host: str
    formed: int | None
    pids: tuple[int, ...]
    left: bool
    error: str
    calls: tuple[Call, ...]
    waits: tuple[Wait, ...]
    at: int
    condition: str = ""

    @property
    def size(self) -> int:
        """Of the group."""
        return len(self.pids)

    @property
    def last(self) -> int:
        """The number of the last call that it entered."""
        return self.calls[-1].number if self.calls else 0

    def call(self, number: int) -> Call | None:
        """That one, if it is still known."""
        index = number - self.last - 1 + len(self.calls)
        if 0 <= index < len(self.calls) and self.calls[index].number == number:
            return self.calls[index]
        return next((call for call in self.calls if call.number == number), None)

    def whereabouts(self) -> tuple[str, int | None]:
        """What it is in, in words, and since when."""
        call = self.calls[-1] if self.calls else None
        if self.left:
            return "gone, having left the group", None
        if call is not None and call.left is None:
            return f"in {call}", call.entered
        if self.waits and self.waits[-1].ended is None:
            return f"in {self.waits[-1]}", self.waits[-1].begun
        if call is None:
            return "in no call of this group yet", self.formed
        return f"in no call, {f'having failed in {call}' if call.failed else f'after {call.name}'}", call.left


def record_of(found: FlightTuple) -> Record:
    """What was just read."""
    wall = time.time_ns()
    offset = wall - time.monotonic_ns()

    def when(nanoseconds: int) -> int | None:
        return nanoseconds + offset if nanoseconds else None

    group, rank, pid, host, formed, pids, left, reason, _, _, _, calls, waits = found
    return Record(
        f"{group:016x}",
        rank,
        pid,
        host,
        when(formed),
        tuple(pids),
        left,
        reason,
        tuple(
            Call(number, f"{kind:016x}", title, when(entered), when(gone), failed, _rank(peer), _place(place))
            for number, kind, title, entered, gone, failed, peer, place in calls
        ),
        tuple(Wait(title, when(begun), when(ended), _place(place)) for title, begun, ended, place in waits),
        wall,
    )


def _place(words: str) -> str:
    return words.removeprefix(" at ")


def _rank(peer: int) -> int | None:
    return peer if peer >= 0 else None


# ---- as files --------------------------------------------------------------------------------------------------------


def fields_of(record: Record) -> dict[str, Any]:
    """For JSON."""
    calls, waits = [call._asdict() for call in record.calls], [wait._asdict() for wait in record.waits]
    return {**record._asdict(), "pids": list(record.pids), "calls": calls, "waits": waits}


def dumped(record: Record) -> str:
    """As JSON."""
    return json.dumps({"hocket_flight": FORMAT, **fields_of(record)})


def load(file: Path) -> Record:
    """What `dumped` made. Raises HocketError, which says what is wrong with the file."""
    try:
        found = json.loads(file.read_text())
    except OSError as error:
        raise HocketError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise HocketError(f"{file} is damaged, or no flight record: it is not JSON") from None
    if not isinstance(found, dict) or "hocket_flight" not in found:
        raise HocketError(f"{file} is no flight record of hocket's")
    if found["hocket_flight"] != FORMAT:
        raise HocketError(f"{file} was written by another version of hocket: read it with that one")
    try:
        record = parsed(found)
    except (KeyError, TypeError, ValueError) as error:
        raise HocketError(f"{file} is damaged: what it says of {error} makes no sense") from None
    return record


def parsed(found: dict[str, Any]) -> Record:
    """What `fields_of` made. Raises KeyError, TypeError or ValueError for anything else."""
    record = Record(
        **{name: _is(found[name], str, name) for name in ("group", "host", "error", "condition")},
        **{name: _is(found[name], int, name) for name in ("rank", "pid")},
        left=_is(found["left"], bool, "left"),
        formed=_time(found["formed"]),
        at=_is(found["at"], int, "at"),
        pids=tuple(_is(pid, int, "pids") for pid in _is(found["pids"], list, "pids")),
        calls=tuple(map(_call, _is(found["calls"], list, "calls"))),
        waits=tuple(map(_wait, _is(found["waits"], list, "waits"))),
    )
    if not 0 <= record.rank < record.size:
        raise ValueError("rank")
    return record._replace(calls=tuple(sorted(record.calls)))


def _call(found: Any) -> Call:
    call = Call(**_is(found, dict, "calls"))
    _is(call.number, int, "number"), _is(call.failed, bool, "failed")
    _each((call.kind, call.title, call.place), str, "calls")
    if call.waited_for is not None:
        _is(call.waited_for, int, "waited_for")
    return call._replace(entered=_time(call.entered), left=_time(call.left))


def _wait(found: Any) -> Wait:
    wait = Wait(**_is(found, dict, "waits"))
    _each((wait.title, wait.place), str, "waits")
    return wait._replace(begun=_time(wait.begun), ended=_time(wait.ended))


def _time(found: Any) -> int | None:
    time: int | None = None if found is None else _is(found, int, "times")
    return time


def _each(found: Sequence[Any], kind: type, name: str) -> None:
    for each in found:
        _is(each, kind, name)


def _is(found: Any, kind: type, name: str) -> Any:
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
        raise ValueError(name)
    return found
