"""HOCKET_PROTOCOL: whether two ranks lend each other slots, and whether the kernel copies what is long from memory to
memory. The bits of what comes of it are the same."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from pathlib import Path

import pytest
from launching import SOURCE, Hocket

TESTS = Path(__file__).resolve().parents[1]

SUMS = """
import hashlib, json
import numpy as np, hocket
group = hocket.init(60)
def given(count, dtype, rank):
    return (np.random.default_rng(count + rank).standard_normal(count) * 1e3).astype(dtype)
found = {}
for dtype in ("float32", "float16", "int16"):
    for count in (513, 30_001, 300_007):
        x = given(count, dtype, rank)
        total = group.all_reduce(x, op="mean" if count == 30_001 else "sum")
        group.all_reduce(x, op="mean" if count == 30_001 else "sum", out=x)
        assert (total.view("u1") == x.view("u1")).all()
        found[f"{dtype} {count}"] = hashlib.sha256(x).hexdigest()
if rank == 0: say(json.dumps(found))
"""


def bits(hocket: Hocket, **environ: str) -> dict[str, str]:
    done = hocket.run("run", "-n", "2", hocket.script(SUMS), environ=environ)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_bits_do_not_depend_on_it(hocket: Hocket) -> None:
    lent = bits(hocket)
    assert lent == bits(hocket, HOCKET_PROTOCOL="lent") == bits(hocket, HOCKET_PROTOCOL="staged")
    assert len(lent) == 9


COPIES = """
import numpy as np, hocket
protocol = sys.argv[1]
os.environ["HOCKET_PROTOCOL"] = ("lent", "staged", "offered", "lent")[rank] if protocol == "mixed" else protocol
group = hocket.init(60)
n = group.size
def given(of, count, turn): return np.arange(count, dtype="f8") * (of + 2) + 1e6 * turn
for turn, count in enumerate((30_000, 5, 60_001, 600_011, 4_000) * 2 + (20_000,) * 160):  # of 148 it is found out
    at = slice(rank * count, (rank + 1) * count)
    all_of_it = np.concatenate([given(of, count, turn) for of in range(n)])
    x = given(rank, count, turn)
    assert (group.all_gather(x) == all_of_it).all(), count
    whole = np.full(n * count, -1.0)
    whole[at] = x
    group.all_gather(whole[at], out=whole)
    assert (whole == all_of_it).all(), count
    whole[:] = rank
    parts = np.concatenate([given(rank, count, turn) + of for of in range(n)])
    assert (group.all_to_all(all_of_it + rank) == parts).all(), count
    root = turn // 80 % n  # of 76 it is found out
    out = x.copy() if rank == root else np.full(count, -1.0)
    group.broadcast(x if rank == root else None, root=root, out=out)
    x[:] = -2
    assert (out == given(root, count, turn)).all(), count
    got = group.scatter(all_of_it if rank == root else None, root=root, out=np.empty(count))
    all_of_it[:] = -3
    assert (got == given(rank, count, turn)).all(), count
    joined = group.gather(got, root=root)
    got[:] = -4
    assert joined is None or (joined == np.concatenate([given(of, count, turn) for of in range(n)])).all(), count
    total = group.all_reduce(given(rank, count, turn))
    assert (total == sum(given(of, count, turn) for of in range(n))).all(), count
if rank == 0: say("right")
"""


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("protocol", ["lent", "staged", "offered", "mixed"])
def test_what_is_copied_is_right_whatever_the_others_do(hocket: Hocket, size: int, protocol: str) -> None:
    done = hocket.run("run", "-n", str(size), hocket.script(COPIES), protocol)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


REFUSED = """
import numpy as np, hocket
from unreadable import become_unreadable
group = hocket.init(20)
x = np.arange(100_000) + rank
def gather(): assert (group.all_gather(x).reshape(2, -1) - np.arange(100_000) == [[0], [1]]).all()
if sys.argv[1] == "at first": become_unreadable()
group.barrier()
for _ in range(5): gather()
if sys.argv[1] == "later":
    become_unreadable()
    group.barrier()
    try: gather()
    except hocket.HocketError as error: say(f"rank {rank}: {type(error).__name__}: {error}")
elif rank == 0: say("right")
"""


def refused(hocket: Hocket, when: str, protocol: str) -> subprocess.CompletedProcess[str]:
    environ = {"HOCKET_PROTOCOL": protocol, "PYTHONPATH": f"{SOURCE}{os.pathsep}{TESTS}"}
    return hocket.run("run", "-n", "2", hocket.script(REFUSED), when, environ=environ)


def test_where_the_kernel_may_not_copy_all_is_staged(hocket: Hocket) -> None:
    done = refused(hocket, "at first", "offered")
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


def test_what_the_kernel_refuses_later_is_told(hocket: Hocket) -> None:
    """And nobody gets a wrong result; nor does it come to that where all is staged."""
    done = refused(hocket, "later", "offered")
    words = r"the memory of rank (0|1) cannot be copied: Operation not permitted \(HOCKET_PROTOCOL=staged does"
    told = re.search(r"HocketError: rank (0|1) \(pid .*" + words, done.stdout)
    assert told, done
    assert told[1] != told[2]
    staged = refused(hocket, "later", "staged")
    assert (staged.returncode, staged.stdout) == (0, ""), staged.stderr


MIXED = """
import numpy as np, hocket
os.environ["HOCKET_PROTOCOL"] = ("staged", "lent")[rank]
group = hocket.init(60)
for count in (600, 100_003, 1_000_001):
    got = group.all_reduce(np.arange(count, dtype="i8") * (rank + 1))
    assert (got == 3 * np.arange(count)).all()
if rank == 0: say("same")
"""


def test_each_rank_may_have_its_own(hocket: Hocket) -> None:
    done = hocket.run("run", "-n", "2", hocket.script(MIXED))
    assert (done.returncode, done.stdout) == (0, "same\n"), done.stderr


@pytest.mark.parametrize(
    ("asked", "sums", "copies"),
    [
        ("", "lend slots", "through slots"),
        ("staged", "send sums back", "through slots"),
        ("offered", "lend slots", "by the kernel"),
    ],
)
def test_info_says_which(hocket: Hocket, asked: str, sums: str, copies: str) -> None:
    facts = json.loads(hocket.run("info", "--json", environ={"HOCKET_PROTOCOL": asked}).stdout)
    assert facts["two ranks"].startswith(sums)
    assert facts["long messages"].startswith(copies)
    assert ("by the kernel" in facts["long messages"]) == (asked != "staged")
    passes = platform.machine() == "x86_64"
    assert ("past the caches" in facts["long messages"]) == (passes and asked != "offered")
    assert ("past" in facts["long results"]) == passes
