"""`hocket tcl-path`: where the Tcl package is."""

from __future__ import annotations

import typer


def tcl_path() -> None:
    """Print the folder of the Tcl package, for any tclsh, 8.6 or newer.

    In a script:

        lappend auto_path [exec hocket tcl-path]; package require hocket

    Or for all scripts, from a shell:

        export TCLLIBPATH="$(hocket tcl-path)"
    """
    from ..tcl import PACKAGE

    typer.echo(PACKAGE)
