"""`hocket tcl-companion`: what the Tcl package starts."""

from __future__ import annotations


def tcl_companion() -> None:
    """Answer the commands of a Tcl script, which come through a pipe. The Tcl package starts it."""
    from ..tcl.companion import serve

    serve()
