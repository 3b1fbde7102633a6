"""`hocket plan export` and `import`, and plan files wherever an algorithm is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hocket.cli.plan.check import check
from hocket.cli.plan.count import count
from hocket.cli.plan.draw import draw
from hocket.cli.plan.export import export
from hocket.cli.plan.import_ import import_
from hocket.cli.plan.show import show
from hocket.cli.simulate import simulate
from hocket.plans.algorithms import plan
from hocket.plans.plan import Plan


def run(command: Callable[..., None], *arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "300", "NO_COLOR": "1", "TERM": "dumb"})
    return result.exit_code, result.output


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, in which we are, with a ring over 5 ranks as XML and as JSON."""
    monkeypatch.chdir(tmp_path)
    for name, form in (("ring.xml", "msccl-xml"), ("ring.json", "json")):
        assert run(export, "all_reduce", "ring", name, "-n", "5", "--format", form) == (0, "")
    return tmp_path


@pytest.mark.parametrize("name", ["ring.xml", "ring.json"])
def test_a_plan_file_stands_for_an_algorithm(files: Path, name: str) -> None:
    code, text = run(show, "all_reduce", name)
    assert code == 0
    assert "all_reduce ring, 5 ranks" in text
    code, text = run(check, "all_reduce", name)
    assert code == 0
    assert text.startswith(f"all_reduce {name} over 5 ranks is right\n")
    code, text = run(count, "all_reduce", name, "--json")
    assert (code, [row["rounds"] for row in json.loads(text)]) == (0, [8])
    assert run(draw, "all_reduce", name)[0] == 0
    code, text = run(simulate, "all_reduce", "-n", "5", "-a", f"{name},ring", "--json")
    assert code == 0
    assert len({each["seconds"] for each in json.loads(text)["algorithms"]}) == 1
    for arguments in (("all_reduce", name, "-n", "4"), ("broadcast", name)):
        code, text = run(show, *arguments)
        assert code == 2
        assert f"is none for {arguments[0]} over" in text


def test_a_name_is_shown_as_it_is(files: Path) -> None:
    """Rich would take it for a colour."""
    name = "[red]ring[bold].json"
    (files / name).write_text((files / "ring.json").read_text().replace('"ring"', '"[red]ring[/red]"'))
    assert f"all_reduce {name}" in run(count, "all_reduce", name)[1]
    assert "all_reduce [red]ring[/red], 5 ranks" in run(show, "all_reduce", name)[1]
    assert "\n[red]ring[/red] " in run(simulate, "all_reduce", "-n", "5", "-a", name)[1]
    xml = (files / "ring.xml").read_text()
    (files / "ring.xml").write_text(xml.replace('name="ring"', 'name="ring\u202e"'))
    code, text = run(import_, "ring.xml")
    assert code == 1
    assert "a name that cannot be printed: 'ring\\u202e'" in text


def test_import_shows_and_converts(files: Path) -> None:
    code, text = run(import_, "ring.json")
    assert code == 0
    assert "all_reduce ring, 5 ranks" in text
    code, text = run(import_, "ring.json", "--json")
    assert (code, Plan.from_json(text)) == (0, plan("all_reduce", "ring", 5))


def test_import_says_what_is_wrong(files: Path) -> None:
    Path("wrong.xml").write_text(Path("ring.xml").read_text().replace('type="rcs"', 'type="rrcs"'))
    code, text = run(import_, "wrong.xml")
    assert code == 1
    assert text.startswith("wrong.xml is wrong: ")
    Path("torn.json").write_text('{"collective": "all_reduce"}')
    code, text = run(import_, "torn.json")
    assert (code, text) == (1, "torn.json is wrong: this text is not a plan: it has no 'algorithm'\n")
    for command, arguments in ((import_, ("none.xml",)), (show, ("all_reduce", "none.xml"))):
        code, text = run(command, *arguments)
        assert code == 2
        assert "none.xml" in text


def test_goal_and_what_cannot_be_exported(files: Path) -> None:
    code, text = run(export, "broadcast", "direct", "-n", "2", "--format", "goal", "--bytes", "8")
    assert code == 0
    assert text == ("num_ranks 2\n\nrank 0 {\n  l1: send 8b to 1 tag 0\n}\n\nrank 1 {\n  l1: recv 8b from 0 tag 0\n}\n")
    for words, arguments in (
        ("MSCCL has no scan", ("scan", "chain")),
        ("a plan is of one number of ranks", ("all_reduce", "ring", "-n", "2-4")),
        ("cannot be written", ("all_reduce", "ring", "nowhere/ring.xml")),
        ("is not a size", ("all_reduce", "ring", "--bytes", "many")),
    ):
        code, text = run(export, *arguments)
        assert code == 2
        assert words in text
