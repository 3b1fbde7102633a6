"""`hocket trace`: one timeline out of those of all ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def trace(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", exists=True, file_okay=False, help="HOCKET_TRACE, in which ranks wrote theirs."),
    ],
) -> None:
    """Put the timelines of all ranks into one file, DIR/trace.json, which https://ui.perfetto.dev opens.

    Every rank writes its own, DIR/rank-N.json, when it leaves its group, where HOCKET_TRACE=DIR is set. hocket run
    --trace DIR sets it, and does this too. Where the hosts of a job share no folder, copy their files into one first.

    Example:

        HOCKET_TRACE=timelines torchrun --nproc-per-node 4 train.py && hocket trace timelines
    """
    from ..errors import HocketError
    from ..observe.timeline import merge

    try:
        typer.echo(merge(folder))
    except HocketError as error:
        typer.echo(f"hocket trace: {error}", err=True)
        raise typer.Exit(1) from None


def merge_timelines(folder: Path) -> None:
    """The same, after a job that may have failed and left none."""
    from ..errors import HocketError
    from ..observe.timeline import merge

    try:
        merged = merge(folder)
        typer.echo(f"hocket run: the timeline is {merged}; https://ui.perfetto.dev opens it", err=True)
    except HocketError as error:
        typer.echo(f"hocket run: {error}", err=True)
