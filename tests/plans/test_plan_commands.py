"""The commands `hocket plan ...`, but for what they say of a user's file: that is in test_authored.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer
from typer.testing import CliRunner

from hocket.cli.plan.check import check
from hocket.cli.plan.count import count
from hocket.cli.plan.draw import draw
from hocket.cli.plan.list import list as listing
from hocket.cli.plan.show import show
from hocket.plans.algorithms import ALGORITHMS, names, plan
from hocket.plans.check import check as facts_of
from hocket.plans.count import count as counts_of
from hocket.plans.draw.svg import svg
from hocket.plans.draw.terminal import diagram
from hocket.plans.plan import Plan


def run(command: Callable[..., None], *arguments: str, columns: int = 100) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(command)
    environ = {"COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "dumb"}
    result = CliRunner().invoke(app, [*arguments], env=environ)
    return result.exit_code, result.output


def refused(command: Callable[..., None], *arguments: str) -> str:
    """The one sentence that is said, with the exit code of wrong usage."""
    code, text = run(command, *arguments)
    assert code == 2
    assert "Traceback" not in text
    return " ".join(text.replace("│", " ").split())


class TestShow:
    def test_facts_counts_and_steps(self) -> None:
        code, text = run(show, "all_reduce", "ring", "-n", "3")
        assert code == 0
        assert all(words in text for words in ("1.33 S", "same bits on every rank", "r0 ──▶ r1 ──▶ r2"))
        assert "3  r1.out[0] <- r0   r2.out[1] <- r1   r0.out[2] <- r2\n" in text

    def test_blocks_that_must_be_equal(self) -> None:
        code, text = run(show, "all_to_all", "bruck", "-n", "4")
        assert code == 0
        (line,) = (line for line in text.splitlines() if "right for blocks of any sizes" in line)
        assert line.split()[-2] == "no"
        assert "blocks" not in run(show, "all_reduce", "ring")[1]

    def test_json(self) -> None:
        code, text = run(show, "scatter", "binomial_tree", "-n", "6", "--root", "2", "--json")
        assert code == 0
        assert Plan.from_json(text) == plan("scatter", "binomial_tree", 6, 2)

    def test_lists(self) -> None:
        code, text = run(show, "-n", "8")
        assert code == 0
        assert all(name in text for pair in ALGORITHMS for name in pair)
        code, text = run(show, "broadcast")
        assert code == 0
        assert "scatter_all_gather" in text
        assert "all_reduce" not in text

    def test_hosts(self) -> None:
        """A host's bytes are its own column; and nothing is cut at 80 columns."""
        code, text = run(show, "all_reduce", "--hosts", "4,4,2")
        assert code == 0
        rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line}
        assert rows["algorithm"] == ["rounds", "messages", "bytes/host", "bytes/rank", "facts"]
        assert rows["one_shot"] == ["1", "90", "24", "S", "9", "S", "pbso"]  # 4 ranks to 6, all of it
        assert rows["hierarchical"][2:4] == ["1.33", "S"]
        code, text = run(show, "all_reduce", "hierarchical_chain", "--hosts", "2,2")
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
            (("all_reduce", "ring", "-n", "many"), "such as 1-64 or 2,4,8, not 'many'"),
            (("all_reduce", "ring", "-n", "4-2"), "such as 1-64 or 2,4,8, not '4-2'"),
            (("all_reduce", "-n", "1-4"), "several numbers of ranks are for one algorithm"),
            (("all_reduce", "nowhere.py:ring"), "there is no file nowhere.py"),
            (("all_reduce", "--hosts", "2,two"), "such as 4,4,2, not '2,two'"),
            (("all_reduce", "--hosts", "2,0"), "such as 4,4,2, not '2,0'"),
        ],
    )
    def test_mistakes_are_told_in_words(self, arguments: tuple[str, ...], words: str) -> None:
        assert words in refused(show, *arguments)


class TestList:
    def test_says_of_each_what_it_is_and_what_is_counted_and_proved(self) -> None:
        code, text = run(listing, "-n", "6", "--json")
        rows = json.loads(text)
        assert code == 0
        assert [(row["collective"], row["algorithm"]) for row in rows] == [*ALGORITHMS]
        for row in rows:
            made = plan(row["collective"], row["algorithm"], 6)
            counts, facts = counts_of(made), facts_of(made)
            assert (row["rounds"], row["messages"]) == (counts.rounds, counts.messages)
            assert row["bytes_per_rank"] == float(counts.bytes_per_rank)
            assert row["facts"] == {name: getattr(facts, name) for name in row["facts"]}
            assert row["what"]

    def test_fits_into_80_columns(self) -> None:
        for arguments in ((), ("--hosts", "4,4")):
            code, text = run(listing, *arguments, columns=80)
            assert code == 0
            assert max(map(len, text.splitlines())) <= 80

    def test_root_and_mistakes(self) -> None:
        assert run(listing, "broadcast", "--root", "3")[0] == 0
        assert "--root 8 is none of the ranks, which are 0 to 7" in refused(listing, "broadcast", "--root", "8")
        assert "hocket plan count" in refused(listing, "broadcast", "-n", "1-8")
        assert "there are all_reduce" in refused(listing, "all_confuse")


