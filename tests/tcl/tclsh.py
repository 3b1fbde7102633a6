"""The two ways to run a script in Tcl, one of them in each Tcl that is here, and jobs of such scripts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from hocket.tcl import PACKAGE

HOCKET = [sys.executable, "-m", "hocket"]
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "HOCKET_")


@dataclass(frozen=True)
class Way:
    """How scripts are run: `command` in front of the script."""

    name: str
    command: list[str]

    def start(self, script: str, folder: Path, *more: str, ranks: int = 0, **environ: str) -> subprocess.Popen[str]:
        """Begin it, alone or as several ranks of `hocket run`, leading a process group of its own."""
        (file := folder / f"script{len(list(folder.iterdir()))}.tcl").write_text(script)
        return start([*launch(ranks), *self.command, str(file), *more], folder, environ)

    def run(self, script: str, folder: Path, *more: str, ranks: int = 0, **environ: str) -> tuple[int, str, str]:
        """Its exit code, output and errors."""
        return ended(self.start(script, folder, *more, ranks=ranks, **environ))


def launch(ranks: int) -> list[str]:
    """What comes in front of a command for so many ranks; nothing for none."""
    return [*HOCKET, "run", "-n", str(ranks)] if ranks else []


def start(command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> subprocess.Popen[str]:
    """A process in that folder, which finds hocket, and Tcl its package."""
    around = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    path = f"{Path(sys.executable).parent}:{around['PATH']}"
    given: dict[str, Any] = {**around, "PATH": path, "TCLLIBPATH": f"{{{PACKAGE}}}", **environ}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, env=given, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, process_group=0
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, output and errors, when it has ended."""
    try:
        out, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        raise
    return process.returncode, out, err


PLAIN = ["tclsh", *filter(shutil.which, ["tclsh9.0"])]
INSIDE = "hocket tclsh"


def way_of(name: str) -> Way:
    """That one; where the machine lacks what it takes, the test is skipped with a line that says so."""
    if name == "tclsh" and shutil.which("tclsh") is None:
        pytest.skip("there is no tclsh here: apt install tcl")
    if name == INSIDE and find_spec("_tkinter") is None:
        pytest.skip("this Python has no tkinter: apt install python3-tk")
    return Way(name, [*HOCKET, "tclsh"] if name == INSIDE else [name])
