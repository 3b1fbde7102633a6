"""`hocket doctor --on`, of hosts that are namespaces: what is found on each, and which of them do not reach others."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from hosts import Host, reason
from moments import until

pytestmark = pytest.mark.skipif(bool(reason()), reason=reason() or "-")


def doctor(host: Host, *words: str) -> subprocess.CompletedProcess[str]:
    """As one of them tells it, with a program in the place of ssh; nobody listens any more once it has."""
    by = f"{host.agent} {{host}} {sys.executable}"
    command = [sys.executable, "-m", "hocket", "doctor", "-n", "2", "--on", "host0,host1", "--by", by, *words]
    process = host.start(command)
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def test_hosts_that_reach_each_other_and_then_do_not(two: list[Host]) -> None:
    done = doctor(two[0], "--json")
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert [(each["host"], each["ranks"], each["nodes"]) for each in document["hosts"]] == [
        ("host0", 2, 2),
        ("host1", 2, 2),
    ]
    assert [(each["level"], each["found"]) for each in document["between"]] == [
        ("ok", "the same versions on here, host0, host1"),
        ("ok", "2 ways tried, none of them shut"),
    ]
    (way,) = [each for each in document["hosts"][1]["findings"] if each["check"] == "interface"]
    assert way["found"] == f"others come to {two[1].address} (eth0)"

    # host1 sends nothing to host0 but what its neighbours need to find each other: neither gets a connection.
    two[1].ip("route", "add", "prohibit", two[0].address)
    done = doctor(two[0])
    assert done.returncode == 1
    assert "between the hosts: 2 problems" in done.stdout
    text = " ".join(done.stdout.split())
    assert f"host0 cannot reach host1 at tcp://{two[1].address}:" in text
    assert f"host1 cannot reach host0 at tcp://{two[0].address}:" in text
    assert ": no answer within 3 s why: " in text
    assert ": Permission denied why: " in text or ": No route to host why: " in text
    until(lambda: not any(host.listening() for host in two), "all doors shut")


def test_a_host_that_is_not_there(two: list[Host]) -> None:
    by = f"{two[0].agent} {{host}} {sys.executable}"
    process = two[0].start([sys.executable, "-m", "hocket", "doctor", "--on", "host1,host9", "--by", by])
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "problem  hosts: host9 was not seen: exit code 1: no host is called host9" in out
    assert "host1: hocket " in out
