"""A short torture run, from another seed each time, and what the trials of any run are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from keep import keep
from scenario import FAULTS, HARMLESS, LINES, LINKS, SCARCE, SIGNALS, STEPS, WORKLOADS, draw

from hosts import reason

HERE = Path(__file__).resolve().parent


def storm(*words: str, capfd: pytest.CaptureFixture[str], program: str = "storm.py") -> None:
    """What it says is shown where it finds anything."""
    subprocess.check_call([sys.executable, str(HERE / "failpoints.py")])
    paths = f"{HERE.parent}{os.pathsep}{HERE}"
    environ = {**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / program), *words]
    code = subprocess.call(command, env=environ, stdin=subprocess.DEVNULL, timeout=280)
    said = capfd.readouterr()
    assert code == 0, said.err + said.out


def test_a_short_run(capfd: pytest.CaptureFixture[str]) -> None:
    """A few hundred trials: no more are begun after 45 seconds. The seed is in the output."""
    storm("--trials", "400", "--seconds", "45", capfd=capfd)


def test_a_short_run_of_what_is_offered(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where long messages are copied out of another process's own memory, which may be gone, or filled anew."""
    monkeypatch.setenv("HOCKET_PROTOCOL", "offered")
    storm("--trials", "200", "--seconds", "25", capfd=capfd)


@pytest.mark.skipif(reason() != "", reason=reason())
def test_hosts_that_are_cut_off(capfd: pytest.CaptureFixture[str]) -> None:
    """From one another, both ways or one, or for a moment. The seed is in the output."""
    storm("--transport", "2x2", "--only", "cut off", "--trials", "2000", "--seconds", "20", capfd=capfd)


@pytest.mark.parametrize("over", ["shm", pytest.param("2x2", marks=pytest.mark.skipif(reason() != "", reason="-"))])
def test_an_end_at_each_step(over: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A rank is killed, or stopped, at each step of a call, of the end of a group, and of recover(). Each comes, and
    those that are left are told the same and go on."""
    storm("--steps", "--transport", over, capfd=capfd)


@pytest.mark.skipif(reason() != "", reason=reason())
@pytest.mark.parametrize("step", ["adopted", "decided"])
def test_of_two_that_were_stopped_in_turn_one_goes_on(step: str, capfd: pytest.CaptureFixture[str]) -> None:
    storm(step, program="duel.py", capfd=capfd)


def test_what_is_found_is_kept(tmp_path: Path) -> None:
    """All of it, and of a trial that is played again another file."""
    trial = draw(7, 3)
    findings = [("SPLIT", f"rank {rank}\nwas told\nelse") for rank in range(20)]
    folder = tmp_path / "not there yet"
    paths = [keep(folder, "seed-7-tcp", "once more", trial, findings, [f"story {n}"]) for n in range(2)]
    assert [path.name for path in paths] == ["seed-7-tcp-3-1.txt", "seed-7-tcp-3-2.txt"]
    for n, path in enumerate(paths):
        text = path.read_text()
        assert str(trial) in text
        assert f"story {n}\n" in text
        assert "again: once more\n" in text
        assert all(f"SPLIT  rank {rank}\n" in text for rank in range(20))


def test_only_a_leak_is_forgiven_and_only_to_who_is_interrupted_anywhere() -> None:
    trial = draw(7, 0)._replace(fault="interrupted in recover", second=1, step="")
    assert trial.forgives(1, "LEAK")
    assert not trial.forgives(0, "LEAK")
    assert not trial.forgives(1, "WRONG")
    assert not trial._replace(step="noted").forgives(1, "LEAK")
    assert not trial._replace(fault="stopped in recover").forgives(1, "LEAK")


def test_every_step_is_named_once() -> None:
    """Those of the C++ source are those that trials are drawn from."""
    sources = [path for path in (HERE.parents[1] / "csrc").rglob("*") if path.suffix in (".h", ".cpp")]
    text = "".join(path.read_text() for path in sources if path.stem != "failpoint")
    found = re.findall(r"\bFAILPOINT\((\w+)\)", text)
    assert sorted(found) == sorted(STEPS)


def test_every_pair_of_fault_and_workload_comes() -> None:
    pairs = len(FAULTS) * len(WORKLOADS)
    assert len(FAULTS) >= 12
    assert len(WORKLOADS) >= 15
    trials = [draw(7, number) for number in range(2 * pairs)]
    for half in (trials[:pairs], trials[pairs:]):
        assert len({(trial.fault, trial.workload) for trial in half}) == pairs
    assert trials == [draw(7, number) for number in range(2 * pairs)]
    assert draw(8, 0) != trials[0]
    assert not {draw(7, number, LINKS).fault for number in range(pairs)} & set(LINKS)
    assert set(SIGNALS) | set(HARMLESS) | set(LINES) | set(SCARCE) <= set(FAULTS)
    for trial in trials:
        assert 0 <= trial.victim < trial.size
        assert trial.at < trial.rounds
