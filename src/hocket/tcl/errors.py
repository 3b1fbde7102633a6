"""What goes wrong in a command, as Tcl has it: a text, and an error code `HOCKET kind ...` that scripts can look at."""

from __future__ import annotations


class CommandError(Exception):
    """A command was used wrongly. `code` is the kind, and what it is about."""

    def __init__(self, text: str, *code: str) -> None:
        super().__init__(text)
        self.code = code


class TclError(Exception):
    """The error by which a script ended: what the other ranks are told."""


def invalid(text: str) -> CommandError:
    """An argument that makes no sense."""
    return CommandError(text, "InvalidArgument")


def code_of(error: BaseException) -> tuple[str, ...]:
    """The words of Tcl's errorCode. Of what Python and hocket raise, the kind is the name of its class."""
    return ("HOCKET", *(error.code if isinstance(error, CommandError) else (type(error).__name__,)))