class TestCount:
    def test_over_many_numbers_of_ranks(self) -> None:
        code, text = run(count, "broadcast", "direct,binomial_tree", "-n", "3-9", "--root", "2", "--json")
        rows = json.loads(text)
        assert code == 0
        assert [(row["algorithm"], row["ranks"]) for row in rows] == [
            (name, n) for name in ("direct", "binomial_tree") for n in range(3, 10)
        ]
        for row in rows:
            counts = counts_of(plan("broadcast", row["algorithm"], row["ranks"], 2))
            assert (row["rounds"], row["steps"], row["messages"]) == (counts.rounds, counts.steps, counts.messages)
            assert row["folded_per_rank"] == 0

    def test_a_table_for_each(self) -> None:
        code, text = run(count, "all_reduce", "ring,naive", "-n", "1-3", columns=80)
        assert code == 0
        assert [line.split() for line in text.splitlines() if line.startswith("3 ")] == [
            ["3", "4", "4", "12", "4", "1.33", "S", "0.667", "S"],
            ["3", "2", "3", "4", "2", "2", "S", "2", "S"],
        ]

    def test_mistakes(self) -> None:
        assert "it has naive" in refused(count, "all_reduce", "ring,rong")
        assert "has no algorithm ''" in refused(count, "all_reduce", "ring,")


def test_several_numbers_of_ranks() -> None:
    code, text = run(check, "all_reduce", "ring", "-n", "8,2-4,3,16")
    assert code == 0
    assert text.startswith("all_reduce ring over 2-4, 8, 16 ranks is right\n")
    code, text = run(count, "all_reduce", "ring", "-n", "16,2", "--json")
    assert (code, [row["ranks"] for row in json.loads(text)]) == (0, [2, 16])


def test_check_for_programs() -> None:
    code, text = run(check, "all_reduce", "ring", "-n", "1-3", "--json")
    assert code == 0
    (verdict,) = json.loads(text)
    assert (verdict["right"], verdict["ranks"]) == (True, [1, 2, 3])
    assert verdict["facts"] == {
        "in_place": [1, 2, 3],
        "same_everywhere": [1, 2, 3],
        "size_invariant": [1],
        "rank_order": [1],
    }


class TestDraw:
    def test_in_the_terminal(self) -> None:
        code, text = run(draw, "scatter", "binomial_tree,direct", "-n", "6", "--root", "2", columns=70)
        assert code == 0
        for name in ("binomial_tree", "direct"):
            drawn = diagram(plan("scatter", name, 6, 2), 70)
            assert f"scatter {name} over 6 ranks, root 2\n\n{drawn}\n" in text

    def test_many_ranks_are_told_in_words(self) -> None:
        code, text = run(draw, "all_reduce", "ring", "-n", "300", columns=80)
        assert code == 0
        assert "0-298          300  r → r+1                     1, folded\n" in text

    def test_svg(self, tmp_path: Path) -> None:
        file = tmp_path / "ring.svg"
        assert run(draw, "all_reduce", "ring", "-n", "4", "--svg", str(file)) == (0, "")
        assert file.read_text(encoding="utf-8") == svg(plan("all_reduce", "ring", 4))
        code, text = run(draw, "all_reduce", "hierarchical", "--hosts", "3,1", "--svg", "-")
        assert code == 0
        assert text == svg(plan("all_reduce", "hierarchical", 4, 0, (0, 0, 0, 1)))
        ElementTree.fromstring(text)

    def test_html(self, tmp_path: Path) -> None:
        file = tmp_path / "beside.html"
        assert run(draw, "all_reduce", "ring,two_shot", "-n", "4", "--html", str(file)) == (0, "")
        assert "<h1>all_reduce over 4 ranks: ring, two_shot</h1>" in file.read_text(encoding="utf-8")

    def test_json(self) -> None:
        code, text = run(draw, "gather", "direct", "-n", "3", "--json")
        assert code == 0
        (drawn,) = json.loads(text)
        assert drawn["steps"] == [
            [{"source": rank, "target": 0, "folds": False, "chunks": [rank]} for rank in (1, 2)],
        ]

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (
                ("ring", "-n", "65", "--svg", "x"),
                "room for 64 ranks, not 65; draw the algorithm over fewer, such as -n 8",
            ),
            (("ring", "-n", "64", "--svg", "x"), "more than the 4096 messages that a picture can hold"),
            (("ring", "-n", "17", "--html", "x"), "a page has room for 16 ranks, and all_reduce ring over 17 ranks"),
            (("ring,naive", "--svg", "x"), "--svg draws one algorithm; several side by side are for --html"),
            (("ring", "--svg", "/nowhere/x"), "/nowhere/x cannot be written: No such file or directory"),
            (("ring", "--svg", "-", "--json"), "only one thing can be written to stdout"),
            (("ring", "-n", "1-8"), "a picture is of one number of ranks: -n 8"),
            (("ring", "--root", "1"), "all_reduce has no root"),
            (("rong",), "it has naive"),
        ],
    )
    def test_mistakes(self, arguments: tuple[str, ...], words: str) -> None:
        assert words in refused(draw, "all_reduce", *arguments)


def test_a_collective_lists_its_own_algorithms() -> None:
    heads = [line.split()[0] for line in run(listing, "all_gather")[1].splitlines() if line.endswith("  p")]
    assert heads == names("all_gather")
