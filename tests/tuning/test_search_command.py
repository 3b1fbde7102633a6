"""The command `hocket plan search`, and what takes the file that it saves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hocket.cli.plan.check import check
from hocket.cli.plan.search import search
from hocket.cli.simulate import simulate


def run(command: Callable[..., None], *arguments: str, columns: int = 80) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(command)
    environ = {"COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "dumb"}
    result = CliRunner().invoke(app, [*arguments], env=environ)
    return result.exit_code, result.output


def test_finds_saves_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    arguments = ("all_reduce", "-t", "ring:4x1", "-b", "1MiB", "--seconds", "60", "--seed", "7")
    code, text = run(search, *arguments, "--save", str(file))
    assert code == 0
    said = " ".join(text.split())
    assert "all_reduce of 1 MiB over 4 ranks: ring:4x1" in said
    assert "times as fast as the best shipped, " in said
    assert "seed 7" in said
    assert max(map(len, text.replace(str(file), "").splitlines())) <= 80
    code, text = run(check, "all_reduce", f"{file}:found", "-n", "4")
    assert code == 0
    assert "over 4 ranks is right" in text
    code, text = run(simulate, "all_reduce", "-t", "ring:4x1", "-a", f"{file}:found,two_shot", "--json")
    assert code == 0
    assert json.loads(text)["best"] == "found"


def test_json() -> None:
    code, text = run(search, "all_reduce", "-t", "2x1", "-b", "8", "--json", "--slow", "rank=1:2x")
    assert code == 0
    said = json.loads(text)
    assert (said["ranks"], said["bytes"], said["seed"], said["cut_short"]) == (2, 8, 0, [])
    assert said["title"] == "all_reduce of 8 B over 2 ranks: 2x1, slow rank=1:2x"
    assert said["gain"] <= 1
    assert said["found"][0]["rounds"] == said["found"][0]["least_rounds"] == 1
    assert said["found"][0]["code"].startswith("exchange")
    assert said["shipped"][0]["plan"] == "one_shot"


def test_says_where_the_shipped_is_best() -> None:
    code, text = run(search, "all_reduce", "-n", "2", "-b", "8")
    assert code == 0
    assert "is best: nothing was found that is faster." in " ".join(text.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("all_reduce",), "over what?"),
        (("scan", "-n", "4"), "searched for all_reduce, all_gather"),
        (("all_reduce", "-n", "1"), "2 to 256 ranks, not for 1"),
        (("all_reduce", "-n", "4", "-b", "0"), "at least one byte"),
        (("all_reduce", "-t", "heap:4"), "no kind of cluster 'heap'"),
        (("all_reduce", "-n", "4", "--save", "mine.txt"), "ends with .py, not mine.txt"),
        (("all_reduce", "-n", "2", "-b", "8", "--save", "nowhere/mine.py"), "cannot be written"),
        (("all_reduce", "-t", "wan:2x1x1", "--cut", "site=0-1", "--save", "mine.py"), "nothing was found"),
    ],
)
def test_mistakes_are_told_in_words(arguments: tuple[str, ...], words: str) -> None:
    code, text = run(search, *arguments)
    assert code == 2
    assert words in " ".join(text.replace("│", " ").split())
