"""The suites in Tcl pass on every rank, both ways, alone and on several ranks; there, every other rank goes the other
way, so that each way has run them on each number of ranks, and both have met."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tclsh import Way, ended, launch, start

SUITE = Path(__file__).with_name("suite.tcl")


def passed(command: list[str], ranks: int, folder: Path) -> None:
    code, out, err = ended(start(command, folder, {"HOCKET_TIMEOUT": "20"}))
    assert (code, err) == (0, ""), out + err
    said = re.findall(r"^rank (\d) of (\d): (\d+) passed, 0 failed$", out, re.MULTILINE)
    assert sorted((int(rank), int(of)) for rank, of, _ in said) == [(rank, ranks) for rank in range(ranks)]
    assert min(int(number) for _, _, number in said) > 100


def test_alone(way: Way, tmp_path: Path) -> None:
    passed([*way.command, str(SUITE)], 1, tmp_path)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_several_ranks(plain: Way, inside: Way, ranks: int, tmp_path: Path) -> None:
    ways = [shlex.join([*way.command, str(SUITE)]) for way in (plain, inside)]
    choose = f"if [ $((RANK % 2)) = {ranks % 2} ]; then exec {ways[0]}; else exec {ways[1]}; fi"
    passed([*launch(ranks), "sh", "-c", choose], ranks, tmp_path)
