"""Writes docs/errors.md: common mistakes and what is printed of them, by making them.

python docs/generate_errors.py
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).with_name("errors.md")

HEAD = """\
# What mistakes look like

<!-- Written by docs/generate_errors.py, which makes them. Change that, not this. -->

Each of these programs is wrong, and below it is what it prints; only pids and the name of the host are others, and
hocket's own lines are left out, as `hocket run` does. An error names the call and its number, who found it, and where
every rank is then: its call, the line of the program, and for how long. What several ranks raise alike is shown once.
Such an error breaks the group: later calls raise `GroupBroken`, which carries it. Wrong arguments are a `TypeError` or
`ValueError` before anything is sent, and break nothing.
"""


class Case(NamedTuple):
    """A mistake: its file's name, what it is, the program, how it is started, and what to know of the answer."""

    file: str
    title: str
    program: str
    command: str
    after: str = ""


BEGIN = """\
import numpy as np
import hocket

group = hocket.init()
"""

CASES = (
    Case(
        "shapes.py",
        "Arrays of different shapes",
        BEGIN + "x = np.ones(1000 if group.rank == 2 else 999, np.float32)\nprint(group.all_reduce(x).sum())\n",
        "hocket run -n 4 shapes.py",
    ),
    Case(
        "order.py",
        "Calls in another order",
        BEGIN
        + "if group.rank == 0:\n    group.barrier()\n    group.broadcast(np.ones(3))\n"
        + "else:\n    group.broadcast()\n    group.barrier()\n",
        "hocket run -n 2 order.py",
    ),
    Case(
        "forgotten.py",
        "A rank that does not make the call",
        BEGIN
        + "group.barrier()\nif group.rank != 1:\n    group.all_reduce(np.ones(3), timeout=1)\n"
        + "else:\n    group.recv(0, tag=9, timeout=60)\n",
        "hocket run -n 3 forgotten.py",
        "The deadline is the call's `timeout`, or that of `hocket.init`, or HOCKET_TIMEOUT, or 30 seconds.",
    ),
    Case(
        "raises.py",
        "A rank that raises",
        BEGIN + "total = group.all_reduce(np.ones(3))\nif group.rank == 1:\n    total.reshape(2, 2)\ngroup.barrier()\n",
        "hocket run -n 4 raises.py",
        "The cause is shown last, and its exit code is the job's.",
    ),
    Case(
        "killed.py",
        "A rank that is killed",
        "import os\nimport signal\n"
        + BEGIN
        + "if group.rank == 2:\n    os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory is short\n"
        + "group.all_gather(np.arange(4.0))\n",
        "hocket run -n 4 killed.py",
    ),
    Case(
        "early.py",
        "A rank that ends early",
        BEGIN + "if group.rank == 0:\n    raise SystemExit\ngroup.barrier()\n",
        "hocket run -n 3 early.py",
    ),
    Case(
        "wrong_op.py",
        "An operation that is none",
        BEGIN + 'group.all_reduce(np.ones(3), "summ")\n',
        "hocket run -n 2 wrong_op.py",
    ),
    Case(
        "objects.py",
        "What is no array of numbers",
        BEGIN + 'group.broadcast({"lr": 0.1})\n',
        "hocket run -n 2 objects.py",
    ),
    Case(
        "unpicklable.py",
        "An object that cannot be pickled",
        BEGIN + "group.all_gather_object(open(__file__))\n",
        "hocket run -n 2 unpicklable.py",
    ),
    Case(
        "comm.py",
        "A name from another library",
        BEGIN + "print(group.Get_rank())\n",
        "hocket run -n 2 comm.py",
        "[From mpi4py](from_mpi4py.md) and [from torch.distributed](from_torch.md) have tables of all names.",
    ),
    Case(
        "typo.py",
        "A program that is no Python",
        BEGIN + "print(group.rank\n",
        "hocket run -n 4 typo.py",
    ),
    Case(
        "crossed.py",
        "Two ranks that both receive first",
        BEGIN
        + "other = 1 - group.rank\ntheirs = group.recv(other, timeout=1 + 60 * group.rank)\n"
        + "group.send(np.arange(3), other)\n",
        "hocket run -n 2 crossed.py",
        "`group.sendrecv(np.arange(3), other, other)` does both at once.",
    ),
    Case(
        "no_room.py",
        "A result that has no room",
        BEGIN + "group.all_gather(np.ones(3), out=np.empty(3))\n",
        "hocket run -n 2 no_room.py",
    ),
    Case(
        "larger.py",
        "An operator that raises",
        BEGIN
        + "\n\ndef larger(a, b, out):\n    out[:] = a if a > b else b\n\n\ngroup.all_reduce(np.arange(3.0), larger)\n",
        "hocket run -n 2 larger.py",
        "`np.maximum(a, b, out=out)` is what it means; an operator gets arrays.",
    ),
    Case(
        "half.py",
        "An algorithm that forgets something",
        BEGIN
        + "from hocket.plans.plan import out, reduce\n\n\ndef half_a_ring(n):\n    c = np.arange(n)\n"
        + "    for step in range(n - 1):\n        at = (c + step) % n\n"
        + "        yield reduce(out((at + 1) % n, c), out(at, c))\n"
        + "\n\ngroup.all_reduce(np.ones(8), algorithm=half_a_ring)\n",
        "hocket run -n 4 half.py",
        "It is found before anything is sent. The line is that of the step that wrote it last, or of the last step.",
    ),
    Case(
        "forgot.py",
        "An algorithm without a yield",
        BEGIN
        + "from hocket.plans import out, reduce\n\n\ndef to_the_first(n):\n    reduce(out(0), out(np.arange(1, n)))\n"
        + "\n\ngroup.reduce(np.ones(8), algorithm=to_the_first)\n",
        "hocket run -n 4 forgot.py",
    ),
    Case(
        "alone.py",
        "A rank whose peers do not come",
        "import hocket\n\nhocket.init(timeout=1)\n",
        "RANK=0 WORLD_SIZE=2 HOCKET_RENDEZVOUS=tcp://127.0.0.1:4711 HOCKET_SECRET=a-secret-of-ours python alone.py",
    ),
    Case(
        "no_secret.py",
        "Several hosts without a secret",
        "import hocket\n\nhocket.init(timeout=1)\n",
        "RANK=0 WORLD_SIZE=2 HOCKET_RENDEZVOUS=tcp://127.0.0.1:4712 python no_secret.py",
    ),
)


