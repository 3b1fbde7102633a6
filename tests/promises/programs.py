"""Whole programs, as users start them: a script of some ranks under `hocket run`, or a single process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import NamedTuple

HEAD = """
import gc, multiprocessing, os, signal, sys, threading, time
import numpy as np
import hocket
rank = int(os.environ.get("RANK", 0))
def say(*words): os.write(1, (" ".join(map(str, words)) + chr(10)).encode())
def asleep(tid):
    looks = []
    while looks[-10:] != ["S"] * 10:
        time.sleep(0.002)
        with open(f"/proc/self/task/{tid}/stat") as stat:
            looks.append(stat.read().rpartition(")")[2].split()[0])
"""


class Ended(NamedTuple):
    """What became of a program."""

    code: int
    out: str
    err: str
    at: float  # time.monotonic() of its end

    def lines(self) -> list[str]:
        return sorted(self.out.split("\n")[:-1])


def run(folder: str | Path, text: str, ranks: int = 0, limit: float = 60.0, python: str = sys.executable) -> Ended:
    """Run a script: by `hocket run` where there are `ranks`, else as it is. TimeoutExpired after `limit` seconds."""
    path = Path(folder, f"script{len(list(Path(folder).iterdir()))}.py")
    path.write_text(HEAD + textwrap.dedent(text))
    words = [python, "-m", "hocket", "run", "-n", str(ranks), str(path)] if ranks else [python, str(path)]
    names = [name for name in os.environ if not name.startswith(("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "HOCKET_"))]
    environ = {name: os.environ[name] for name in names}
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=environ)
    try:
        out, err = process.communicate(timeout=limit)
    finally:
        process.kill()
    return Ended(process.returncode, out, err, time.monotonic())
