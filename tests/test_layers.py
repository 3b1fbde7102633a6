"""Who may import whom, room by room. The two tables are the architecture; a new arrow is a deliberate line in one.

A *room* is a folder of the source, or a module that lies beside them. Python's imports are read from the text, inside
functions and under TYPE_CHECKING too; C++'s from its includes. Within a room any file may use any other, but never in a
circle.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE, NATIVE_SOURCE = ROOT / "src" / "hocket", ROOT / "csrc"

# From the top of the house to the ground: a room uses only rooms named in its line, all of them further down.
PYTHON = {
    "__main__": "cli",
    "cli": "doctor tcl bench search observe launch rendezvous config tuning plans arrays cores words errors _core",
    "doctor": "observe rendezvous tuning config launchers addresses deadline errors _core",
    "tcl": "group calls launch arrays _core",
    "bench": "torch hocket tuning plans arrays _core",
    "torch": "group calls rendezvous config arrays places words deadline errors",
    "ray": "launch config addresses deadline errors",
    "hocket": "group launch calls plans arrays errors _core",
    "group": "observe calls run rendezvous launch config tuning arrays words deadline errors _core",
    "observe": "calls config words errors _core",
    "calls": "run tuning plans arrays places words deadline errors _core",
    "run": "tuning plans arrays cores errors _core",
    "launch": "rendezvous config places words deadline errors",
    "rendezvous": "tuning config addresses cores words deadline errors _core",
    "search": "tuning plans deadline errors",
    "tuning": "plans errors",
    "plans": "words deadline errors",
    "arrays": "",
    "config": "launchers addresses errors",
    "launchers": "errors",
    "addresses": "errors",
    "places": "",
    "cores": "",
    "words": "",
    "deadline": "",
    "errors": "",
}
NATIVE = {
    "python": "transport messages calls engine kernels wait",
    "transport": "calls messages engine kernels wait",
    "calls": "engine wait",
    "messages": "wait",
    "engine": "kernels wait",
    "kernels": "",
    "wait": "",
}

# A page of plans/algorithms/ knows the words of a plan, the tools to combine plans, and the pages named here.
PAGES = {
    "dissemination": {"bruck"},
    "hierarchical": {"recursive_halving"},
    "two_shot": {"direct"},
    "scatter_all_gather": {"binomial_tree", "ring"},
}
WORDS = {"plan", "partition", "turn", "algorithms.combine", "algorithms.lanes"}

# Packages beyond the standard library and NumPy, and who alone may import them: a room, or one of its files.
PACKAGES = {
    "ml_dtypes": {"arrays", "bench.peers"},
    "msgpack": {"rendezvous"},
    "rich": {"bench.show", "cli"},
    "typing_extensions": {"group"},  # read by type checkers only, which all have it
    "typer": {"cli"},
    "torch": {"torch", "bench.peers"},
    "ray": {"ray"},
    "mpi4py": {"bench.peers"},
    "matplotlib": {"bench.plot"},
    "prometheus_client": {"observe.prometheus"},
}


def name_of(path: Path) -> str:
    """`run/native.py` is `run.native`, `cli/__init__.py` is `cli`, and `__init__.py` itself is `hocket`."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "hocket"


MODULES = {name_of(path): path for path in sorted(SOURCE.rglob("*.py"))}
INCLUDES = sorted(path for path in NATIVE_SOURCE.rglob("*") if path.suffix in (".h", ".cpp"))


def room(module: str) -> str:
    """The room that a module lies in."""
    return module.partition(".")[0]


def imports(module: str, source: str) -> tuple[set[str], set[str]]:
    """The modules of hocket and the foreign top-level packages that a source text imports."""
    ours, foreign = set(), set()
    package = ["hocket", *(module.split(".") if module != "hocket" else [])]
    if module != "hocket" and MODULES.get(module, Path()).name != "__init__.py":
        package.pop()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            up = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*up, *filter(None, [node.module])])
            targets = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            if target.partition(".")[0] == "hocket":
                ours.add(resolve(target))
            else:
                foreign.add(target.partition(".")[0])
    return ours - {module}, foreign


def resolve(target: str) -> str:
    """The module of hocket that `hocket.a.b` names: `a.b` if there is one, else `a`, of which b is a part."""
    name = target.removeprefix("hocket").removeprefix(".")
    while name and name not in MODULES and name != "_core":
        name = name.rpartition(".")[0]
    return name or "hocket"


def violations(module: str, source: str) -> list[str]:
    """What a source text does that its place does not allow."""
    here = room(module)
    if here not in PYTHON:
        return [f"{here}: no room of tests/test_layers.py"]
    ours, foreign = imports(module, source)
    allowed = {here, *PYTHON[here].split()}
    found = [f"{module} imports {name}" for name in sorted(ours) if room(name) not in allowed]
    if module.startswith("plans.algorithms."):
        page = module.removeprefix("plans.algorithms.")
        known = WORDS | {f"algorithms.{other}" for other in PAGES.get(page, ())}
        found += [f"{module} imports {name}" for name in sorted(ours) if name.removeprefix("plans.") not in known]
    packages = {"numpy", *sys.stdlib_module_names}
    packages |= {name for name, users in PACKAGES.items() if any(f"{module}.".startswith(f"{user}.") for user in users)}
    found += [f"{module} imports {name}" for name in sorted(foreign - packages)]
    if room(module) != "config" and reads_environment(source):
        found.append(f"{module} reads the environment, which is config's business")
    return found


