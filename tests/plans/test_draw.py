"""Plans as text. The drawings in golden/ are there to be looked at whenever one changes."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import hocket.plans.draw
from hocket.cli.show import show
from hocket.plans.algorithms import ALGORITHMS, plan
from hocket.plans.draw import draw, picture
from hocket.plans.plan import Plan

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.txt"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    collective, algorithm, size, root = path.stem.split("-")
    assert draw(plan(collective, algorithm, int(size), int(root))) + "\n" == path.read_text()


def test_the_example_in_the_docstring() -> None:
    assert doctest.testmod(hocket.plans.draw, extraglobs={"plan": plan}).attempted == 1


def test_everything_can_be_drawn() -> None:
    for name in ALGORITHMS:
        for size in (1, 2, 3, 17):
            made = plan(*name, size)
            text = draw(made, most=3)
            assert text.startswith(f"{name[0]} {name[1]}: size {size}")
            assert (picture(made) == "") == (size in (1, 17))


def test_long_steps_and_long_folds_are_cut() -> None:
    text = draw(plan("all_reduce", "one_shot", 40), most=2)
    assert text.endswith(
        "0  r0.out[0] <- r0.inp[0] + r1.inp[0] + … 38 more   r1.out[0] <- r0.inp[0] + r1.inp[0] + … 38 more   … 38 more"
    )


class TestShow:
    """The command line `hocket show`."""

    @staticmethod
    def run(*arguments: str) -> tuple[int, str]:
        app = typer.Typer()
        app.command()(show)
        result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"})
        return result.exit_code, result.output

    def test_facts_counts_and_steps(self) -> None:
        code, text = self.run("all_reduce", "ring", "-n", "3")
        assert code == 0
        assert all(words in text for words in ("1.33 S", "same bits on every rank", "r0 ──▶ r1 ──▶ r2"))
        assert "3  r1.out[0] <- r0   r2.out[1] <- r1   r0.out[2] <- r2\n" in text

    def test_blocks_that_must_be_equal(self) -> None:
        code, text = self.run("all_to_all", "bruck", "-n", "4")
        assert code == 0
        (line,) = (line for line in text.splitlines() if "right for blocks of any sizes" in line)
        assert line.split()[-2] == "no"
        assert "blocks" not in self.run("all_reduce", "ring")[1]

    def test_json(self) -> None:
        code, text = self.run("scatter", "binomial_tree", "-n", "6", "--root", "2", "--json")
        assert code == 0
        assert Plan.from_json(text) == plan("scatter", "binomial_tree", 6, 2)

    def test_lists(self) -> None:
        code, text = self.run("-n", "8")
        assert code == 0
        assert all(name in text for pair in ALGORITHMS for name in pair)
        code, text = self.run("broadcast")
        assert code == 0
        assert "scatter_all_gather" in text
        assert "all_reduce" not in text

    def test_hosts(self) -> None:
        """A host's bytes are its own column; and nothing is cut at 80 columns."""
        code, text = self.run("all_reduce", "--hosts", "4,4,2")
        assert code == 0
        rows = {line.split()[0]: line.split()[1:] for line in text.splitlines()[1:]}
        assert rows["algorithm"] == ["rounds", "messages", "bytes/host", "bytes/rank"]
        assert rows["one_shot"] == ["1", "90", "24", "S", "9", "S"]  # 4 ranks to 6, all of it
        assert rows["hierarchical"][2:4] == ["1.33", "S"]
        code, text = self.run("all_reduce", "hierarchical_chain", "--hosts", "2,2")
        assert code == 0
        assert "bytes/host" in text
        assert "1  r2.out[0] <- r0 + r2.inp[0] + r3.inp[0]   r3.out[1] <- r1 + r2.inp[1] + r3.inp[1]\n" in text

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("all_reduce", "rong"), "it has naive"),
            (("all_confuse", "ring"), "there are all_reduce"),
            (("all_confuse",), "there are all_reduce"),
            (("scatter", "direct", "-n", "2", "--root", "2"), "--root 2 is none of the ranks, which are 0 to 1"),
            (("--root", "7", "-n", "4"), "--root 7 is none of the ranks, which are 0 to 3"),
            (("broadcast", "--root", "7", "-n", "4"), "--root 7 is none of the ranks, which are 0 to 3"),
            (("all_reduce", "ring", "--root", "1"), "--root 1: all_reduce has no root"),
            (("all_reduce", "ring", "-n", "many"), "such as 1-64, not 'many'"),
            (("all_reduce", "ring", "-n", "4-2"), "such as 1-64, not '4-2'"),
            (("all_reduce", "-n", "1-4"), "several numbers of ranks are for one algorithm"),
            (("all_reduce", "nowhere.py:ring"), "there is no file nowhere.py"),
            (("all_reduce", "--hosts", "2,two"), "such as 4,4,2, not '2,two'"),
            (("all_reduce", "--hosts", "2,0"), "such as 4,4,2, not '2,0'"),
        ],
    )
    def test_mistakes_are_told_in_words(self, arguments: tuple[str, ...], words: str) -> None:
        code, text = self.run(*arguments)
        assert code == 2
        assert words in " ".join(text.replace("│", " ").split())
        assert "Traceback" not in text
