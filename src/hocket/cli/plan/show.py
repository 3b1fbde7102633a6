"""`hocket plan show`: a plan's facts, counts and steps."""

from __future__ import annotations

from typing import Annotated

import typer

from ...plans.algorithms import plan
from ...plans.algorithms.lanes import Places
from ...plans.check import check
from ...plans.draw import picture, steps
from ...plans.plan import Plan
from .count import counted
from .list import listed
from .sizes import algorithm_of, places_of, ranks_of, the_root, told
from .tables import WORDS, facts_of, figures, shown


def show(
    collective: Annotated[str, typer.Argument(help="Such as all_reduce. Without it: all there are.")] = "",
    algorithm: Annotated[
        str, typer.Argument(help="Such as ring, or mine.py:ring for a function of yours. Without it: all there are.")
    ] = "",
    size: Annotated[
        str,
        typer.Option(
            "--size",
            "-n",
            metavar="N,N-M",
            help="Number of ranks, or several: 1-64, or 2,4,8. [default: 4, or that of a plan file]",
        ),
    ] = "",
    root: Annotated[int, typer.Option(min=0, help="For broadcast, reduce, scatter and gather.")] = 0,
    hosts: Annotated[
        str, typer.Option(metavar="RANKS,...", help="How many ranks each host has, instead of --size: 4,4,2.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="The whole plan, for programs.")] = False,
) -> None:
    """Show what an algorithm does: what is proved of it, what it costs, and every step.

    Without an algorithm as `hocket plan list`, and over several numbers of ranks as `hocket plan count`.

    Examples:

        hocket plan show all_reduce ring -n 4

        hocket plan show scatter binomial_tree -n 6 --root 2 --json

        hocket plan show all_reduce hierarchical --hosts 4,4,2

        hocket plan show all_reduce mine.py:ring
    """
    places = places_of(hosts)
    function = algorithm_of(algorithm)
    counts = ranks_of(str(len(places)) if places else size, function, "4")
    the_root(collective, root, counts[0])
    if not algorithm:
        if len(counts) > 1:
            raise typer.BadParameter("several numbers of ranks are for one algorithm")
        listed(collective, counts[0], root, places, as_json)
        return
    if len(counts) > 1:
        counted(collective, {algorithm: function}, counts, root, as_json)
        return
    with told(algorithm):
        made = plan(collective, function, counts[0], root, places)
        if as_json:
            typer.echo(made.to_json())
        else:
            shown_whole(made, places)


def shown_whole(made: Plan, places: Places = None) -> None:
    """Print facts, figures and steps of a plan."""
    from rich.console import Console
    from rich.table import Table

    console, facts = Console(markup=False), check(made)
    table = Table("", "", show_header=False, title=f"{made.collective} {made.algorithm}, {made.size} ranks")
    for name, text in shown(figures(made, places)).items():
        if name != "ranks":
            table.add_row(name, text)
    for name in facts_of(made.collective):
        table.add_row(WORDS[name], "yes" if getattr(facts, name) else "no")
    console.print(table)
    for part in (picture(made), steps(made)):
        if part:
            console.print(f"\n{part}", markup=False, highlight=False, soft_wrap=True)
