"""`hocket plan draw`: pictures of an algorithm, and a page that plays it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ...plans.algorithms import plan
from ...plans.draw.scene import scene
from ...plans.draw.terminal import COPIED, FOLDED, diagram
from ...plans.plan import Plan
from .sizes import STDOUT, algorithms_of, places_of, ranks_of, the_root, told, written


def draw(
    collective: Annotated[str, typer.Argument(help="Such as all_reduce.")],
    algorithms: Annotated[
        str, typer.Argument(metavar="ALGORITHM,...", help="Such as ring, or mine.py:ring; several with commas.")
    ],
    size: Annotated[
        str, typer.Option("--size", "-n", metavar="N", help="Number of ranks. [default: 8, or that of a plan file]")
    ] = "",
    root: Annotated[int, typer.Option(min=0, help="For broadcast, reduce, scatter and gather.")] = 0,
    hosts: Annotated[
        str, typer.Option(metavar="RANKS,...", help="How many ranks each host has, instead of --size: 4,4,2.")
    ] = "",
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="A picture, of one algorithm; -: to stdout.")] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A page that plays all of them, step by step; -: to stdout.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The messages of each step, for programs.")] = False,
) -> None:
    """Draw what an algorithm sends: ranks from left to right, steps from top to bottom.

    In the terminal where no file is asked for. What ranks do not fit into is told in words. An algorithm need not be
    right to be drawn: `hocket plan check` says whether it is.

    Examples:

        hocket plan draw all_reduce ring -n 8

        hocket plan draw broadcast binomial_tree -n 16 --root 2 --svg tree.svg

        hocket plan draw all_reduce ring,two_shot,mine.py:ring -n 8 --html beside.html
    """
    places = places_of(hosts)
    chosen = algorithms_of(algorithms)
    counts = ranks_of(str(len(places)) if places else size, next(iter(chosen.values())), "8")
    if len(counts) > 1:
        raise typer.BadParameter("a picture is of one number of ranks: -n 8")
    the_root(collective, root, counts[0])
    if svg is not None and len(chosen) > 1:
        raise typer.BadParameter("--svg draws one algorithm; several side by side are for --html")
    if [svg, html].count(STDOUT) + as_json > 1:
        raise typer.BadParameter("only one thing can be written to stdout")
    plans = []
    for name, algorithm in chosen.items():
        with told(name):
            plans.append(plan(collective, algorithm, counts[0], root, places))
    with told(""):
        if svg is not None:
            from ...plans.draw.svg import svg as drawn

            written(svg, drawn(plans[0]))
        if html is not None:
            from ...plans.draw.player import page

            written(html, page(plans))
        if as_json:
            typer.echo(json.dumps([_for_programs(made) for made in plans]))
        elif svg is None and html is None:
            _in_terminal(plans)


def _for_programs(made: Plan) -> dict[str, Any]:
    drawn = [[message._asdict() for message in step] for step in scene(made).steps]
    head = {name: getattr(made, name) for name in ("collective", "algorithm", "size", "root", "chunks")}
    return {**head, "steps": drawn}


def _in_terminal(plans: Sequence[Plan]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for number, made in enumerate(plans):
        root = f", root {made.root}" if made.root else ""
        head = f"{made.collective} {made.algorithm} over {made.size} rank{'s' * (made.size > 1)}{root}"
        text = Text("\n" * (number > 0) + f"{head}\n\n{diagram(made, console.width)}")
        text.highlight_regex(f"{FOLDED}[^ ─│]*", "yellow")
        text.highlight_regex(f"{COPIED}[^ ─│]*", "cyan")
        console.print(text, soft_wrap=True)
