"""The groups of this user's processes on this machine, and what each of their ranks is in; those of others are `far`.

Nobody is asked: each rank keeps the memory file in which it says what it does open for as long as its group is, and
/proc shows it. It is read, not mapped, twice within a moment: a rank that got further meanwhile runs, and the others
stay where they are. Nothing in it is believed that does not fit together, and nothing is written.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from .._core import read_flight
from ..errors import HocketError
from ..words import named, spans
from .flight import DEAD, process_state, since
from .records import Record, record_of

MEMORY = "/memfd:hocket (deleted)"
BETWEEN = 0.1  # seconds between the two looks


@dataclass(frozen=True)
class Seen:
    """A rank: its record, the process that keeps it, as it is numbered there, how many calls it made in a second, on
    which other host it was seen, and where it is in Python, as far as that was asked."""

    record: Record
    pid: int
    rate: float = 0.0
    far: str = ""
    stack: str = ""


@dataclass(frozen=True)
class Status:
    """A group: its ranks that were seen, those that are dead or have left, with their pids, and those elsewhere."""

    group: str
    size: int
    seen: tuple[Seen, ...]
    gone: dict[int, int]
    elsewhere: tuple[int, ...]

    def pids(self) -> list[int]:
        """Of the processes that are there."""
        return [seen.pid for seen in self.seen]

    @property
    def hosts(self) -> list[str]:
        """Where they are."""
        return list(dict.fromkeys(seen.record.host for seen in self.seen))


class Line(NamedTuple):
    """What some ranks do alike; and on which host, where there are several."""

    ranks: list[int]
    pids: list[int]
    words: str
    host: str = ""


def look(between: float = BETWEEN, far: Sequence[Seen] = ()) -> tuple[list[Status], list[str]]:
    """All groups, those first whose ranks are apart, then the latest; and what could not be read, in sentences. With
    the ranks that were seen on other hosts, which may be this one."""
    before = {(seen.record.group, seen.record.rank): seen for seen in _ranks([])}
    time.sleep(between)
    notes: list[str] = []
    groups: dict[str, dict[int, Seen]] = defaultdict(dict)
    for seen in [*(_rated(seen, before) for seen in _ranks(notes)), *far]:
        members = groups[seen.record.group]
        if not members or next(iter(members.values())).record.size == seen.record.size:
            members.setdefault(seen.record.rank, seen)
    found = [_status(group, members) for group, members in groups.items()]
    return sorted(found, key=lambda status: (len(lines(status)) == 1, -(status.seen[0].record.formed or 0))), notes


def _rated(seen: Seen, before: Mapping[tuple[str, int], Seen]) -> Seen:
    record, earlier = seen.record, before.get((seen.record.group, seen.record.rank))
    if earlier is None or record.last <= earlier.record.last or record.condition:
        return seen
    calls, seconds = record.last - earlier.record.last, (record.at - earlier.record.at) / 1e9
    return replace(seen, rate=calls / max(seconds, 1e-9))


def _status(group: str, members: dict[int, Seen]) -> Status:
    pids = [max(known) for known in zip(*(seen.record.pids for seen in members.values()), strict=True)]
    absent = [rank for rank in range(len(pids)) if rank not in members]
    return Status(
        group,
        len(pids),
        tuple(members[rank] for rank in sorted(members)),
        {rank: pids[rank] for rank in absent if pids[rank]},
        tuple(rank for rank in absent if not pids[rank]),
    )


# ---- how they are found ----------------------------------------------------------------------------------------------


def _ranks(notes: list[str]) -> Iterator[Seen]:
    """Each once, whoever else holds its memory: a child has it too."""
    held: dict[tuple[int, int], list[tuple[int, Record]]] = defaultdict(list)
    for pid in _processes():
        for file in _memories(pid):
            with suppress(OSError):
                fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    about = os.fstat(fd)
                    found = read_flight(fd)
                except HocketError as error:
                    notes.append(f"process {pid} is passed over: {error}")
                    continue
                finally:
                    os.close(fd)
                if found is not None:
                    held[about.st_dev, about.st_ino].append((pid, record_of(found)))
    for holders in held.values():
        owners = [(pid, record) for pid, record in holders if record.pid in (pid, _inner(pid))]
        pid, record = (owners or holders)[0]
        state = process_state(pid) if owners else DEAD
        yield Seen(record._replace(condition=state), pid)


def _processes() -> list[int]:
    own, found = os.getuid(), []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == own:
                found.append(int(entry.name))
    return sorted(found)


def _memories(pid: int) -> list[Path]:
    found, seen = [], set()
    with suppress(OSError):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if os.readlink(file) == MEMORY and (inode := file.stat().st_ino) not in seen:  # noqa: PTH115 - no file
                    seen.add(inode)
                    found.append(file)
    return found


def _inner(pid: int) -> int:
    """As it is numbered in its own namespace, where that is another one."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return pid


