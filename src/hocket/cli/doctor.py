"""`hocket doctor`: what on this machine, and on others, will make hocket slow or fail."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ..observe.there import SSH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..doctor.findings import Finding
    from ..doctor.report import Told

_COLOURS = ("green", "cyan", "yellow", "bold red")  # by level


def doctor(
    ranks: Annotated[
        int | None,
        typer.Option(
            "-n",
            min=1,
            metavar="N",
            help="How many ranks each host is to have.",
            show_default="its launcher's, else its cores",
        ),
    ] = None,
    nnodes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="On how many hosts.", show_default="those of --on, or 1")
    ] = None,
    on: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="Look there too; several with commas, or several times.")
    ] = None,
    by: Annotated[
        str, typer.Option(metavar="COMMAND", help="What runs Python on a {host}.", show_default="ssh, with this Python")
    ] = SSH,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also each thing that is well.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="All of it, for programs.")] = False,
) -> None:
    """Say what on this machine will make hocket slow or fail, why, and what to do about it.

    The worst comes first: a problem makes hocket fail, a warning makes it slow or less safe, and a note is for whoever
    looks for the last percents. Nothing is changed.

    With --on it looks on other hosts, too, compares their versions, and has each connect to all others of them, at a
    port that is open for that moment. List this host, too, where it is to have ranks.

    Exits with 1 where there is a problem, else 0.

    Examples:

        hocket doctor

        hocket doctor -n 8 --on node1,node2

        hocket doctor --on node1,node2 --by "ssh {host} HOCKET_SOCKET_IFNAME=ib0 .venv/bin/python"
    """
    from ..config import concerning
    from ..doctor.findings import Here, Level, most
    from ..doctor.hosts import ask, judge_versions, judge_ways, ways
    from ..doctor.report import Report, Told, fields, headline, merged, tally
    from ..doctor.settings import ranks_here

    hosts = list(dict.fromkeys(host for words in on or () for host in words.split(",") if host))
    variables = concerning()
    here = Report.of(Here(variables, ranks or ranks_here(variables), nnodes or max(len(hosts), 1)))
    reports = {"here": here}
    found: list[Finding] = []
    if hosts:
        answered, found = ask(hosts, by, ranks)
        reports |= {each.host: each for each in answered}
        found += judge_versions({name: each.versions for name, each in reports.items()})
        found += judge_ways(*ways([each.host for each in answered], by))
    between = [Told("hosts", each) for each in found]
    if as_json:
        there = {"hosts": [each.fields() for each in answered], "between": fields(between)} if hosts else {}
        typer.echo(json.dumps(here.fields() | there, indent=1))
    elif hosts and not verbose:
        titles = [headline(each, name) for name, each in reports.items()]
        _show([*titles, f"between the hosts: {tally(between)}"], [*between, *merged(reports)])
    else:
        for name, each in reports.items():
            _show([headline(each, name if hosts else "")], each.told, verbose=verbose)
        if hosts:
            _show([f"between the hosts: {tally(between)}"], between, verbose=True)
    worst = max([each.worst for each in reports.values()] + [most(found)])
    raise typer.Exit(int(worst is Level.PROBLEM))


def _show(titles: Sequence[str], told: Sequence[Told], *, verbose: bool = False) -> None:
    from rich.console import Console
    from rich.text import Text

    from ..doctor.report import lines

    console = Console(highlight=False)
    for title in titles:
        console.print(title, markup=False, style="bold", soft_wrap=True)
    for line in lines(told, console.width, verbose=verbose):
        colour = _COLOURS[line.level] if line.level is not None else ""
        console.print(Text.assemble((line.head, colour), line.text), soft_wrap=True)
