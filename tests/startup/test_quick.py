"""The command line that is read without typer means what typer takes it for."""

from __future__ import annotations

import os
import sys
from itertools import product
from typing import Any

import pytest
from launching import Hocket

from hocket.cli import app, quick
from hocket.cli.quick import Plain, plain

OPTIONS = (
    [],
    ["-n", "2"],
    ["--size", "auto"],
    ["-m"],
    ["--module", "-n", "3"],
    ["-n", "4", "--size", "1"],
    ["--preload", "numpy,json", "-m"],
)
PROGRAMS = (["true"], ["true", "-n", "5"], ["json", "--", "--help"], ["true", "--timeout=1", "-m"])


def test_what_it_reads_typer_reads_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[tuple[list[str], int, list[str]]] = []

    def run_command(argv: list[str], size: int, preload: list[str], **options: Any) -> int:
        assert not {name for name, value in options.items() if value and name != "grace"}
        jobs.append((argv, size, preload))
        return 7

    monkeypatch.setattr("hocket.launch.command.run_command", run_command)
    for options, program in product(OPTIONS, PROGRAMS):
        line = ["run", *options, *program]
        if program[0] == "json" and not {"-m", "--module"} & {*options}:
            continue  # there is no such program
        jobs.clear()
        assert quick.run_quickly(line) == 7
        monkeypatch.setattr(sys, "argv", ["hocket", *line])
        with pytest.raises(SystemExit, match="7"):
            app.main()
        first, second = jobs
        assert first == second, line


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run -n 3 -m pack.age -n 5 --help", Plain(3, True, None, ["pack.age", "-n", "5", "--help"])),
        ("run --size 1 true -- x", Plain(1, False, None, ["true", "--", "x"])),
        ("run --preload a,b.c -m x", Plain(len(os.sched_getaffinity(0)), True, "a,b.c", ["x"])),
        ("run -n 2 --preload", None),
        ("run -n 2", None),
        ("run -n", None),
        ("run", None),
        ("", None),
        ("run -n 0 true", None),
        ("run -n 2 --timeout 5 true", None),
        ("run --help", None),
        ("info -n 2 true", None),
        ("-n 2 run true", None),
    ],
)
def test_what_it_reads(line: str, said: Plain | None) -> None:
    assert plain(line.split()) == said


def test_what_is_wrong_is_said_by_typer(hocket: Hocket) -> None:
    for words in (
        ("-n", "0", "true"),
        ("-n", "2", "nowhere.py"),
        ("-n", "1", "no-such-program-at-all"),
        ("--preload", "numpy", "true"),
    ):
        done = hocket.run("run", *words)
        assert done.returncode == 2
        assert "Usage: hocket run" in done.stderr
