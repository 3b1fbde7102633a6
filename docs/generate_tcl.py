"""Write docs/tcl.md: its table of commands from the functions behind them.

python docs/generate_tcl.py
"""

from __future__ import annotations

import inspect
from pathlib import Path

from hocket.tcl import distributed, tensors
from hocket.tcl.commands import Command
from hocket.tcl.script import COMMANDS

PAGE = Path(__file__).with_name("tcl.md")
BEGIN, END = "<!-- the table, by generate_tcl.py -->\n", "<!-- its end -->\n"
TITLES = {distributed.__name__: "Between ranks", tensors.__name__: "Tensors of one rank"}


def page() -> str:
    """The text of docs/tcl.md, with its table as it is to be."""
    head, _, rest = PAGE.read_text().partition(BEGIN)
    return head + BEGIN + table() + END + rest.partition(END)[2]


def table() -> str:
    """A part for each module of commands, and a row for each command."""
    parts = []
    for module, title in TITLES.items():
        rows = [row(command) for command in COMMANDS if command.function.__module__ == module]
        parts.append(
            "\n".join([f"\n### {title}\n", "| command | options beside these | gives |", "|---|---|---|", *rows])
        )
    return "\n".join(parts) + "\n\n"


def row(command: Command) -> str:
    """Its usage, the options that have no place, and its docstring; a pipe would end a cell."""
    only = [each.option for each in command.parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
    text = " ".join((command.function.__doc__ or "").split())
    also = [name for name in command.names[2:] if "_" in name or name == name.lower()]
    names = f" (also `torch::{'`, `torch::'.join(also)}`)" if also else ""
    return f"| `{command.usage}`{names} | {' '.join(f'`{option}`' for option in only)} | {text} |"


if __name__ == "__main__":
    PAGE.write_text(page())
