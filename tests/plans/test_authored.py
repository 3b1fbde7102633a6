"""Algorithms in a file of the user's: what commands make of them, and what is said of mistakes in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hocket.cli.plan.check import check
from hocket.cli.plan.show import show
from hocket.plans.algorithms import plan
from hocket.plans.authored import authored
from hocket.plans.plan import Plan

TEXT = """\
import numpy as np
from hocket.plans import copy, inp, out, reduce
from beside import HOPS


def ring(n):
    c = np.arange(n)
    for hop in range(HOPS * n - 2):
        here, there = (c + hop) % n, (c + hop + 1) % n
        yield (reduce if hop < n - 1 else copy)(out(there, c), out(here, c))


def up_to_three(n):
    if n > 3:
        return
    yield from ring(n)


def fails(n):
    yield copy(out(1), inp(0))
    yield [copy][n]


def beyond(n):
    yield copy(out(np.arange(1, n)), inp(0))
    yield ()
    yield copy(out(n), inp(0))


def unwritten(n):
    yield copy(
        out(0), inp(0))
    yield copy(out(1), out(2))


number = 7
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a file with TEXT, in the folder where we are."""
    (tmp_path / "mine.py").write_text(TEXT)
    (tmp_path / "beside.py").write_text("HOPS = 2")
    (tmp_path / "torn.py").write_text("def ring(n):\n    yield (\n")
    (tmp_path / "late.py").write_text("import numpy\n\nnumpy.nothing\n")
    monkeypatch.chdir(tmp_path)
    return "mine.py"


def run(command: Callable[..., None], *arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "300", "NO_COLOR": "1", "TERM": "dumb"})
    return result.exit_code, result.output


def line(words: str) -> int:
    return next(number for number, text in enumerate(TEXT.splitlines(), 1) if words in text)


def test_it_is_the_function(mine: str) -> None:
    for path in (mine, str(Path(mine).absolute())):
        assert plan("all_reduce", authored(f"{path}:ring"), 5).to_json() == plan("all_reduce", "ring", 5).to_json()
    assert authored("ring") == "ring"


def test_show(mine: str) -> None:
    code, text = run(show, "all_reduce", f"{mine}:ring", "-n", "3", "--json")
    assert code == 0
    assert Plan.from_json(text) == plan("all_reduce", "ring", 3)
    code, text = run(show, "all_reduce", f"{mine}:ring", "-n", "1-4")
    assert code == 0
    rows = [row.split()[:4] for row in text.splitlines()[-4:]]
    assert rows == [["1", "0", "0", "0"], ["2", "2", "2", "4"], ["3", "4", "4", "12"], ["4", "6", "6", "24"]]


def test_check(mine: str) -> None:
    code, text = run(check, "all_reduce", f"{mine}:ring", "-n", "1-64")
    assert code == 0
    said = [row.strip() for row in text.splitlines()]
    assert said == [
        "all_reduce mine.py:ring over 1-64 ranks is right",
        "right in place: yes",
        "same bits on every rank: yes",
        "same bits for every size of the vector: over 1 rank",
        "folded in rank order: over 1 rank",
    ]
    code, text = run(check, "all_reduce", f"{mine}:up_to_three")
    assert code == 1
    assert text.startswith("all_reduce mine.py:up_to_three over 4 ranks is wrong: ")
    assert "contribution" in text


def test_check_of_the_book() -> None:
    code, text = run(check, "scatter", "-n", "2-3", "--root", "1")
    assert code == 0
    assert text.splitlines()[0] == "scatter direct over 2, 3 ranks is right"
    assert "scatter binomial_tree over 2, 3 ranks is right" in text
    for arguments, words in ((("all_reduce", "rong"), "it has naive"), (("all_confuse",), "there are all_reduce")):
        code, text = run(check, *arguments)
        assert code == 2
        assert words in text


@pytest.mark.parametrize(
    ("function", "words", "at"),
    [
        ("fails", "IndexError: list index out of range", "yield [copy][n]"),
        ("beyond", "rank 3's out[0] is on none of the ranks 0 to 2", "yield copy(out(n), inp(0))"),
        ("unwritten", "rank 2's out[0] is read, and was never written", "yield copy(out(1), out(2))"),
    ],
)
def test_mistakes_tell_the_line(mine: str, function: str, words: str, at: str) -> None:
    for command, arguments in ((show, ("-n", "3")), (check, ("-n", "3-8"))):
        code, text = run(command, "broadcast", f"{mine}:{function}", *arguments)
        assert code == (2 if command is show else 1)
        assert words in text
        assert f"mine.py:{line(at)})" in text
        assert "Traceback" not in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mine.py:rong", "mine.py has no function 'rong'; it has ring, up_to_three, fails, beyond, unwritten"),
        ("mine.py:number", "mine.py has no function 'number'"),
        ("mine.py", "which function of mine.py? Write mine.py:NAME"),
        ("nowhere.py:ring", "there is no file nowhere.py"),
        ("torn.py:ring", "SyntaxError: '(' was never closed (torn.py:2)"),
        ("late.py:ring", "has no attribute 'nothing' (late.py:3)"),
    ],
)
@pytest.mark.usefixtures("mine")
def test_what_is_no_function_is_told(name: str, words: str) -> None:
    for command in (show, check):
        code, text = run(command, "all_reduce", name)
        assert code == 2
        assert words in text
