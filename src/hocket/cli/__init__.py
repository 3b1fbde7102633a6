"""The command `hocket`. Each command is a thin page of its own: it reads options, calls the library and prints."""

from __future__ import annotations

import sys

from .quick import run_quickly


def main() -> None:
    """Run the command line, and exit."""
    code = run_quickly(sys.argv[1:])
    if code is None:
        from .app import main as command_line

        command_line()
    sys.exit(code)
