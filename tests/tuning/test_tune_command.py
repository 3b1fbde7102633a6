"""`hocket choose` and `hocket tune`: what they print, keep, and say of wrong use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner, Result

from hocket.cli.choose import choose
from hocket.plans.algorithms import names
from hocket.tuning.costs import Costs
from hocket.tuning.profile import Profile, Regime
from hocket.tuning.saved import load, save
from hocket.tuning.simulate import simulate
from hocket.tuning.spec import cluster


def command(*words: str, profile: str = "none") -> Result:
    app = Typer()
    app.command()(choose)
    settings = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "HOCKET_PROFILE": profile}
    return CliRunner().invoke(app, list(words), env=settings)


def document(*words: str, profile: str = "none") -> dict[str, Any]:
    done = command(*words, "--json", profile=profile)
    assert done.exit_code == 0, done.output
    read: dict[str, Any] = json.loads(done.output)
    return read


def test_a_choice_is_explained_by_the_profile(tmp_path: Path) -> None:
    file = tmp_path / "profile"
    regime = Regime(1.0, Costs(local=0.5))  # a second for the call, and half of one for each round
    save(file, Profile(1, regime, regime), {})
    done = command("all_reduce", "64K", "--ranks", "4", profile=str(file))
    assert done.exit_code == 0, done.output
    assert max(map(len, done.output.splitlines())) <= 80
    assert "chosen: one_shot, by the profile of this machine" in done.output
    read = document("all_reduce", "64K", "--ranks", "4", profile=str(file))
    times = {row["algorithm"]: row["seconds"] for row in read["algorithms"]}
    assert {*times} == {*names("all_reduce")}
    assert times["one_shot"] == pytest.approx(1.5, rel=1e-3)
    assert times["two_shot"] == pytest.approx(2.0, rel=1e-3)
    assert (read["chosen"], read["chosen_among"]) == ("one_shot", ["one_shot", "two_shot"])


def test_without_a_profile_the_rule_is_told() -> None:
    read = document("all_reduce", "8", "-n", "4")
    assert (read["chosen"], read["algorithms"]) == ("one_shot", [])
    assert "small" in read["reason"]
    assert "hocket tune" in read["basis"]
    assert document("barrier", "-n", "99")["chosen"] == "dissemination"


def test_a_described_cluster_is_simulated() -> None:
    spec = "flat:x8,nic=25Gbit/s"
    read = document("all_reduce", "1M", "--ranks", "4x8", "--topology", spec)
    where = cluster(spec, 32)
    times = {row["algorithm"]: row["seconds"] for row in read["algorithms"]}
    from hocket.plans.algorithms import plan

    for name in ("ring", "hierarchical_chain"):
        made = plan("all_reduce", name, 32, places=where.places)
        assert times[name] == simulate(made, 1 << 20, where).seconds
    assert read["chosen"] == min(read["chosen_among"], key=times.__getitem__)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nothing",), "no collective"),
        (("all_reduce", "many"), "not a size"),
        (("all_reduce", "8", "-n", "0"), "--ranks"),
        (("all_reduce", "8", "-n", "x8"), "--ranks"),
        (("all_reduce", "8", "-n", "9999999"), "--ranks"),
        (("all_reduce", "8", "-n", "2x8", "-t", "4x4"), "4 hosts"),
        (("broadcast", "8", "-n", "2", "--root", "2"), "root"),
    ],
)
def test_wrong_use_is_told(words: tuple[str, ...], says: str) -> None:
    done = command(*words)
    assert done.exit_code == 2
    assert says in done.output


# ---- hocket tune ----


def tune(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    around = {name: value for name, value in os.environ.items() if name != "HOCKET_PROFILE"} | environ
    command = [sys.executable, "-m", "hocket", "tune", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=around)


def test_a_machine_is_measured_and_its_profile_kept(tmp_path: Path) -> None:
    done = tune("-n", "2", "--json", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout)
    (file,) = (tmp_path / "hocket").iterdir()
    assert read["file"] == str(file)
    profile = load(file).profile
    regime = profile.near or profile.crowded  # by the cores of this machine
    assert regime is not None
    assert 0 < regime.call < 1
    (fit,) = read["fits"].values()
    assert (fit["ranks"], fit["calls"] > 10) == ("2", True)
    told = document("all_reduce", "64K", profile=str(file))
    assert "this machine's profile" in told["basis"]
    assert {row["algorithm"] for row in told["algorithms"]} == {*names("all_reduce")}


def test_a_profile_that_cannot_be_kept_is_told_before_measuring(tmp_path: Path) -> None:
    done = tune("-n", "2", HOCKET_PROFILE="none")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no place to keep a profile" in done.stderr
    (tmp_path / "file").write_text("")
    done = tune("-n", "2", "--file", str(tmp_path / "file" / "profile"))
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert tune("-n", "1").returncode == 2
