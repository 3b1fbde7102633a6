"""`hocket simulate`: its table, its reasons, its document, and what it says of wrong use."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner, Result

from hocket.cli.simulate import simulate
from hocket.plans.algorithms import names

RING = """\
import numpy as np
from hocket.plans import copy, out, reduce


def ring(n):
    c = np.arange(n)
    for hop in range(2 * n - 2):
        here, there = (c + hop) % n, (c + hop + 1) % n
        yield (reduce if hop < n - 1 else copy)(out(there, c), out(here, c))


def half(n):
    c = np.arange(n)
    yield copy(out((c + 1) % n, c), out(c, c))
"""


def command(*words: str) -> Result:
    app = Typer()
    app.command()(simulate)
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"})


def document(*words: str) -> dict[str, object]:
    done = command(*words, "--json")
    assert done.exit_code == 0, done.output
    read: dict[str, object] = json.loads(done.output)
    return read


def test_the_table_has_all_and_the_best_first() -> None:
    done = command("all_reduce", "-t", "4x8", "-b", "64MiB")
    assert done.exit_code == 0
    assert max(map(len, done.output.splitlines())) <= 80
    lines = done.output.splitlines()
    assert lines[0] == "all_reduce of 64 MiB over 32 ranks: 4x8"
    assert {line.split()[0] for line in lines[3 : 3 + len(names("all_reduce"))]} == set(names("all_reduce"))
    best = document("all_reduce", "-t", "4x8", "-b", "64MiB")
    rows = best["algorithms"]
    assert isinstance(rows, list)
    assert [row["seconds"] for row in rows] == sorted(row["seconds"] for row in rows)
    assert best["best"] == rows[0]["algorithm"] == lines[3].split()[0]
    assert f"best: {best['best']}, " in done.output
    for row in rows:
        assert sum(row["parts"].values()) == pytest.approx(row["seconds"])
        assert row["bytes_per_rank"] >= row["least_bytes_per_rank"] * (1 - 1e-12)
        assert row["rounds"] >= row["least_rounds"]
        assert len(row["critical_path"]) == row["critical_messages"]


def test_why() -> None:
    done = command("broadcast", "-t", "2x1,alpha=10us,send=1us,receive=1us", "-b", "0", "-a", "direct")
    said = " ".join(done.output.split())
    assert "Its critical path: 1 message; latency 83%, processors 17%." in said
    assert "What takes longest on their way: NIC of host 1 times. step 0: r0 to r1 (NIC of host 0, out)" in said
    assert "no algorithm has fewer than 1." in said
    long = command("all_reduce", "-t", "16x1", "-a", "ring").output
    assert "  ... 24 more\n" in long


def test_an_algorithm_of_ones_own_is_proved_and_put_beside(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(RING)
    rows = document("all_reduce", "-t", "3x3", "-a", f"ring,{tmp_path / 'mine.py'}:ring")["algorithms"]
    assert isinstance(rows, list)
    assert rows[0] == rows[1]
    done = command("all_reduce", "-t", "3x3", "-a", f"{tmp_path / 'mine.py'}:half")
    assert done.exit_code == 2
    assert "contribution" in done.output


def test_slow_cut_root_and_segments() -> None:
    def seconds(*words: str, name: tuple[str, str] = ("broadcast", "binomial_tree")) -> float:
        rows = document(name[0], "-t", "ring:8", "-a", name[1], *words)["algorithms"]
        assert isinstance(rows, list)
        return float(rows[0]["seconds"])

    plain = seconds()
    assert seconds("--root", "3") == pytest.approx(plain)
    assert seconds("--slow", "rank=4:100x") > plain
    assert seconds("--cut", "link=4-5") > plain
    chain = ("scan", "chain")
    assert seconds("--segments", "4", name=chain) < 0.6 * seconds(name=chain)


def test_what_is_too_large_is_left_out() -> None:
    done = command("all_reduce", "-n", "16384", "-t", "flat:x8", "-a", "binomial_tree,two_shot")
    assert done.exit_code == 0
    assert "two_shot is left out: about 3e+08 moves in one step, and there is room for" in done.output
    done = command("all_reduce", "-n", "16384", "-t", "flat:x8", "-a", "two_shot")
    assert done.exit_code == 2
    assert "two_shot would have about 3e+08 moves" in " ".join(done.output.split())
    done = command("reduce_scatter", "-n", "16384", "-t", "flat:x8", "-a", "circulant")
    assert done.exit_code == 2
    assert "circulant would have about 22 GiB in hand as it is made" in " ".join(done.output.split())


def test_thousands_of_ranks_take_little_memory() -> None:
    among = ["ring", "recursive_halving", "circulant", "hierarchical", "double_binary_tree"]
    words = ("all_reduce", "-n", "16384", "-b", "1GiB", "-t", "fat-tree:x8,oversubscription=2", "-a", ",".join(among))
    tracemalloc.start()
    try:
        found = document(*words)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 500 << 20
    assert found["left_out"] == {}
    rows = found["algorithms"]
    assert isinstance(rows, list)
    assert sorted(row["algorithm"] for row in rows) == sorted(among)


def test_one_rank_and_a_barrier() -> None:
    assert "Nothing moves, and nothing takes time." in command("all_reduce", "-n", "1").output
    assert command("barrier", "-n", "9").output.startswith("barrier of 0 B over 9 ranks: one host\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("all_reduce",), "over what? Say --topology 4x8, or --ranks 8 for one host"),
        (("all_confuse", "-n", "4"), "there is no collective 'all_confuse'"),
        (("all_reduce", "-t", "4x8", "-n", "33"), "this cluster has 32 ranks, not 33"),
        (("all_reduce", "-t", "4y8"), "a shape is hosts x ranks on each"),
        (("all_reduce", "-n", "4", "-b", "3.7"), '"3.7" is not a size'),
        (("all_reduce", "-n", "4", "-a", "rong"), "has no algorithm 'rong'"),
        (("all_reduce", "-n", "4", "--root", "1"), "all_reduce has no root"),
        (("broadcast", "-n", "4", "--root", "4"), "--root 4 is none of the ranks"),
        (("all_reduce", "-t", "2x2", "--cut", "nic=0", "-a", "ring"), "its NIC is cut, and no other one is left"),
        (("all_reduce", "-t", "2x2", "--slow", "7"), "such as rank=7:3x"),
        (("all_reduce", "-t", "none.json"), "none.json cannot be read"),
        (("all_reduce", "-n", "9999999"), "there are 1 to 1048576 ranks"),
    ],
)
def test_wrong_use_is_a_sentence(words: tuple[str, ...], said: str) -> None:
    done = command(*words)
    assert done.exit_code == 2
    assert said in " ".join(done.output.replace("│", " ").split())


def test_a_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.cli.simulate.find_spec", lambda name: None)
    done = command("all_reduce", "-n", "4", "--plot", str(tmp_path / "p.png"))
    assert done.exit_code == 2
    assert "a plot needs matplotlib" in done.output
    monkeypatch.undo()
    pytest.importorskip("matplotlib", reason="the extra: pip install hocket[plot]")
    assert command("all_reduce", "-n", "4", "--plot", str(tmp_path / "p.png")).exit_code == 0
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