def reads_environment(source: str) -> bool:
    """Whether a source text touches the environment in any way but `os.environ.update`, which only hands it on."""
    names = {"environ", "environb", "getenv", "getenvb"}
    nodes = list(ast.walk(ast.parse(source)))
    handed_on = {node.value for node in nodes if isinstance(node, ast.Attribute) and node.attr == "update"}
    touched = {node for node in nodes if isinstance(node, ast.Attribute) and node.attr in names}
    imported = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    return bool(touched - handed_on or imported & names)


def includes(source: str) -> set[str]:
    """The files of ours that a C++ text includes."""
    return set(re.findall(r'^#include "([^"]+)"', source, re.MULTILINE))


def native_violations(here: str, source: str) -> list[str]:
    """What the includes of a file in the room `here` do that its place does not allow."""
    allowed = {here, *NATIVE[here].split()}
    found = [f"{here} includes {name}" for name in sorted(includes(source)) if name.partition("/")[0] not in allowed]
    if here != "python" and re.search(r"#include <(Python\.h|nanobind/|numpy/)", source):
        found.append(f"{here} knows of Python")
    return found


def circle(graph: dict[str, Iterable[str]]) -> list[str]:
    """The nodes of a circle; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_lies_below_it(module: str) -> None:
    assert violations(module, MODULES[module].read_text()) == []


@pytest.mark.parametrize("path", INCLUDES, ids=lambda path: str(path.relative_to(NATIVE_SOURCE)))
def test_a_file_of_the_core_includes_only_what_lies_below_it(path: Path) -> None:
    assert native_violations(path.relative_to(NATIVE_SOURCE).parts[0], path.read_text()) == []


@pytest.mark.parametrize("table", [PYTHON, NATIVE], ids=["python", "native"])
def test_a_room_uses_only_rooms_further_down(table: dict[str, str]) -> None:
    floors = [*table, "_core"]
    for here, below in table.items():
        assert all(floors.index(here) < floors.index(other) for other in below.split()), here


def test_no_permission_is_unused() -> None:
    used: dict[str, set[str]] = {here: set() for here in PYTHON}
    for module, path in MODULES.items():
        used[room(module)] |= {room(name) for name in imports(module, path.read_text())[0]}
    native: dict[str, set[str]] = {here: set() for here in NATIVE}
    for path in INCLUDES:
        here = path.relative_to(NATIVE_SOURCE).parts[0]
        native[here] |= {name.partition("/")[0] for name in includes(path.read_text())}
    assert {here: set(below.split()) - native[here] for here, below in NATIVE.items()} == {
        here: set() for here in NATIVE
    }


def test_files_make_no_circle() -> None:
    modules = {name: imports(name, path.read_text())[0] for name, path in MODULES.items()}
    assert circle(modules) == []
    headers = {str(path.relative_to(NATIVE_SOURCE)): includes(path.read_text()) for path in INCLUDES}
    assert circle(headers) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("plans.plan", "from ..calls.dispatch import Dispatch"),
        ("plans.plan", "from .. import group"),
        ("plans.plan", "def late():\n    import hocket.group"),
        ("plans.plan", "from hocket import Group"),
        ("plans.algorithms.ring", "from ..collectives import find"),
        ("plans.algorithms.ring", "from .direct import reduce_scatter"),
        ("plans.interpret", "from .._core import Program"),
        ("group", "import torch"),
        ("group", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from torch import Tensor"),
        ("group", "import scipy"),
        ("launch.spawn", "import os\nos.environ['RANK']"),
        ("launch.spawn", "from os import getenv"),
        ("nobody", ""),
    ],
)
def test_a_forbidden_import_is_seen(module: str, source: str) -> None:
    assert violations(module, source)


@pytest.mark.parametrize(
    ("here", "source"),
    [
        ("engine", '#include "transport/endpoint.h"'),
        ("calls", '#include "python/cache.h"'),
        ("transport", "#include <Python.h>"),
        ("messages", "#include <nanobind/nanobind.h>"),
    ],
)
def test_a_forbidden_include_is_seen(here: str, source: str) -> None:
    assert native_violations(here, source)


def test_a_circle_is_seen() -> None:
    assert circle({"a": ["b"], "b": ["c"], "c": ["a"]})


def test_importing_hocket_is_light() -> None:
    """A worker that only calls collectives pays for neither the command line nor torch."""
    heavy = "{'torch', 'ray', 'typer', 'rich', 'mpi4py', 'matplotlib', 'sklearn'}"
    command = f"import sys, hocket; print(*{heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