# ---- in words --------------------------------------------------------------------------------------------------------


def headline(status: Status) -> str:
    """Which group this is."""
    hosts = ", ".join(status.hosts)
    formed = max((seen.record.formed or 0 for seen in status.seen), default=0)
    age = f", formed {(status.seen[0].record.at - formed) / 1e9:.0f} s ago" if formed else ""
    return f"group {status.group} of {status.size} rank{'s' * (status.size != 1)} on {hosts}{age}"


def lines(status: Status) -> list[Line]:
    """What its ranks do, those that hold up the others first: gone, stopped, behind, and of few before of many."""
    front = max((seen.record.last for seen in status.seen), default=0)
    classes: dict[tuple[Any, ...], list[Seen]] = defaultdict(list)
    for seen in status.seen:
        behind = seen.record.last if not seen.rate else front
        host = seen.record.host if len(status.hosts) > 1 else ""
        classes[not seen.record.condition, not _is_over(seen), behind, host, _words(seen)].append(seen)
    found = [
        Line([seen.record.rank for seen in those], [seen.pid for seen in those], _said(key[-1], those), key[-2])
        for key, those in sorted(classes.items(), key=lambda item: (item[0][:-2], len(item[1]), item[0][-2:]))
    ]
    gone = [
        Line([rank], [pid], f"is gone: it has left, or its process {pid} is dead") for rank, pid in status.gone.items()
    ]
    if status.elsewhere:
        where = "is on another host" if len(status.elsewhere) == 1 else "are on other hosts"
        found.append(Line([*status.elsewhere], [], f"{where}, or gone: hocket status --on HOST asks there"))
    return gone + found


def _is_over(seen: Seen) -> bool:
    return seen.record.left or bool(seen.record.error)


def _words(seen: Seen) -> str:
    record = seen.record
    condition = f"{record.condition}, " if record.condition else ""
    if seen.rate:
        return "making calls"
    if record.error:
        return f"{condition}out of it: {record.error.splitlines()[0]}"
    return condition + record.whereabouts()[0]


def _said(words: str, those: Sequence[Seen]) -> str:
    verb = "is" if len(those) == 1 else "are"
    if those[0].rate:
        rates = sorted(seen.rate for seen in those)
        last = max((seen.record for seen in those), key=lambda record: record.last).calls[-1]
        return f"{verb} {words}, {rates[-1]:,.0f} in a second, now {last}"
    if those[0].record.error or those[0].record.left:
        return f"{verb} {words}"
    calls = [seen.record.calls[-1] for seen in those if seen.record.calls]
    known = {call.waited_for for call in calls if call.left is None and call.waited_for is not None}
    whom = f", waiting for {named(sorted(known))}" if known else ""
    return f"{verb} {words}{since([seen.record for seen in those])}{whom}"


def sentence(line: Line) -> str:
    """One line of a group."""
    host = f" on {line.host}" if line.host else ""
    pids = f" (pid{'s' * (len(line.pids) > 1)} {spans(line.pids)}{host})" if line.pids else ""
    return f"{named(line.ranks)}{pids} {line.words}"
