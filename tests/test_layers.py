"""Who may import whom. The table is the architecture; a new module, or a new arrow, is a deliberate line in it.

    cli, torch ─▶ group ─▶ caller ─▶ run ─▶ bind ─▶ plan ─▶ errors       check ─▶ collectives ─▶ plan
                    │                                                    choose ─▶ simulate ─▶ topology
                    └────▶ rendezvous ─▶ store, config                   algorithms ─▶ plan and combine, nothing else

Imports are read from the source, inside functions and under TYPE_CHECKING too. A line for a module that is still to
come does no harm.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "hocket"


def name_of(path: Path) -> str:
    """`run/native.py` is `run.native`, `cli/__init__.py` is `cli`, and `__init__.py` itself is `hocket`."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "hocket"


MODULES = {name_of(path): path for path in sorted(SOURCE.rglob("*.py"))}
NATIVE = "_core"

# One page of algorithms/ may be put together from others: those are named here.
ALGORITHMS = {name: "" for name in MODULES if name.startswith("algorithms.")} | {
    "algorithms.two_shot": "algorithms.direct",
    "algorithms.scatter_all_gather": "algorithms.binomial_tree algorithms.ring",
}
PLANS = "algorithms check collectives count draw partition plan errors"

ALLOWED = {
    # values and arithmetic
    "errors": "",
    "partition": "",
    "plan": "errors",
    "collectives": "partition plan errors",
    **{name: f"plan partition algorithms.combine {others}" for name, others in ALGORITHMS.items()},
    "algorithms.combine": "plan partition",
    "algorithms": "plan collectives errors " + " ".join(ALGORITHMS),
    "symbols": "collectives plan errors",
    "check": "symbols collectives plan errors",
    "count": "collectives plan errors",
    "draw": "count collectives plan errors",
    "bind": "collectives partition plan errors",
    "topology": "errors",
    "simulate": "topology bind plan errors",
    "choose": "simulate topology algorithms plan errors",
    # data
    "ops": "errors",
    "arrays": "ops errors",
    "buffers": "arrays ops errors",
    "shapes": "",
    "arena": "ops errors",
    # execution
    "call": "collectives ops partition plan errors",
    "work": f"errors {NATIVE}",
    "jobs": f"work {NATIVE}",
    "run": "",
    "run.interpret": "bind collectives ops partition plan errors",
    "run.native": f"call arena bind choose topology check collectives ops partition plan errors {NATIVE}",
    "run.torch_p2p": "call bind ops plan errors",
    "run.mpi": "call bind ops plan errors",
    "caller": "run.native call jobs work ops plan errors",
    "short": NATIVE,
    "dispatch": "short caller run.native call buffers shapes algorithms choose ops plan errors",
    "messages": f"caller run.native arrays work ops errors {NATIVE}",
    # processes
    "config": "errors",
    "store": "errors",
    "rendezvous": "store config errors",
    "subgroups": "rendezvous store errors",
    "aftermath": "errors",
    "processes": "store errors",
    "launch": "processes aftermath store config errors",
    "command": "processes aftermath store config errors",
    # fronts
    "group": "short dispatch messages subgroups caller run.native call shapes arrays work rendezvous aftermath config"
    " ops plan errors",
    "hocket": f"group launch work run.interpret {PLANS}",
    "torch": "torch.base torch.group",
    "torch.group": "torch.base torch.monitor torch.reduce_ops torch.tensors torch.uncompiled torch.where torch.work"
    " errors",
    "torch.base": "torch.last_words torch.store torch.uncompiled torch.where torch.work group jobs rendezvous errors",
    "torch.work": "torch.tensors torch.uncompiled messages work errors",
    "torch.monitor": "group errors",
    "torch.store": "store errors",
    "torch.where": "errors",
    "torch.tensors": "ops errors",
    "torch.reduce_ops": "ops errors",
    "torch.last_words": "",
    "torch.uncompiled": "",
    "cli": "cli.bench cli.info cli.run cli.show",
    "cli.info": "config errors",
    "cli.run": "command config errors",
    "cli.show": f"run.interpret {PLANS}",
    "__main__": "cli",
    # the benchmark; its peers/ run as programs of their own, in the environments of other libraries too
    "bench.figures": "",
    "bench.peers": "",
    "bench.peers.data": "",
    "bench.peers.loop": "bench.peers.data",
    "bench.peers.start": "",
    "bench.peers.training": "bench.peers.loop",
    "bench.peers.with_torch": "bench.peers.data bench.peers.loop bench.peers.training torch",
    "bench.peers.with_mpi": "bench.peers.data bench.peers.loop",
    "bench.peers.with_hocket": f"bench.peers.data bench.peers.loop hocket choose ops {NATIVE}",
    "bench.session": "bench.peers",
    "bench.sweep": "bench.figures bench.peers bench.peers.data bench.session",
    "bench.show": "bench.figures bench.peers bench.peers.data bench.sweep",
    "bench.plot": "bench.figures bench.show bench.sweep",
    "bench": "bench.figures bench.peers bench.session bench.sweep bench.show",
    "cli.bench": "bench bench.figures bench.peers bench.peers.data bench.session bench.sweep bench.show bench.plot"
    " algorithms ops errors",
}

