"""`hocket tclsh`: a script to `hocket.tcl.interpreter`."""

from __future__ import annotations

from typing import Annotated

import typer

# What comes behind the script belongs to the script, whatever it looks like.
SETTINGS = {"allow_interspersed_args": False, "ignore_unknown_options": True}


def tclsh(
    command: Annotated[
        list[str], typer.Argument(metavar="SCRIPT [ARGS]...", help="A script in Tcl, and its arguments.")
    ],
) -> None:
    """Run a Tcl script in this process, with hocket's commands.

    They are torch::distributed_all_reduce and so on; docs/tcl.md lists them. Any other tclsh has them after

        lappend auto_path [exec hocket tcl-path]; package require hocket

    Example:

        hocket run -n 4 hocket tclsh train.tcl
    """
    from ..tcl.interpreter import run

    try:
        run(command[0], command[1:])
    except ImportError as error:
        typer.echo(
            f"hocket tclsh: this Python has no tkinter ({error}): install it (on Debian and Ubuntu: apt install "
            "python3-tk), or use any tclsh (hocket tcl-path --help says how)",
            err=True,
        )
        raise typer.Exit(126) from None
