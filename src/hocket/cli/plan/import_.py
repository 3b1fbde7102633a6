"""`hocket plan import`: a plan that others published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...plans.check import check
from ...plans.interchange import read_plan
from .show import shown_whole
from .sizes import told


def import_(
    file: Annotated[Path, typer.Argument(help="MSCCL's XML, JSON of hocket plan export, or a GOAL schedule.")],
    root: Annotated[
        int | None,
        typer.Option(min=0, help="Of an XML that tells none: 0 by default. A schedule with one is a broadcast."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The whole plan, for programs.")] = False,
) -> None:
    """Read a plan that others published, prove it, and show what it does.

    Exits with 1 where it is wrong, and says why: what is missing or comes twice, what is read before it is written, who
    waits for whom in a circle, and which steps nothing orders; with gpu, tb and step.

    A schedule (.goal) says nothing of the data: what is proved is that every rank hears of every other, as in a
    barrier, or, with --root, of that one.

    Examples:

        hocket plan import allreduce_ring.xml

        hocket plan import allreduce_ring.xml --json > ring.json

        hocket plan import trace.goal
    """
    if not file.is_file():
        raise typer.BadParameter(f"there is no file {file}")
    try:
        made = read_plan(file, root)
        check(made)
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        typer.echo(f"{file} is wrong: {str(error).removeprefix(f'{file.name}: ')}", err=True)
        raise typer.Exit(1) from error
    with told(str(file)):
        if as_json:
            typer.echo(made.to_json())
        else:
            shown_whole(made)
