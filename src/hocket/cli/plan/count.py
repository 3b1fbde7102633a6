"""`hocket plan count`: what an algorithm costs, over several numbers of ranks."""

from __future__ import annotations

from typing import Annotated

import typer

from ...plans.algorithms import Algorithm, plan
from ...plans.check import check
from ...plans.plan import Plan
from .sizes import algorithms_of, ranks_of, the_root, told
from .tables import Row, figures, shown

COLUMNS = ("ranks", "rounds", "steps", "messages", "messages/rank", "bytes/rank", "folded/rank")


def count(
    collective: Annotated[str, typer.Argument(help="Such as all_reduce.")],
    algorithms: Annotated[
        str, typer.Argument(metavar="ALGORITHM,...", help="Such as ring, or mine.py:ring; several with commas.")
    ],
    size: Annotated[
        str,
        typer.Option(
            "--size",
            "-n",
            metavar="N,N-M",
            help="Number of ranks, or several: 1-64, or 2,4,8. [default: 1-16, or that of a plan file]",
        ),
    ] = "",
    root: Annotated[int, typer.Option(min=0, help="For broadcast, reduce, scatter and gather.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Count rounds, messages and bytes of an algorithm, from its moves. It is proved first.

    Bytes are multiples of S, those of the whole vector; per rank means by the rank that sends (or folds) most.

    Examples:

        hocket plan count all_reduce ring -n 1-64

        hocket plan count broadcast mine.py:tree,binomial_tree -n 3-8 --root 2 --json
    """
    chosen = algorithms_of(algorithms)
    counts = ranks_of(size, next(iter(chosen.values())), "1-16")
    the_root(collective, root, counts[0])
    counted(collective, chosen, counts, root, as_json)


def counted(
    collective: str, algorithms: dict[str, str | Algorithm | Plan], counts: list[int], root: int, as_json: bool
) -> None:
    """Print a table for each of the algorithms."""
    rows: dict[str, list[Row]] = {}
    for name, algorithm in algorithms.items():
        with told(name):
            for size in counts:
                made = plan(collective, algorithm, size, root)
                check(made)
                head = {"collective": collective, "algorithm": name}
                rows.setdefault(name, []).append({**head, **figures(made)})
    if as_json:
        import json

        typer.echo(json.dumps([row for those in rows.values() for row in those]))
        return
    from rich.console import Console
    from rich.table import Column, Table

    for name, those in rows.items():
        columns = [Column(column, no_wrap=True) for column in COLUMNS]
        table = Table(*columns, title=f"{collective} {name}", box=None, padding=(0, 2, 0, 0), pad_edge=False)
        for row in map(shown, those):
            table.add_row(*(row[column] for column in COLUMNS))
        Console(markup=False).print(table)
