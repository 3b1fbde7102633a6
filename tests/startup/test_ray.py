"""hocket.ray where there is no cluster. On one it is tested in tests/across."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    return done.stderr


def test_without_ray_a_sentence_says_how_to_get_it() -> None:
    said = run("import sys; sys.modules['ray'] = None; import hocket.ray")
    assert said.endswith("ImportError: hocket.ray needs Ray, which is not installed: pip install ray\n")


def test_no_ranks_and_no_cluster() -> None:
    pytest.importorskip("ray")
    script = "import hocket.ray\ntry: hocket.ray.run(print, 0)\nexcept ValueError: hocket.ray.run(print, 1)"
    said = run(script)
    assert "ValueError: size is 0; at least one rank is needed" in said
    assert "HocketError: this program is connected to no Ray cluster: call ray.init(" in said