def page() -> str:
    """The text of docs/errors.md."""
    with ThreadPoolExecutor(2) as pool, tempfile.TemporaryDirectory() as folder:
        return HEAD + "".join(pool.map(lambda case: section(case, Path(folder)), CASES))


def section(case: Case, folder: Path) -> str:
    """A mistake and what it prints."""
    (folder / case.file).write_text(case.program)
    blocks = [f"\n## {case.title}\n", f"```python\n# {case.file}\n{case.program}```\n"]
    blocks.append(f"```console\n$ {case.command}\n{plain(made(case.command, folder), folder)}```\n")
    return "\n".join([*blocks, *([f"{case.after}\n"] if case.after else [])])


def made(command: str, folder: Path) -> str:
    """What a command prints, in an environment without launchers."""
    kept = {name: value for name, value in os.environ.items() if name in ("HOME", "LD_LIBRARY_PATH")}
    environ = {**kept, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout


def plain(text: str, folder: Path) -> str:
    """Without what differs from run to run, or from one Python to the next."""
    text = text.replace(f"{folder}{os.sep}", "").replace(f" on {socket.gethostname()}", " on node")
    text = re.sub(r"while rank \d+ \(", "while rank 1 (", text)  # whoever found it
    text = re.sub(r"rank \d+ (\(pid \d+ on node\)) (waited|timed out)", r"rank 0 \1 \2", text)
    text = re.sub(r"rank (\d+) \(pid \d+", lambda found: f"rank {found[1]} (pid {4711 + int(found[1])}", text)
    text = re.sub(r"(?m)( failed first: [^;\n]*)$", r"\1; the others were ended", text)  # or had just left
    text = re.sub(r'^  File "/.*\n(    .*\n)*', "", text, flags=re.MULTILINE)  # what hocket run leaves out
    text = re.sub(r", for 0\.\d s$", "", text, flags=re.MULTILINE)
    text = re.sub(r", for [\d.]+( to [\d.]+)? s$", ", for 1.0 s", text, flags=re.MULTILINE)
    return re.sub(r"^ *[~^]+ *\n", "", text, flags=re.MULTILINE)


if __name__ == "__main__":
    PAGE.write_text(page())
