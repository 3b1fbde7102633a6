"""`hocket plan export`: a plan in a format that others read."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from ...bench.figures import parse_size
from ...plans.algorithms import plan
from ...plans.check import check
from ...plans.plan import Plan
from .sizes import algorithm_of, places_of, ranks_of, the_root, told, written


class Format(str, Enum):
    """What can be written."""

    msccl_xml = "msccl-xml"
    json = "json"
    goal = "goal"


def export(
    collective: Annotated[str, typer.Argument(help="Such as all_reduce.")],
    algorithm: Annotated[str, typer.Argument(help="Such as ring, mine.py:ring or plan.xml.")],
    file: Annotated[Path, typer.Argument(help="Where to; -: to stdout.")] = Path("-"),
    size: Annotated[
        str, typer.Option("--size", "-n", metavar="N", help="Number of ranks. [default: 4, or that of a plan file]")
    ] = "",
    form: Annotated[Format, typer.Option("--format", help="What to write.")] = Format.msccl_xml,
    root: Annotated[int, typer.Option(min=0, help="For broadcast, reduce, scatter and gather.")] = 0,
    hosts: Annotated[
        str, typer.Option(metavar="RANKS,...", help="How many ranks each host has, instead of --size: 4,4,2.")
    ] = "",
    nbytes: Annotated[str, typer.Option("--bytes", "-b", metavar="SIZE", help="Of the vector, for goal.")] = "1MiB",
    fold: Annotated[float, typer.Option(min=0, metavar="NS", help="To fold a byte, for goal: nanoseconds.")] = 0.0,
) -> None:
    """Write a plan as MSCCL's XML, as JSON, or as a GOAL schedule. It is proved first.

    `hocket plan import` reads XML and JSON, as does each command that takes an algorithm. docs/interchange.md tells
    what the formats hold and what they do not.

    Examples:

        hocket plan export all_reduce ring -n 8 ring.xml

        hocket plan export all_gather mine.py:tree -n 16 --format json tree.json

        hocket plan export all_reduce ring -n 64 --format goal --bytes 64MiB ring.goal
    """
    function, places = algorithm_of(algorithm), places_of(hosts)
    counts = ranks_of(str(len(places)) if places else size, function, "4")
    if len(counts) > 1:
        raise typer.BadParameter("a plan is of one number of ranks: -n 8")
    the_root(collective, root, counts[0])
    with told(algorithm):
        made = plan(collective, function, counts[0], root, places)
        check(made)
        text = _text(made, form, parse_size(nbytes), fold)
    written(file, text)


def _text(made: Plan, form: Format, nbytes: int, fold: float) -> str:
    if form is Format.json:
        return made.to_json() + "\n"
    if form is Format.goal:
        from ...plans.interchange.goal import goal

        return goal(made, nbytes, fold)
    from ...plans.interchange.msccl_write import msccl_xml

    return msccl_xml(made)
