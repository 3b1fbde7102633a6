"""`hocket status`: the groups that run on this machine, and what holds them up."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..observe.status import Status

STDOUT = Path("-")
LONGEST = 30.0  # seconds for py-spy


def status(
    pid: Annotated[int | None, typer.Argument(metavar="PID", help="Only the groups of that process.")] = None,
    watch: Annotated[
        float | None, typer.Option(min=0.0, metavar="SECONDS", help="Look again and again, until Ctrl-C.")
    ] = None,
    stacks: Annotated[bool, typer.Option("--stacks", help="Show where each process is, by py-spy.")] = False,
    as_json: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Also write all of it there, for programs; -: to stdout alone."),
    ] = None,
) -> None:
    """Show the groups of your processes on this machine, and which call each rank is in.

    Ranks that hold up the others come first: that died, are stopped, or are calls behind. It reads what each rank keeps
    in memory anyway: the job notices nothing, and there is nothing to switch on. Ranks of other hosts it does not see:
    run it on each of them.

    Exits with 1 where there is no group.

    Examples:

        hocket status

        hocket status 4711 --stacks

        hocket status --watch 2
    """
    try:
        found = _look(pid, as_json, stacks=stacks)
        while watch is not None:
            time.sleep(watch)
            if as_json != STDOUT:
                typer.echo()
            _look(pid, as_json, stacks=stacks)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    raise typer.Exit(0 if found else 1)


def _look(pid: int | None, as_json: Path | None, *, stacks: bool) -> bool:
    """Once. Whether there was a group."""
    from ..observe.status import look

    groups, notes = look()
    if pid is not None:
        groups = [group for group in groups if pid in group.pids()]
    if as_json != STDOUT:
        _show(groups, notes, pid, stacks=stacks)
    if as_json is not None:
        _write(groups, as_json)
    return bool(groups)


def _show(groups: Sequence[Status], notes: Sequence[str], pid: int | None, *, stacks: bool) -> None:
    from ..observe.status import headline, lines, sentence

    for note in notes:
        typer.echo(f"hocket status: {note}", err=True)
    if not groups:
        whose = "of your processes on this machine" if pid is None else f"of process {pid}"
        typer.echo(f"hocket status: no group {whose} was found", err=True)
    for group in groups:
        typer.echo(headline(group))
        for line in lines(group):
            typer.echo(f"  {sentence(line)}")
    if stacks:
        for one in dict.fromkeys(pid for group in groups for pid in group.pids()):
            typer.echo(_stack(one))


def _stack(pid: int) -> str:
    """What py-spy says of it, which does not stop the process."""
    from shutil import which

    command = which("py-spy") or which("py-spy", path=str(Path(sys.executable).parent))
    if command is None:
        return f"the stack of process {pid} is not shown: there is no py-spy here; pip install py-spy gets it"
    try:
        done = subprocess.run(
            [command, "dump", "--nonblocking", "--pid", str(pid)], capture_output=True, text=True, timeout=LONGEST
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the stack of process {pid} is not shown: {error}"
    if done.returncode != 0:
        return f"the stack of process {pid} is not shown: {done.stderr.strip()}"
    return done.stdout.strip()


def _write(groups: Sequence[Status], to: Path) -> None:
    text = json.dumps([_fields(group) for group in groups], indent=1) + "\n"
    if to == STDOUT:
        sys.stdout.write(text)
        return
    try:
        to.write_text(text)
    except OSError as error:
        typer.echo(f"hocket status: {to} cannot be written: {error.strerror}", err=True)
        raise typer.Exit(2) from None


def _fields(group: Status) -> dict[str, Any]:
    from ..observe.records import fields_of
    from ..observe.status import lines

    ranks = []
    for seen in group.seen:
        more = {"pid": seen.pid, "calls_per_second": seen.rate, "doing": seen.record.whereabouts()[0]}
        ranks.append({**fields_of(seen.record), **more})
    return {
        "group": group.group,
        "size": group.size,
        "lines": [line._asdict() for line in lines(group)],
        "ranks": ranks,
        "gone": group.gone,
        "elsewhere": group.elsewhere,
    }
