"""`hocket flight`: what the flight recorders of all ranks tell of a job that failed."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..observe.records import Call, Record, Wait
from ..words import named

STDOUT = Path("-")


def flight(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", exists=True, file_okay=False, help="HOCKET_FLIGHT, in which ranks wrote theirs."),
    ],
    last: Annotated[int, typer.Option(min=1, metavar="N", help="How many calls of each rank the table shows.")] = 3,
    as_json: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Also write all of it there, for programs; -: to stdout alone."),
    ] = None,
) -> None:
    """Say who did what differently, from the records that ranks wrote when an error broke their group.

    Every rank keeps its last 1024 calls, always. With HOCKET_FLIGHT=DIR it writes them to a file there when an error
    breaks a group, and those of ranks of its host that cannot: that died, are stopped, or are busy elsewhere. Where the
    hosts of a job share no folder, copy their files into one first.

    Exits with 0 where all ranks did the same, 1 where some did not, 2 where there is nothing that can be read.

    Examples:

        HOCKET_FLIGHT=flight hocket run -n 4 train.py; hocket flight flight

        hocket flight flight --last 10 --json calls.json
    """
    from ..errors import HocketError
    from ..observe.flight import differences, read

    try:
        groups = [(records, differences(records)) for records in read(folder)]
        if as_json is not None:
            _write(groups, as_json)
    except (HocketError, OSError) as error:
        typer.echo(f"hocket flight: {error}", err=True)
        raise typer.Exit(2) from None
    if as_json != STDOUT:
        for records, findings in groups:
            _show(records, [finding.words for finding in findings], last)
    raise typer.Exit(1 if any(findings for _, findings in groups) else 0)


def _show(records: Sequence[Record], words: Sequence[str], last: int) -> None:
    size = records[0].size
    typer.echo(f"group {records[0].group} of {size} rank{'s' * (size != 1)}:")
    for sentence in words or [f"all did the same, up to {records[0].calls[-1] if records[0].calls else 'no call'}"]:
        typer.echo(f"  {sentence}")
    for error in dict.fromkeys(record.error for record in records if record.error):
        typer.echo(f"  the error: {error.splitlines()[0]}")
    for those in _alike(records, last):
        typer.echo(f"  the last calls of {named(_ranks(those))}, in seconds before the record was written:")
        for events in zip(*(_events(record, last) for record in those), strict=True):
            begun = [_seconds(record.at, _begun(event)) for record, event in zip(those, events, strict=True)]
            took = [_seconds(_ended(event), _begun(event)) for event in events]
            typer.echo(f"    {_range(begun):>16}  {events[0]}{_took(took)}{_end(events[0])}")
    typer.echo()


def _alike(records: Sequence[Record], last: int) -> list[list[Record]]:
    """Those that did the same last; few first."""
    classes: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for record in records:
        classes[tuple((str(event), _end(event)) for event in _events(record, last))].append(record)
    return sorted(classes.values(), key=len)


def _events(record: Record, last: int) -> list[Call | Wait]:
    """The last calls, and what was waited for since then."""
    calls: list[Call | Wait] = [*record.calls[-last:]]
    first = _begun(calls[0]) if calls else None
    waits = [wait for wait in record.waits[-last:] if (wait.begun or 0) >= (first or 0)]
    return sorted([*calls, *waits], key=lambda event: _begun(event) or 0)


def _begun(event: Call | Wait) -> int | None:
    return event.entered if isinstance(event, Call) else event.begun


def _ended(event: Call | Wait) -> int | None:
    return event.left if isinstance(event, Call) else event.ended


def _end(event: Call | Wait) -> str:
    if isinstance(event, Call) and event.failed:
        return ", failed" + (f", waiting for rank {event.waited_for}" if event.waited_for is not None else "")
    return "" if _ended(event) is not None else ", not over"


def _ranks(records: Iterable[Record]) -> list[int]:
    return [record.rank for record in records]


def _seconds(later: int | None, earlier: int | None) -> float | None:
    return None if later is None or earlier is None else max(0.0, (later - earlier) / 1e9)


def _range(times: Iterable[float | None]) -> str:
    found = [f"{time:.3f}" for time in sorted(time for time in times if time is not None)]
    return "?" if not found else found[0] if found[0] == found[-1] else f"{found[-1]} to {found[0]}"


def _took(times: Sequence[float | None]) -> str:
    found = [time for time in times if time is not None]
    if not found:
        return ""
    most = max(found)
    text = f"{most:.2f} s" if most >= 0.9995 else f"{most * 1e3:.1f} ms" if most >= 1e-3 else f"{most * 1e6:.1f} µs"
    return f", took {'up to ' * (len(times) > 1)}{text}"


def _write(groups: Sequence[tuple[list[Record], Sequence[Any]]], to: Path) -> None:
    from ..observe.records import fields_of

    found = [
        {
            "group": records[0].group,
            "size": records[0].size,
            "differences": [finding._asdict() for finding in findings],
            "ranks": [fields_of(record) for record in records],
        }
        for records, findings in groups
    ]
    text = json.dumps(found, indent=1)
    if to == STDOUT:
        sys.stdout.write(text + "\n")
    else:
        to.write_text(text + "\n")
