"""The command line beside `run`: help, version, info."""

from __future__ import annotations

import json
import os
import re
from importlib.metadata import version

from launching import Hocket

from hocket.doctor.findings import Here
from hocket.doctor.machine import judge_vectors, read_vectors
from worlds import libucp


def test_help_teaches(hocket: Hocket) -> None:
    assert "hocket run -n 4 train.py" in hocket.run("--help").stdout
    text = hocket.run("run", "--help").stdout
    for word in (
        "--tag-output",
        "--timeout",
        "--module",
        "N|auto",
        "OMP_NUM_THREADS is set to 1",
        "-m my_package.train",
    ):
        assert word in text


def test_no_command_is_the_help(hocket: Hocket) -> None:
    done = hocket.run()
    assert "Usage: hocket" in done.stdout + done.stderr


def test_version(hocket: Hocket) -> None:
    assert hocket.run("--version").stdout == f"hocket {version('hocket')}\n"


def test_commands_of_plans_and_their_old_names(hocket: Hocket) -> None:
    text = hocket.run("plan", "--help").stdout
    assert all(f" {name} " in text for name in ("list", "show", "check", "count", "draw"))
    for arguments in (("show", "all_reduce", "ring", "-n", "3"), ("check", "all_reduce", "ring", "-n", "1-4")):
        assert hocket.run(*arguments).stdout == hocket.run("plan", *arguments).stdout != ""
    said = hocket.run("--help").stdout
    assert " plan " in said
    assert " show " not in said


def test_info(hocket: Hocket) -> None:
    facts = json.loads(hocket.run("info", "--json").stdout)
    assert facts["hocket"] == version("hocket")
    assert facts["cores"] == len(os.sched_getaffinity(0))
    domains, nodes = facts["cache domains"], facts["numa nodes"]
    assert all(
        re.match(r"1$|\d+; this process is bound to (number \d+|none of them)$|not told", text)
        for text in (domains, nodes)
    )
    (vectors,) = judge_vectors(read_vectors(Here()))  # which ask the kernel, and not the processor
    assert vectors.found == f"kernels for {facts['kernels']}" or (facts["kernels"] == "SSE2" and vectors.remedy)
    assert (facts["launcher"], facts["place"], facts["variables"]) == ("none", "rank 0 of 1", {})
    shown = hocket.run("info", environ={"HOCKET_UCX": libucp(), "UCX_TLS": "posix,tcp"}).stdout
    assert "rank 0 of 1" in shown
    assert re.search(r"ucx +│ 1\.\d+\.\d+", shown)
    assert "posix" in shown


def test_info_within_a_job(hocket: Hocket) -> None:
    done = hocket.run("run", "-n", "2", "-m", "hocket", "info", "--json")
    ranks = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(facts["place"] for facts in ranks) == ["rank 0 of 2", "rank 1 of 2"]
    assert {facts["launcher"] for facts in ranks} == {"hocket run"}
    assert {facts["variables"]["HOCKET_SECRET"] for facts in ranks} == {"(set)"}


def test_info_explains_a_broken_environment(hocket: Hocket) -> None:
    facts = json.loads(hocket.run("info", "--json", environ={"WORLD_SIZE": "2", "HOCKET_UCX": "/no.so"}).stdout)
    assert facts["launcher"] == "unclear"
    assert "RANK is not set" in facts["place"]
    assert re.match(r"none: UCX cannot be loaded \(/no.so: .*HOCKET_UCX", facts["ucx"])
