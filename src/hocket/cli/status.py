"""`hocket status`: the groups that run on this machine and on others, and what holds them up."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..observe.there import SSH

if TYPE_CHECKING:
    from ..observe.status import Status

STDOUT = Path("-")
LONGEST = 30.0  # seconds for py-spy


def status(
    pid: Annotated[
        int | None, typer.Argument(metavar="PID", help="Only the groups of that process of this machine.")
    ] = None,
    on: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="Ask there too; several with commas, or several times.")
    ] = None,
    by: Annotated[
        str, typer.Option(metavar="COMMAND", help="What runs Python on a {host}.", show_default="ssh, with this Python")
    ] = SSH,
    watch: Annotated[
        float | None, typer.Option(min=0.0, metavar="SECONDS", help="Look again and again, until Ctrl-C.")
    ] = None,
    stacks: Annotated[bool, typer.Option("--stacks", help="Show where each process is, by py-spy.")] = False,
    as_json: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Also write all of it there, for programs; -: to stdout alone."),
    ] = None,
) -> None:
    """Show the groups of your processes, here and on other hosts, and which call each rank is in.

    Ranks that hold up the others come first: that died, are stopped, or are calls behind. It reads what each rank keeps
    in memory anyway: the job notices nothing, and there is nothing to switch on. Other hosts are asked by ssh, or by
    whatever runs a command there.

    Exits with 1 where there is no group.

    Examples:

        hocket status

        hocket status 4711 --stacks

        hocket status --watch 2 --on node2,node3

        hocket status --on worker-0,worker-1 --by "kubectl exec {host} -- python3"
    """
    hosts = [host for words in on or () for host in words.split(",") if host]
    try:
        found = _look(pid, hosts, by, as_json, stacks=stacks)
        while watch is not None:
            time.sleep(watch)
            if as_json != STDOUT:
                typer.echo()
            _look(pid, hosts, by, as_json, stacks=stacks)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    raise typer.Exit(0 if found else 1)


def _look(pid: int | None, hosts: Sequence[str], by: str, as_json: Path | None, *, stacks: bool) -> bool:
    """Once. Whether there was a group."""
    from ..observe.far import ask, fields
    from ..observe.status import look

    far, missed = ask(hosts, by, stacks=stacks)
    groups, notes = look(far=far)
    if pid is not None:
        groups = [group for group in groups if any(seen.pid == pid and not seen.far for seen in group.seen)]
    if stacks:
        stack = cache(_stack)  # of a process that may be in several groups
        groups = [
            replace(group, seen=tuple(s if s.far else replace(s, stack=stack(s.pid)) for s in group.seen))
            for group in groups
        ]
    for note in [*missed, *notes]:
        typer.echo(f"hocket status: {note}", err=True)
    if as_json != STDOUT:
        _show(groups, pid, hosts)
    if as_json is not None:
        _write([fields(group) for group in groups], as_json)
    return bool(groups)


def _show(groups: Sequence[Status], pid: int | None, hosts: Sequence[str]) -> None:
    from ..observe.status import headline, lines, sentence

    if not groups:
        where = f"on this machine{', nor on'.join(['', *[f' {host}' for host in hosts]])}"
        whose = f"of your processes {where}" if pid is None else f"of process {pid}"
        typer.echo(f"hocket status: no group {whose} was found", err=True)
    for group in groups:
        typer.echo(headline(group))
        for line in lines(group):
            typer.echo(f"  {sentence(line)}")
    for stack in dict.fromkeys(seen.stack for group in groups for seen in group.seen if seen.stack):
        typer.echo(stack)


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


def _write(groups: Sequence[dict[str, Any]], to: Path) -> None:
    text = json.dumps(groups, indent=1) + "\n"
    if to == STDOUT:
        sys.stdout.write(text)
        return
    try:
        to.write_text(text)
    except OSError as error:
        typer.echo(f"hocket status: {to} cannot be written: {error.strerror}", err=True)
        raise typer.Exit(2) from None
