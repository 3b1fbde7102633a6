"""Ranks whose machines have different profiles choose alike: by that of rank 0, in all groups that come of the job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hocket.tuning.costs import Costs
from hocket.tuning.profile import Profile, Regime
from hocket.tuning.saved import save

PROGRAM = """\
import os, sys
from functools import reduce

import numpy as np

rank = int(os.environ["RANK"])
os.environ["HOCKET_PROFILE"] = sys.argv[1 + rank]

import hocket

def chosen(group):
    algorithms = {key[1] for key in group._go.native.meters if key[0] == "all_reduce"}
    return "+".join(sorted(algorithms))

with hocket.init(timeout=20) as group:
    n = group.size
    for count in (1, 1000, 100_000):
        x = [np.random.default_rng(r).standard_normal(count).astype(np.float32) for r in range(n)]
        assert group.all_reduce(x[group.rank]).tobytes() == reduce(np.add, x).tobytes()
    turned = group.subgroup([*reversed(range(n))])  # whose rank 0 has the other profile
    turned.all_reduce(np.ones(3))
    told = group.all_gather_object((chosen(group), chosen(turned), turned.topology.profile == group.topology.profile))
    assert len(set(told)) == 1, told
    if group.rank == 0:
        print(*told[0])
"""


def job(tmp_path: Path, *profiles: str) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    size = str(len(profiles))
    words = [sys.executable, "-m", "hocket", "run", "-n", size, "--timeout", "100", str(program), *profiles]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


def test_two_different_profiles_on_two_ranks_give_one_choice_and_the_same_bits(tmp_path: Path) -> None:
    rounds, folding = Regime(0.0, Costs(local=1.0)), Regime(0.0, Costs(local=0.0, reduce=1.0))
    dear_rounds, dear_folding = str(tmp_path / "rounds"), str(tmp_path / "folding")
    save(Path(dear_rounds), Profile(1, rounds, rounds), {})
    save(Path(dear_folding), Profile(1, folding, folding), {})
    for profiles, name in (
        ((dear_rounds, dear_folding), "one_shot"),
        ((dear_folding, dear_rounds), "two_shot"),
        ((dear_folding, "none"), "two_shot"),
    ):
        done = job(tmp_path, *profiles)
        assert (done.returncode, done.stdout) == (0, f"{name} {name} True\n"), done.stderr
        assert done.stderr == ""


def test_a_damaged_profile_is_told_once_and_done_without(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.write_text("{")
    done = job(tmp_path, str(damaged), str(damaged))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("is damaged: `hocket tune` makes a new one") == 1
