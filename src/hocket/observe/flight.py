"""The files of flight recorders: who writes them, and what they tell together.

When an error breaks a group, and HOCKET_FLIGHT names a folder, each rank writes there what it did last; and what those
of its host did that cannot write any more, being dead or stopped, or that do not show themselves. These have files of
their own in the place of that, should they come to write one.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from .._core import Endpoint
from ..config.observed import flight_folder
from ..errors import HocketError
from ..words import lasting, named
from .records import Call, Record, dumped, load, record_of

DEAD, STOPPED, SILENT = "dead", "stopped", "busy elsewhere"


# ---- written ---------------------------------------------------------------------------------------------------------


def write(endpoint: Endpoint, rank: int, error: BaseException) -> None:
    """That of this rank, whose group `error` has broken, and of those that cannot. Never raises: the error counts."""
    folder = flight_folder()
    if folder is None:
        return
    try:
        found = endpoint.flight(rank)
        if found is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        own = record_of(found)._replace(error=str(error))
        _put(folder, own, instead=True)
        ranks = endpoint.survey(0.0, False)
        for peer, pid in enumerate(own.pids):
            if peer == rank or not pid or ranks[peer][4]:
                continue
            condition = process_state(pid) or (DEAD if ranks[peer][5] else SILENT if ranks[peer][6] else "")
            theirs = endpoint.flight(peer) if condition else None
            if theirs is not None:
                _put(folder, record_of(theirs)._replace(condition=condition), instead=False)
    except OSError as failure:
        print(f"hocket: the flight record cannot be written to {folder}: {failure.strerror}", file=sys.stderr)


def _put(folder: Path, record: Record, *, instead: bool) -> None:
    """Whole, or not at all. `instead` of one that others have written; else that one stays."""
    file = folder / f"flight-{record.group}-rank-{record.rank}.json"
    if not instead and file.exists():
        return
    begun = folder / f".{file.name}.{os.getpid()}"
    begun.write_text(dumped(record))
    try:
        if instead:
            begun.replace(file)
        else:
            with suppress(FileExistsError):
                file.hardlink_to(begun)
    finally:
        begun.unlink(missing_ok=True)


def process_state(pid: int) -> str:
    """DEAD or STOPPED; empty where it runs."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return DEAD
    except (OSError, IndexError):  # descriptors are used up: nobody knows
        return ""
    return {"Z": DEAD, "X": DEAD, "T": STOPPED, "t": STOPPED}.get(state, "")


# ---- read ------------------------------------------------------------------------------------------------------------


def read(folder: Path) -> list[list[Record]]:
    """The records in `folder`, by group and rank, the group that failed last first. Raises HocketError."""
    files = sorted(folder.glob("flight-*.json"))
    if not files:
        raise HocketError(
            f"there are no flight records in {folder}: a rank writes its own when an error breaks its group, "
            f"where HOCKET_FLIGHT={folder} is set"
        )
    groups: dict[str, dict[int, Record]] = defaultdict(dict)
    for file in files:
        record = load(file)
        group = groups[record.group]
        if record.rank in group or {each.size for each in group.values()} - {record.size}:
            raise HocketError(f"{file} does not fit the other records of its group: was it copied, or changed?")
        group[record.rank] = record
    found = [[group[rank] for rank in sorted(group)] for group in groups.values()]
    return sorted(found, key=lambda records: -max(record.at for record in records))


class Finding(NamedTuple):
    """What some ranks did that others did not, in words."""

    ranks: list[int]
    words: str


def differences(records: Sequence[Record]) -> list[Finding]:
    """Who did what differently from the others; those that are furthest behind first."""
    findings = _mismatches(records) + _behind(records) + _apart(records)
    missing = sorted(set(range(records[0].size)) - {record.rank for record in records})
    if missing:
        findings.append(Finding(missing, f"{named(missing)} wrote nothing"))
    return findings


def _mismatches(records: Sequence[Record]) -> list[Finding]:
    """Of the first call that ranks mean different things by."""
    common = min((record.last for record in records if record.last), default=0)
    oldest = max((record.calls[0].number for record in records if record.calls), default=1)
    for number in range(oldest, common + 1):
        kinds: dict[str, list[Record]] = defaultdict(list)
        for record in records:
            if (call := record.call(number)) is not None:
                kinds[call.kind].append(record)
        if len(kinds) > 1:
            fewest, *others = sorted(kinds.values(), key=len)
            parts = [f"{named(_ranks(those))} made {those[0].call(number)}" for those in (fewest, *others)]
            return [Finding(_ranks(fewest), ", but ".join([parts[0], "; ".join(parts[1:])]))]
    return []


def _behind(records: Sequence[Record]) -> list[Finding]:
    front = max(record.last for record in records)
    late: dict[tuple[int, str], list[Record]] = defaultdict(list)
    for record in records:
        if record.last < front:
            late[record.last, _now(record)[0]].append(record)
    findings = []
    for (last, words), those in sorted(late.items(), key=lambda item: (item[0][0], len(item[1]))):
        missed = next((call for record in records if (call := record.call(last + 1))), None)
        what = _titled(missed, records) if missed else f"call {last + 1}"
        it = "it is" if len(those) == 1 else "they are"
        text = f"{named(_ranks(those))} never entered {what}; {it} {words}{since(those)}"
        findings.append(Finding(_ranks(those), text))
    return findings


def _apart(records: Sequence[Record]) -> list[Finding]:
    """Of those in the last call some may have left it, or have stayed in it when others gave it up."""
    front = max(record.last for record in records)
    ways: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        call = record.call(front) if front else None
        if call is not None:
            ended = "still in" if call.left is None else "failed in" if call.failed else "through with"
            ways[f"{_condition(record)}{ended}"].append(record)
    if len(ways) < 2:
        return []
    parts = []
    rank_of = sorted(ways.items(), key=lambda item: (len(item[1]), item[0]))
    for way, those in rank_of:
        verb = "" if way == "failed in" else "is " if len(those) == 1 else "are "
        lasts = since(those) if way.endswith("still in") else ""
        parts.append(f"{named(_ranks(those))} {verb}{way} {_titled(those[0].call(front), those)}{lasts}")
    return [Finding(_ranks(rank_of[0][1]), ", but ".join(parts))]


def _titled(call: Call | None, those: Sequence[Record]) -> str:
    """With the place only where that is one for all of them."""
    if call is None:
        return "a call"
    places = {other.place for record in those if (other := record.call(call.number)) and other.place}
    return str(call._replace(place=places.pop() if len(places) == 1 else ""))


def _now(record: Record) -> tuple[str, int | None]:
    words, begun = record.whereabouts()
    return _condition(record) + words, begun


def _condition(record: Record) -> str:
    return f"{record.condition}, " if record.condition else ""


def since(those: Sequence[Record]) -> str:
    """For how long they have been in what they are in."""
    begun = [(record.at, record.whereabouts()[1]) for record in those]
    return lasting([max(0.0, (at - when) / 1e9) for at, when in begun if when is not None])


def _ranks(records: Sequence[Record]) -> list[int]:
    return [record.rank for record in records]
