"""`hocket show`: a plan's facts, counts and steps."""

from __future__ import annotations

from typing import Annotated

import typer

from ..plans.algorithms import ALGORITHMS, Algorithm, plan
from ..plans.algorithms.lanes import Places
from ..plans.check import check
from ..plans.collectives import find
from ..plans.count import bytes_per_host, count
from ..plans.draw import picture, steps
from ..plans.plan import Plan
from .sizes import algorithm_of, sizes, the_root, told


def show(
    collective: Annotated[str, typer.Argument(help="Such as all_reduce. Without it: all there are.")] = "",
    algorithm: Annotated[
        str, typer.Argument(help="Such as ring, or mine.py:ring for a function of yours. Without it: all there are.")
    ] = "",
    size: Annotated[
        str, typer.Option("--size", "-n", metavar="N|N-M", help="Number of ranks, or several: 1-64.")
    ] = "4",
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

        hocket show all_reduce mine.py:ring -n 1-64
    """
    places = _places(hosts)
    counts = sizes(str(len(places)) if places else size)
    the_root(collective, root, counts[0])
    if not algorithm:
        if len(counts) > 1:
            raise typer.BadParameter("several numbers of ranks are for one algorithm")
        _list(collective, counts[0], root, places)
        return
    function = algorithm_of(algorithm)
    with told(algorithm):
        if len(counts) > 1:
            _sweep(collective, function, counts, root)
            return
        made = plan(collective, function, counts[0], root, places)
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


def _list(collective: str, size: int, root: int, places: Places) -> None:
    """The algorithms of a collective, or of all."""
    from rich.console import Console
    from rich.table import Column, Table

    shown = ["rounds", "messages", "bytes/host" if places else "messages/rank", "bytes/rank"]
    columns = [Column(name, no_wrap=True) for name in (*([] if collective else ["collective"]), "algorithm", *shown)]
    title = f"{collective} over {size} ranks" if collective else f"{size} ranks"
    table = Table(*columns, title=title, box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ALGORITHMS:
        if collective in ("", name[0]):
            costs = _costs(plan(*name, size, root if find(name[0]).rooted else 0, places), places)
            table.add_row(*name[collective != "" :], *(costs[column] for column in shown))
    Console().print(table)


def _sweep(collective: str, algorithm: str | Algorithm, counts: range, root: int) -> None:
    """One algorithm over several numbers of ranks."""
    from rich.console import Console
    from rich.table import Column, Table

    shown = ["rounds", "steps", "messages", "messages/rank", "bytes/rank", "folded/rank"]
    columns = [Column(name, no_wrap=True) for name in ("ranks", *shown)]
    plans = [plan(collective, algorithm, size, root) for size in counts]
    table = Table(*columns, title=f"{collective} {plans[0].algorithm}", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for made in plans:
        check(made)
        costs = _costs(made, None)
        table.add_row(str(made.size), *(costs[column] for column in shown))
    Console().print(table)


def _show(made: Plan, places: Places) -> None:
    from rich.console import Console
    from rich.table import Table

    console, facts = Console(), check(made)
    table = Table("", "", show_header=False, title=f"{made.collective} {made.algorithm}, {made.size} ranks")
    for name, text in {"chunks": str(made.chunks), **_costs(made, places)}.items():
        table.add_row(name, text)
    for name in facts_of(made.collective):
        table.add_row(WORDS[name], "yes" if getattr(facts, name) else "no")
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


def facts_of(collective: str) -> list[str]:
    """The facts that say something of that collective."""
    spec = find(collective)
    says = {"in_place": True, "uneven": spec.transposed}
    return [name for name in WORDS if says.get(name, spec.reduces)]


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
