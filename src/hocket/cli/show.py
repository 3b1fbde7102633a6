"""`hocket show`: a plan's facts, counts and steps."""

from __future__ import annotations

from typing import Annotated

import typer

from ..plans.algorithms import ALGORITHMS, names, plan
from ..plans.check import check
from ..plans.collectives import COLLECTIVES
from ..plans.count import Counts, count
from ..plans.draw import picture, steps
from ..plans.plan import Plan


def show(
    collective: Annotated[str, typer.Argument(help="Such as all_reduce. Without it: all there are.")] = "",
    algorithm: Annotated[str, typer.Argument(help="Such as ring. Without it: all there are.")] = "",
    size: Annotated[int, typer.Option("--size", "-n", min=1, help="Number of ranks.")] = 4,
    root: Annotated[int, typer.Option(min=0, help="For broadcast, reduce, scatter and gather.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="The whole plan, for programs.")] = False,
) -> None:
    """Show what an algorithm does: what is proved of it, what it costs, and every step.

    Examples:

        hocket show all_reduce ring -n 4

        hocket show broadcast

        hocket show scatter binomial_tree -n 6 --root 2 --json
    """
    if not algorithm:
        _list(collective, size)
        return
    try:
        made = plan(collective, algorithm, size, root)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if as_json:
        typer.echo(made.to_json())
    else:
        _show(made)


def _list(collective: str, size: int) -> None:
    """The algorithms of a collective, or of all."""
    from rich.console import Console
    from rich.table import Column, Table

    if collective and not names(collective):
        raise typer.BadParameter(f"there is no collective {collective!r}; there are {', '.join(COLLECTIVES)}")
    shown = ("rounds", "messages", "messages/rank", "bytes/rank")
    columns = [Column(name, no_wrap=True) for name in ("collective", "algorithm", *shown)]
    table = Table(*columns, title=f"{size} ranks", box=None, padding=(0, 2, 0, 0))
    for name in ALGORITHMS:
        if collective in ("", name[0]):
            costs = _costs(count(plan(*name, size)))
            table.add_row(*name, *(costs[column] for column in shown))
    Console().print(table)


def _show(made: Plan) -> None:
    from rich.console import Console
    from rich.table import Table

    console, facts = Console(), check(made)
    table = Table("", "", show_header=False, title=f"{made.collective} {made.algorithm}, {made.size} ranks")
    for name, text in {"chunks": str(made.chunks), **_costs(count(made))}.items():
        table.add_row(name, text)
    for name, text in WORDS.items():
        if name == "in_place" or COLLECTIVES[made.collective].reduces:
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
}


def _costs(c: Counts) -> dict[str, str]:
    return {
        "rounds": str(c.rounds),
        "steps": str(c.steps),
        "messages": str(c.messages),
        "messages/rank": str(c.messages_per_rank),
        "bytes/rank": f"{float(c.bytes_per_rank):.3g} S",
        "folded/rank": f"{float(c.reduced_per_rank):.3g} S",
    }
