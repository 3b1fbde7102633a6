"""A wheel of hocket in an environment of its own: `python tests/wheel/install.py WHEEL`, or `make wheel`.

The environment is a new one, with what the wheel requires and nothing else, and no compiler can be found from it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PROGRAM = Path(__file__).with_name("two_ranks.py")
COMMANDS = (  # which read files of the package, or import what else is required
    ("info",),
    ("tcl-path",),
    ("plan", "draw", "all_reduce", "ring", "--html", "ring.html"),
    ("plan", "export", "all_reduce", "ring", "ring.xml"),
    ("plan", "import", "ring.xml"),
    ("simulate", "all_reduce", "-t", "2x2"),
)


def main(wheel: Path) -> None:
    """Installs the wheel, and has two ranks sum. SystemExit where that goes wrong."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        programs = Path(folder, "bin")
        subprocess.run([programs / "python", "-m", "pip", "install", "-qq", "--only-binary=:all:", wheel], check=True)
        environ = {"PATH": str(programs), "HOME": os.environ.get("HOME", folder)}
        for words in COMMANDS:
            subprocess.run(
                [programs / "hocket", *words], cwd=folder, env=environ, stdout=subprocess.DEVNULL, check=True
            )
        command = [programs / "hocket", "run", "-n", "2", PROGRAM]
        done = subprocess.run(command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True, timeout=120)
    if done.returncode or sorted(done.stdout.splitlines()) != ["rank 0 of 2 is right", "rank 1 of 2 is right"]:
        raise SystemExit(f"{wheel.name}: exit code {done.returncode}\n{done.stdout}")
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, and two ranks of it sum")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
