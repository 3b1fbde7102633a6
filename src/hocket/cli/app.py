"""All commands, with their options, help and errors."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class _Plain:
    """A command whose flags show no type in `--help`: they take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class _Group(_Plain, TyperGroup):
    pass


class _Command(_Plain, TyperCommand):
    pass


app = typer.Typer(
    name="hocket",
    cls=_Group,
    help="""Collective communication between processes.

    Run a program as four ranks, each of which finds the others with hocket.init():

        hocket run -n 4 train.py --epochs 3
    """,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

# Each a function of that name in the module of that name, or a folder with COMMANDS of its own.
COMMANDS = (
    *("run", "info", "doctor", "plan", "simulate", "choose", "tune", "bench", "trace", "flight", "status"),
    *("tclsh", "tcl_path", "tcl_companion"),
)
HIDDEN = ("tcl_companion",)  # nobody types it
MOVED = {"show": "plan.show", "check": "plan.check"}  # old names, which work and are told nowhere


def _version(wanted: bool) -> None:
    if wanted:
        from .._core import VERSION

        typer.echo(f"hocket {VERSION}")
        raise typer.Exit


@app.callback()
def _hocket(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print it and exit."),
) -> None:
    pass


def main() -> None:
    """Run the command line, and exit."""
    first = next((word for word in sys.argv[1:] if not word.startswith("-")), "").replace("-", "_")
    for name in [first] if first in (*COMMANDS, *MOVED) else COMMANDS:  # only what is asked for, as plans take NumPy
        _add(app, name, f"{__package__}.{MOVED.get(name, name)}")
    app(prog_name="hocket")


def _add(to: typer.Typer, name: str, path: str) -> None:
    """The command of that name, or the commands of a folder, where it is installed."""
    if find_spec(path) is None:
        return
    module = import_module(path)
    if hasattr(module, "COMMANDS"):
        group = typer.Typer(cls=_Group, help=module.__doc__, no_args_is_help=True, rich_markup_mode="markdown")
        for each in module.COMMANDS:
            _add(group, each, f"{path}.{each}")
        to.add_typer(group, name=name)
        return
    settings = getattr(module, "SETTINGS", None)
    command = to.command(
        name.rstrip("_").replace("_", "-"), cls=_Command, context_settings=settings, hidden=name in HIDDEN
    )
    command(getattr(module, name))
