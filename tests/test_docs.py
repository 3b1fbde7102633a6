"""The pages tell the truth: their programs run, and print what the pages say.

In a page, the Python blocks are one program, and a block of `text` after one of them is what that one prints. A Python
block that begins with a file name in a comment is a file of its own, and a block of `console` is a command and what it
prints, where the page says that; ranks may print in any order.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.main import get_command

import hocket
from hocket.cli.app import COMMANDS, _add
from hocket.config import Config
from hocket.plans.collectives import COLLECTIVES

ROOT = Path(__file__).resolve().parent.parent
NAMES = (
    *("tour.md", "own_algorithm.md", "plans.md", "metrics.md", "from_mpi4py.md", "from_torch.md", "simulate.md"),
    *("interchange.md", "search.md", "tune.md"),
)
PAGES = [ROOT / "README.md", *(ROOT / "docs" / name for name in NAMES)]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_programs_of_a_page_print_what_it_says(page: Path, tmp_path: Path) -> None:
    names: dict[str, object] = {"__name__": page.stem}
    shown = None
    for language, text in BLOCK.findall(page.read_text()):
        file = re.match(r"# (\w+\.py)\n", text)
        if language == "python" and file:
            (tmp_path / file[1]).write_text(text)
        elif language == "python":
            stream = io.StringIO()
            with contextlib.redirect_stdout(stream):
                exec(compile(text, page.name, "exec"), names)
            shown = stream.getvalue()
        elif language == "text":
            assert shown == text
        elif language == "console":
            command, _, expected = text.partition("\n")
            printed = run(command, tmp_path)
            assert not expected or sorted(printed) == sorted(expected.splitlines())


def run(command: str, folder: Path) -> list[str]:
    """The lines that `$ hocket ...` prints in `folder`."""
    prompt, program, *arguments = shlex.split(command)
    assert (prompt, program) == ("$", "hocket")
    line = [sys.executable, "-m", "hocket", *arguments]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_reference_is_what_the_docstrings_say() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "generate_api.py"))["page"]()
    assert page == (ROOT / "docs" / "api.md").read_text(), "run: python docs/generate_api.py"


def test_the_tests_that_a_page_names_are_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.\w+)(?:::|: )(\w+)`", (ROOT / "docs" / "security.md").read_text())
    assert len(named) > 20
    for file, name in named:
        assert re.search(rf"^(def|void) {name}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file}: {name}"


EVERY = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BEFORE = r"^(?:sudo |\w+=\S+ |srun (?:-\S+ \S+ )*|ulimit [^;]*; )*(?:python3? -m )?"
COMMAND = re.compile(f"{BEFORE}hocket (.*?)(?: +(?:#|&& |\\| ).*)?$", re.MULTILINE)


@pytest.mark.parametrize("page", [p for p in EVERY if p.name not in ("api.md", "errors.md")], ids=lambda p: p.name)
def test_what_a_program_uses_is_there(page: Path) -> None:
    """Also in blocks that are a part of a program, and in those that need a cluster. Not in errors.md, which is made by
    running programs with mistakes."""
    for language, text in BLOCK.findall(page.read_text()):
        if language == "python":
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    there = {"hocket": hocket, "group": hocket.Group}.get(node.value.id)
                    assert there is None or hasattr(there, node.attr) or find_spec(f"hocket.{node.attr}"), text


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.name)
def test_the_commands_of_a_page_are_there(page: Path) -> None:
    """With these options, also of those that need a cluster."""
    for language, text in BLOCK.findall(page.read_text()):
        if language in ("sh", "console"):
            lines = re.sub(r"\\\n\s*", " ", text)
            typed = lines if language == "sh" else "\n".join(re.findall(r"^\$ (.*)$", lines, re.MULTILINE))
            for words in COMMAND.findall(typed):
                understood(shlex.split(words))


@cache
def commands() -> Any:
    """All of them, as click's."""
    every = typer.Typer()
    every.callback()(lambda: None)
    for name in COMMANDS:
        _add(every, name, f"hocket.cli.{name}")
    return get_command(every)


def understood(words: list[str]) -> None:
    """Raises click's error where no command takes these words."""
    command = commands()
    while hasattr(command, "commands"):
        name, *words = words
        assert name in command.commands, f"hocket has no {name}"
        command = command.commands[name]
    try:
        command.make_context("hocket", words)
    except Exception as error:
        if "does not exist" not in str(error):  # a file of whoever reads the page
            raise


