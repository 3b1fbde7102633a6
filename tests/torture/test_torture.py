"""A short torture run, from another seed each time, and what the trials of any run are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from scenario import FAULTS, HARMLESS, SIGNALS, WORKLOADS, draw

HERE = Path(__file__).resolve().parent


def test_a_short_run(capfd: pytest.CaptureFixture[str]) -> None:
    """About 150 trials: no more are begun after 45 seconds. The seed is in the output."""
    command = [sys.executable, str(HERE / "storm.py"), "--trials", "150", "--seconds", "45"]
    environ = {**os.environ, "PYTHONPATH": str(HERE.parent), "OPENBLAS_NUM_THREADS": "1"}
    code = subprocess.call(command, env=environ, stdin=subprocess.DEVNULL, timeout=200)
    said = capfd.readouterr()
    assert code == 0, said.err + said.out


def test_every_pair_of_fault_and_workload_comes() -> None:
    pairs = len(FAULTS) * len(WORKLOADS)
    assert len(FAULTS) >= 12
    assert len(WORKLOADS) >= 15
    trials = [draw(7, number) for number in range(2 * pairs)]
    for half in (trials[:pairs], trials[pairs:]):
        assert len({(trial.fault, trial.workload) for trial in half}) == pairs
    assert trials == [draw(7, number) for number in range(2 * pairs)]
    assert draw(8, 0) != trials[0]
    assert set(SIGNALS) | set(HARMLESS) <= set(FAULTS)
    for trial in trials:
        assert 0 <= trial.victim < trial.size
        assert trial.at < trial.rounds
