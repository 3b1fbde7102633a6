"""`hocket plan list`: all algorithms there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from inspect import getdoc, getmodule
from textwrap import fill
from typing import Annotated

import typer

from ...plans.algorithms import ALGORITHMS, plan
from ...plans.algorithms.lanes import Places
from ...plans.check import check
from ...plans.collectives import COLLECTIVES, find
from .sizes import places_of, sizes, the_root, told
from .tables import MARKS, Row, facts_of, figures, shown

COLUMNS = ("rounds", "messages", "bytes/rank")
WIDTH = 78


def list(
    collective: Annotated[str, typer.Argument(help="Such as all_reduce. Without it: all there are.")] = "",
    size: Annotated[str, typer.Option("--size", "-n", metavar="N", help="Number of ranks.")] = "8",
    root: Annotated[int, typer.Option(min=0, help="For broadcast, reduce, scatter and gather.")] = 0,
    hosts: Annotated[
        str, typer.Option(metavar="RANKS,...", help="How many ranks each host has, instead of --size: 4,4,2.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show the algorithms of a collective, or of all: what each is, what it costs, and what is proved of it.

    Bytes are multiples of S, those of the whole vector; per rank means by the rank that sends most.

    Examples:

        hocket plan list

        hocket plan list all_reduce -n 64

        hocket plan list all_reduce --hosts 4,4,2 --json
    """
    places = places_of(hosts)
    counts = sizes(str(len(places)) if places else size)
    if len(counts) > 1:
        raise typer.BadParameter("several numbers of ranks are for one algorithm: hocket plan count")
    the_root(collective, root, counts[0])
    listed(collective, counts[0], root, places, as_json)


def listed(collective: str, size: int, root: int, places: Places, as_json: bool) -> None:
    """Print the algorithms of a collective, or of all where it is ""."""
    with told(""):
        rows = [*_rows(collective, size, root, places)]
    if as_json:
        import json

        typer.echo(json.dumps(rows))
        return
    columns = (*COLUMNS[:2], "bytes/host", *COLUMNS[2:]) if places else COLUMNS
    for name in [collective] if collective else COLLECTIVES:
        typer.echo(f"{name} over {size} rank{'s' * (size > 1)}\n")
        typer.echo(_line("algorithm", columns, "facts"))
        for row in (row for row in rows if row["collective"] == name):
            cells = shown(row)
            facts = "".join(mark for fact, (mark, _) in MARKS.items() if row["facts"].get(fact))
            typer.echo(_line(row["algorithm"], [cells[column] for column in columns], facts))
            typer.echo(fill(row["what"], WIDTH, initial_indent="    ", subsequent_indent="    "))
        typer.echo()
    typer.echo(fill("facts: " + ", ".join(f"{mark} {words}" for mark, words in MARKS.values()), WIDTH))


def _rows(collective: str, size: int, root: int, places: Places) -> Iterator[Row]:
    for name in ALGORITHMS:
        if collective in ("", name[0]):
            made = plan(*name, size, root if find(name[0]).rooted else 0, places)
            facts = check(made)
            about = (getdoc(getmodule(ALGORITHMS[name])) or "").splitlines()[0]
            head = {"collective": name[0], "algorithm": name[1], "what": about}
            yield {**head, **figures(made, places), "facts": {fact: getattr(facts, fact) for fact in facts_of(name[0])}}


def _line(name: str, cells: Iterable[str], facts: str) -> str:
    return f"{name:<20}" + "".join(f"{cell:>11}" for cell in cells) + f"  {facts}"
