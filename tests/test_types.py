"""mypy knows what every call gives back, and what it does not take; and help() tells of a group's rank and size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

from hocket import Group
from hocket.arrays.ops import LOCATED, NAMES, OpName

SAMPLE = Path(__file__).parent / "typed.py"


def checked(text: str, folder: Path) -> list[str]:
    """What mypy says of a program. An ignore that nothing needs is an error, too."""
    (folder / "program.py").write_text(text)
    line = [sys.executable, "-m", "mypy", "--strict", "--no-pretty", "--cache-dir", str(folder / "cache"), "program.py"]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=240).stdout.splitlines()


def test_mypy_infers_what_calls_give_back(tmp_path: Path) -> None:
    assert checked(SAMPLE.read_text(), tmp_path) == ["Success: no issues found in 1 source file"]
    wrong = SAMPLE.read_text().replace("assert_type(group.scan(x), Floats)", "assert_type(group.scan(x), int)")
    first, *_ = checked(wrong, tmp_path)  # it does look
    assert "Expression is of type" in first


def test_operators_are_those_that_there_are() -> None:
    assert get_args(OpName) == (*NAMES, *LOCATED)


def test_help_tells_of_rank_and_size() -> None:
    for name in ("rank", "size"):
        assert isinstance(getattr(Group, name), property)
        assert getattr(Group, name).__doc__
