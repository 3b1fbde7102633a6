"""What hocket imports beside NumPy: every rank of every job pays for it, and each has to wait for the last."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from launching import Hocket

import hocket

PROGRAM = """
import sys, numpy
before = set(sys.modules)
import hocket
{use}
new = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(*sorted(name for name in new if not name.startswith("_")))
"""
KNOWN = {
    "hocket": "",
    "ml_dtypes": "bfloat16 is one of the dtypes",
    "numpy": "its typing",
    "cython_runtime": "msgpack",
    "msgpack": "what ranks tell each other",
    "atexit": "a group that nobody closed tells the others",
    "dataclasses": "",
    "copy": "dataclasses",
    "errno": "",
    "fcntl": "",
    "fractions": "averages of counts are exact",
    "decimal": "fractions",
    "hashlib": "fingerprints",
    "hmac": "who knows the job's secret",
    "bisect": "arenas",
    "heapq": "plans",
    "gc": "not while modules are imported",
    "importlib": "",
    "ipaddress": "interfaces",
    "json": "",
    "pathlib": "",
    "fnmatch": "pathlib",
    "ntpath": "pathlib",
    "nt": "pathlib",
    "urllib": "addresses",
    "resource": "how many descriptors there are",
    "select": "",
    "selectors": "",
    "array": "socket",
    "socket": "",
    "threading": "",
}


def imported(use: str = "") -> set[str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(use=use)], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_rank_imports_what_is_known() -> None:
    assert imported("group = hocket.init(); group.all_reduce(1)") - set(KNOWN) == set()


FIRST_CALLS = """
import hocket, numpy as np
group = hocket.init()
before = set(sys.modules)
for x in (np.ones(8), np.ones(1 << 17), 1.0, [1.0, 2.0, 3.0, 4.0]):
    group.all_reduce(x)
    group.broadcast(x)
for name in "reduce scatter gather all_gather reduce_scatter all_to_all scan exscan".split():
    for x in (np.ones(8), np.ones(1 << 17)):
        getattr(group, name)(x)
group.all_reduce(np.zeros(8, [("value", "f4"), ("place", "i4")]), "maxloc")
for algorithm in "hierarchical hierarchical_chain double_binary_tree recursive_halving".split():
    group.all_reduce(np.ones(8), algorithm=algorithm, order="any")
group.barrier()
say("new", *sorted(set(sys.modules) - before), *{"numpy.ma"} & set(sys.modules))
"""


def test_no_rank_waits_in_its_first_calls_for_what_is_imported(hocket: Hocket) -> None:
    """numpy.unique, say, imports numpy.ma. Nor does it wait for that before."""
    done = hocket.run("run", "-n", "4", hocket.script(FIRST_CALLS))
    assert (done.returncode, done.stdout.splitlines()) == (0, ["new"] * 4), done.stderr


def test_importing_hocket_imports_nothing_else() -> None:
    assert imported() <= {"hocket", "importlib", "gc"}


def test_every_name_is_at_home_where_its_type_is() -> None:
    """Each is written twice in hocket/__init__.py."""
    text = Path(hocket.__file__).read_text()
    told = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) and node.level]
    homes = {name.asname or name.name: str(node.module) for node in told for name in node.names}
    assert sorted(homes) == sorted(hocket.__all__)
    for name, home in homes.items():
        there = importlib.import_module(f"hocket.{home}")
        assert getattr(hocket, name) is getattr(there, "VERSION" if name == "__version__" else name)
    with pytest.raises(AttributeError, match="module 'hocket' has no attribute 'nonsense'"):
        hocket.nonsense  # type: ignore[attr-defined] # noqa: B018


@pytest.mark.parametrize(
    "late", ["asyncio", "multiprocessing", "torch", "typer", "email", "ssl", "traceback", "logging", "difflib"]
)
def test_what_few_need_is_not_imported_for_all(late: str) -> None:
    assert late not in imported("group = hocket.init(); group.all_reduce(1)")


def test_the_launcher_needs_neither_numpy_nor_typer() -> None:
    """It begins before the ranks do."""
    program = """
import sys
from hocket.cli import main
sys.argv = ["hocket", "run", "-n", "1", "true"]
try: main()
except SystemExit as end: print(end.code, *{"numpy", "typer", "rich", "pydantic", "asyncio"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


def test_spawn_is_there_all_the_same() -> None:
    assert "multiprocessing" in imported("assert callable(hocket.spawn) and 'spawn' in dir(hocket)")
    assert "multiprocessing" in imported("from hocket import *; spawn")