# Packages beyond the standard library and NumPy, and the only modules that may import them.
PACKAGES = {
    "ml_dtypes": {"ops", "arrays", "bench.peers.data"},
    "msgpack": {"store", "rendezvous"},
    "rich": {"bench.show", "cli.bench", "cli", "cli.info", "cli.run", "cli.show"},
    "typer": {"cli.bench", "cli", "cli.info", "cli.run", "cli.show"},
    "torch": {name for name in MODULES if name.partition(".")[0] == "torch"}
    | {"run.torch_p2p", "bench.peers.with_torch", "bench.peers.training"},
    "mpi4py": {"run.mpi", "bench.peers.with_mpi"},
}


def imports(module: str, source: str) -> tuple[set[str], set[str]]:
    """The modules of hocket and the foreign top-level packages that a source text imports."""
    ours, foreign = set(), set()
    package = ["hocket", *module.split(".")]
    if module == "hocket" or MODULES.get(module, Path()).name != "__init__.py":
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
    while name and name not in MODULES and name != NATIVE:
        name = name.rpartition(".")[0]
    return name or "hocket"


def violations(module: str, source: str) -> list[str]:
    """What a source text does that its place does not allow."""
    if module not in ALLOWED:
        return [f"{module}: not in the table of tests/test_layers.py"]
    ours, foreign = imports(module, source)
    allowed = {*ALLOWED[module].split(), "numpy", *sys.stdlib_module_names}
    allowed |= {package for package, importers in PACKAGES.items() if module in importers}
    found = [f"{module} imports {name}" for name in sorted((ours | foreign) - allowed)]
    if module != "config" and reads_environment(source):
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


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_lies_below_it(module: str) -> None:
    assert violations(module, MODULES[module].read_text()) == []


def test_the_table_has_no_cycle() -> None:
    graph = {name: set(below.split()) for name, below in ALLOWED.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("plan", "from .bind import bind"),
        ("plan", "from . import check"),
        ("plan", "def late():\n    import hocket.group"),
        ("plan", "from hocket import Group"),
        ("algorithms.ring", "from ..collectives import find"),
        ("algorithms.ring", "from .direct import reduce_scatter"),
        ("run.interpret", "from .._core import Engine"),
        ("group", "import torch"),
        ("group", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from torch import Tensor"),
        ("group", "import scipy"),
        ("launch", "import os\nos.environ['RANK']"),
        ("launch", "from os import getenv"),
        ("nobody", ""),
    ],
)
def test_a_forbidden_import_is_seen(module: str, source: str) -> None:
    assert violations(module, source)


def test_importing_hocket_is_light() -> None:
    """A worker that only calls collectives pays for neither the command line nor torch."""
    heavy = "{'torch', 'typer', 'rich', 'mpi4py', 'matplotlib', 'sklearn'}"
    command = f"import sys, hocket; print(*{heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
