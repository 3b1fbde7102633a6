"""HOCKET_PROTOCOL: whether two ranks lend each other slots. The bits of a sum are the same."""

from __future__ import annotations

import json

import pytest
from launching import Hocket

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


@pytest.mark.parametrize(("asked", "said"), [("", "lend slots"), ("staged", "send sums back")])
def test_info_says_which(hocket: Hocket, asked: str, said: str) -> None:
    facts = json.loads(hocket.run("info", "--json", environ={"HOCKET_PROTOCOL": asked}).stdout)
    assert facts["two ranks"].startswith(said)
