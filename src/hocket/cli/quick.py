"""`hocket run` as it is typed most often, without what reads all other command lines.

```
hocket run [-n N] [--preload MODULES] [-m] PROGRAM [ARGS]...
```

The ranks wait for the launcher, and typer, with what it imports, takes twice as long as all the rest of it. So this is
read here, if it is right; help, other options and whatever is wrong are typer's, and errors have one voice.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple


class Plain(NamedTuple):
    """What such a command line says."""

    size: int
    module: bool
    preload: str | None
    command: list[str]


def size_of(text: str) -> int:
    """How many ranks: a number, or one per core. Raises ValueError for what is neither."""
    if text == "auto":
        return len(os.sched_getaffinity(0))
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise ValueError(f'"{text}" is neither a number of ranks, at least 1, nor "auto"')


def plain(words: Sequence[str]) -> Plain | None:
    """What the words behind `hocket` say, if they are of this form."""
    rest = list(words)
    if not rest or rest.pop(0) != "run":
        return None
    size, module, preload = "auto", False, None
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in ("-n", "--size") and rest:
            size = rest.pop(0)
        elif option == "--preload" and rest:
            preload = rest.pop(0)
        elif option in ("-m", "--module"):
            module = True
        else:
            return None
    try:
        return Plain(size_of(size), module, preload, rest) if rest else None
    except ValueError:
        return None


def run_quickly(words: Sequence[str]) -> int | None:
    """Run it, and return the exit code; None where it is for typer to read, and nothing was begun."""
    said = plain(words)
    if said is None:
        return None
    from ..errors import RendezvousError
    from ..launch.command import command_line, preloaded, reason, run_command

    try:
        argv = command_line(said.command, module=said.module)
        modules = preloaded(argv, said.preload)
    except ValueError:
        return None
    try:
        return run_command(argv, said.size, preload=modules)
    except (OSError, RendezvousError) as error:  # as in run
        print(f"hocket run: {reason(error)}", file=sys.stderr)
        return 126
