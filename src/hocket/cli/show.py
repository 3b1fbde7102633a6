"""`hocket show`: a plan's facts, counts and steps."""

from __future__ import annotations

from typing import Annotated

import typer

from ..plans.algorithms import ALGORITHMS, names, plan
from ..plans.algorithms.lanes import Places
from ..plans.check import check
from ..plans.collectives import COLLECTIVES
from ..plans.count import bytes_per_host, count
from ..plans.draw import picture, steps
from ..plans.plan import Plan


def show(
    collective: Annotated[str, typer.Argument(help="Such as all_reduce. Without it: all there are.")] = "",
    algorithm: Annotated[str, typer.Argument(help="Such as ring. Without it: all there are.")] = "",
    size: Annotated[int, typer.Option("--size", "-n", min=1, help="Number of ranks.")] = 4,
    root: Annotated[int, typer.Option(min=0, help="For broadcast, reduce, scatter and gather.")] = 0,
    hosts: Annotated[
        str, typer.Option(metavar="RANKS,...", help="How many ranks each host has, instead of --size: 4,4,2.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="The whole plan, for programs.")] = False,
) -> None:
    """Show what an algorithm does: what is proved of it, what it costs, and every step.

    Examples:

        hocket show all_reduce ring -n 4

        hocket show broadcast

        hocket show scatter binomial_tree -n 6 --root 2 --json

        hocket show all_reduce hierarchical --hosts 4,4,2
    """
    places = _places(hosts)
    size = len(places) if places else size
    if not algorithm:
        _list(collective, size, places)
        return
    try:
        made = plan(collective, algorithm, size, root, places)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if as_json:
        typer.echo(made.to_json())
    else:
        _show(made, places)


def _places(hosts: str) -> Places:
    """The host of each rank, from how many each has; None where nothing is said."""
    try:
        sizes = [int(size) for size in hosts.split(",")] if hosts else []
    except ValueError:
        sizes = [0]
    if any(size < 1 for size in sizes):
        raise typer.BadParameter(f"--hosts tells how many ranks each host has, such as 4,4,2, not {hosts!r}")
    return tuple(host for host, size in enumerate(sizes) for _ in range(size)) or None


def _list(collective: str, size: int, places: Places) -> None:
    """The algorithms of a collective, or of all."""
    from rich.console import Console
    from rich.table import Column, Table

    if collective and not names(collective):
        raise typer.BadParameter(f"there is no collective {collective!r}; there are {', '.join(COLLECTIVES)}")
    shown = ["rounds", "messages", "bytes/host" if places else "messages/rank", "bytes/rank"]
    columns = [Column(name, no_wrap=True) for name in (*([] if collective else ["collective"]), "algorithm", *shown)]
    title = f"{collective} over {size} ranks" if collective else f"{size} ranks"
    table = Table(*columns, title=title, box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ALGORITHMS:
        if collective in ("", name[0]):
            costs = _costs(plan(*name, size, places=places), places)
            table.add_row(*name[collective != "" :], *(costs[column] for column in shown))
    Console().print(table)


def _show(made: Plan, places: Places) -> None:
    from rich.console import Console
    from rich.table import Table

    console, facts = Console(), check(made)
    table = Table("", "", show_header=False, title=f"{made.collective} {made.algorithm}, {made.size} ranks")
    for name, text in {"chunks": str(made.chunks), **_costs(made, places)}.items():
        table.add_row(name, text)
    for name, text in WORDS.items():
        spec = COLLECTIVES[made.collective]
        if name == "in_place" or (spec.transposed if name == "uneven" else spec.reduces):
            table.add_row(text, "yes" if getattr(facts, name) else "no")
    console.print(table)
    for part in (picture(made), steps(made)):
        if part:
            console.print(f"\n{part}", markup=False, highlight=False, soft_wrap=True)


WORDS = {
    "in_place": "right in place",
    "same_everywhere": "same bits on every rank",
    "size_invariant": "same bits for every size of the vector",
    "rank_order": "folded in rank order",
    "uneven": "right for blocks of any sizes",
}


def _costs(made: Plan, places: Places) -> dict[str, str]:
    c = count(made)
    across = {"bytes/host": f"{float(bytes_per_host(made, places)):.3g} S"} if places else {}
    return {
        "rounds": str(c.rounds),
        "steps": str(c.steps),
        "messages": str(c.messages),
        "messages/rank": str(c.messages_per_rank),
        "bytes/rank": f"{float(c.bytes_per_rank):.3g} S",
        **across,
        "folded/rank": f"{float(c.reduced_per_rank):.3g} S",
    }