def test_a_command_that_is_none_is_seen() -> None:
    for wrong in ("simulated", "plan drawn", "plan draw all_reduce ring --sgv x", "choose all_reduce --ranks"):
        with pytest.raises(Exception, match=r"has no|No such option|requires an argument"):
            understood(wrong.split())


def test_the_cells_of_the_page_on_notebooks_print_what_it_says() -> None:
    blocks = BLOCK.findall((ROOT / "docs" / "notebooks.md").read_text())
    cells = "\n".join(text for language, text in blocks if language == "python")
    shown = "".join(text for language, text in blocks if language == "text")
    command = [sys.executable, "-q", "-i"]  # a prompt: what is typed there is in no file, as in a notebook
    done = subprocess.run(command, input=cells, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == shown, done.stderr


PLAYED = {ROOT / "docs" / "pictures" / f"{name}.html" for name in COLLECTIVES}  # which the site is made with


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        if "://" not in target:
            there = page.parent / target if target else page
            assert there.exists() or there in PLAYED, target
            assert not anchor or anchor in anchors(there), f"{target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """What a link to a heading of a page ends in."""
    text = BLOCK.sub("", page.read_text())
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_list_of_decisions_is_whole_and_in_order() -> None:
    listed = re.findall(
        r"^(\d+)\. \[(.+)\]\(decisions/(.+)\)$", (ROOT / "docs" / "README.md").read_text(), re.MULTILINE
    )
    there = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [name for *_, name in listed] == [path.name for path in there]
    for (number, title, _), path in zip(listed, there, strict=True):
        assert path.read_text().startswith(f"# {number}. {title}\n"), path.name


def test_the_navigation_of_the_site_names_every_page_once() -> None:
    named = sorted(pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    docs = ROOT / "docs"
    there = {path.relative_to(docs).as_posix() for path in docs.glob("**/*.md")}
    assert "README.md" in there  # of the site this is the README of the repository, and the list of pages is beside it
    assert named == sorted(there | {"pages.md", "changelog.md"})


def pages_of(entry: object) -> list[str]:
    """The pages that a part of the navigation names."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    assert isinstance(parts, Iterable)
    return [page for part in parts for page in pages_of(part)]


# ---- what cannot be run here ----

LAUNCHERS = BLOCK.findall((ROOT / "docs" / "launchers.md").read_text())


def test_the_manifest_for_kubernetes_tells_each_pod_its_place() -> None:
    (text,) = (text for language, text in LAUNCHERS if language == "yaml")
    service, job = yaml.safe_load_all(text)
    assert (service["kind"], job["kind"], job["apiVersion"]) == ("Service", "Job", "batch/v1")
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert service["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"job-name": job["metadata"]["name"]},
    }
    (container,) = pod["containers"]
    given = {each["name"]: each.get("value", "from the secret") for each in container["env"]}
    environ = {"PATH": os.environ["PATH"], "JOB_COMPLETION_INDEX": str(spec["completions"] - 1), **given}
    (script,) = container["args"]
    prelude = "getent() { true; }; python() { env; }; "
    command = [*container["command"], prelude + script.replace("exec ", "")]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=20, check=True)
    place = Config.from_env(dict(line.split("=", 1) for line in done.stdout.splitlines()))
    assert (place.rank, place.size) == (spec["parallelism"] - 1, spec["completions"])
    assert place.address.startswith(f"tcp://{job['metadata']['name']}-0.{service['metadata']['name']}:")
    assert pod["subdomain"] == service["metadata"]["name"]


def test_the_script_for_slurm_tells_each_task_where_to_meet() -> None:
    (script,) = (text for language, text in LAUNCHERS if text.startswith("#!/bin/bash\n#SBATCH"))
    options = dict(word.removeprefix("--").split("=") for word in script.splitlines()[1].split()[1:])
    prelude = "scontrol() { printf 'first\\nsecond\\n'; }; srun() { env; }; "
    environ = {
        "PATH": os.environ["PATH"],
        "SLURM_JOB_NODELIST": "many",
        "SLURM_CPUS_PER_TASK": options["cpus-per-task"],
    }
    done = subprocess.run(
        ["bash", "-euc", prelude + script], capture_output=True, text=True, env=environ, timeout=20, check=True
    )
    said = dict(line.split("=", 1) for line in done.stdout.splitlines())
    place = Config.from_env({**said, "SLURM_PROCID": "7", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "3"})
    assert (place.rank, place.size, place.local_rank) == (7, 8, 3)
    assert place.address == "tcp://first:4711"
    assert said["OMP_NUM_THREADS"] == options["cpus-per-task"]
