"""How `hocket doctor` tells what it found, here and of several hosts."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from hocket.deadline import Deadline
from hocket.doctor import door, hosts
from hocket.doctor.findings import Finding, Level
from hocket.doctor.report import Report, Told, headline, lines, merged, tally
from hocket.errors import RendezvousError

NONE, OK, NOTE, WARNING, PROBLEM = Level
VERSIONS = {
    "hocket": "0.1.0",
    "python": "3.11.7",
    "numpy": "2.4.6",
    "torch": "2.13.0",
    "ucx": "1.17.0",
    "MPI": "Open MPI 5.0.11",
}
TOLD = (
    Told("machine", Finding(OK, "cores", "2 cores")),
    Told("machine", Finding(NONE, "clock rate", "no governor")),
    Told("limits", Finding(NOTE, "/dev/shm", "it is small", "it matters little", "make it larger")),
    Told("machine", Finding(OK, "cache", "L2 1 MiB")),
    Told("kernel", Finding(PROBLEM, "memfd", "there is none " * 9, "nothing works", "another kernel")),
)
REPORT = Report("node", 4, 2, VERSIONS, TOLD)


def hocket(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    around = {name: value for name, value in os.environ.items() if not name.startswith(("HOCKET_", "OMP_"))}
    command = [sys.executable, "-m", "hocket", "doctor", *words]
    return subprocess.run(
        command, env={**around, **environ}, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )


# ---- the text --------------------------------------------------------------------------------------------------------


def test_the_worst_comes_first_and_what_is_well_is_short() -> None:
    shown = [f"{line.head}{line.text}" for line in lines(TOLD, 80)]
    assert shown == [
        "problem  kernel: there is none there is none there is none there is none there",
        "         is none there is none there is none there is none there is none",
        "         why: nothing works",
        "         do: another kernel",
        "note     limits: it is small",
        "         why: it matters little",
        "         do: make it larger",
        "ok       machine: 2 cores, L2 1 MiB",
    ]
    assert [line.text for line in lines(TOLD, 80, verbose=True)][-3:] == [
        "machine: 2 cores",
        "machine: no governor",
        "machine: L2 1 MiB",
    ]
    assert headline(REPORT) == "node: hocket 0.1.0, 4 ranks on each of 2 hosts: 1 problem, 1 note"
    assert tally(TOLD[:2]) == "all is well"
    assert REPORT.worst is PROBLEM


def test_what_is_no_text_does_no_harm() -> None:
    told = Told("settings", Finding(NOTE, "names", "HOCKET_\udcff\x1b[2J\n\r", "why", "do"))
    first, *_ = lines([told], 80)
    assert first.text == r"settings: HOCKET_\udcff\x1b[2J\n\r"


def test_a_report_goes_through_json() -> None:
    again = Report.parsed(json.loads(json.dumps(REPORT.fields())))
    assert replace(again, told=()) == replace(REPORT, told=())
    assert sorted(again.told) == sorted(TOLD)
    for wrong in ([], {}, None, {**REPORT.fields(), "findings": [{"level": "awful"}]}):
        with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
            Report.parsed(wrong)


def test_what_hosts_have_in_common_is_told_once() -> None:
    other = replace(REPORT, told=TOLD[:3])
    assert [told.subject for told in merged({"a": REPORT, "b": other})] == ["limits, on all hosts", "kernel, on a"]


# ---- the command -----------------------------------------------------------------------------------------------------


def test_this_machine() -> None:
    """Whatever is found here, it is a document; and a text of 80 columns without colours."""
    done = hocket("--json", "-n", "2")
    found = Report.parsed(json.loads(done.stdout))
    assert (found.host, found.ranks, found.nodes, done.stderr) == (socket.gethostname(), 2, 1, "")
    assert done.returncode == (found.worst is PROBLEM)
    told = [told.finding.level for told in found.told]
    assert told == sorted(told, reverse=True)
    text = hocket("-n", "2", "-v")
    assert max(map(len, text.stdout.splitlines())) <= 80
    assert "\x1b" not in text.stdout
    assert f"{found.host}: hocket {found.versions['hocket']}, 2 ranks: " in text.stdout


def test_a_problem_is_coloured_and_ends_with_1() -> None:
    done = hocket(WORLD_SIZE="2", HOCKET_TIMOUT="3", FORCE_COLOR="1")
    assert done.returncode == 1
    assert re.search(r"\x1b\[1;31mproblem +\x1b\[0m *settings: RANK is not set", done.stdout)
    assert re.search(r"\x1b\[33mwarning +\x1b\[0m *settings: HOCKET_TIMOUT is set", done.stdout)


@pytest.mark.parametrize("words", [("-n", "0"), ("here",)])
def test_wrong_usage(words: tuple[str, ...]) -> None:
    assert hocket(*words).returncode == 2


def test_the_secret_is_not_told() -> None:
    done = hocket("--json", "-v", HOCKET_SECRET="of this test", HOCKET_RENDEZVOUS="tcp://127.0.0.1:1")
    assert "HOCKET_SECRET has 12 characters" in done.stdout
    assert "of this test" not in done.stdout


# ---- other hosts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "why"),
    [
        ("echo {host}", "another version of hocket is there, or something else was printed, too"),
        ("true", "exit code 0"),
        ("/nonexistent/shell {host}", "[Errno 2] No such file or directory: '/nonexistent/shell'"),
        ('ssh "{host}', "No closing quotation"),
        ("sh -c 'echo []'", "another version of hocket is there, or something else was printed, too"),
    ],
)
def test_a_host_that_cannot_be_asked(by: str, why: str) -> None:
    reports, (found,) = hosts.ask(["there"], by, 2)
    assert (reports, found.level, found.found) == ([], PROBLEM, f"there was not seen: {why}")
    found_ways, missed = hosts.ways(["there", "too"], by)
    assert (found_ways, set(missed)) == ([], {"there", "too"})
    for finding, host in zip(hosts.judge_ways([], missed), missed, strict=True):
        assert (finding.level, finding.found.partition(" could not try: ")[0]) == (WARNING, host)


@pytest.mark.parametrize(
    ("name", "version", "level", "words"),
    [
        ("hocket", "0.2.0", PROBLEM, "hocket is 0.1.0 on a, b; 0.2.0 on c"),
        ("ucx", "1.17.1", WARNING, "UCX is 1.17.0 on a, b; 1.17.1 on c"),
        ("python", "3.12.0", WARNING, "Python is 3.11 on a, b; 3.12 on c"),
        ("numpy", "1.26.0", NOTE, "numpy is 1.26 on c; 2.4 on a, b"),
        ("torch", "2.14.0", NOTE, "torch is 2.13 on a, b; 2.14 on c"),
        ("MPI", "MPICH 5.0.2", WARNING, "MPI is MPICH 5.0.2 on c; Open MPI 5.0.11 on a, b"),
    ],
)
def test_hosts_that_differ(name: str, version: str, level: Level, words: str) -> None:
    (found,) = hosts.judge_versions({"a": VERSIONS, "b": VERSIONS, "c": VERSIONS | {name: version}})
    assert (found.level, found.found) == (level, words)
    assert found.why
    assert found.remedy


def test_hosts_that_fit_together() -> None:
    (found,) = hosts.judge_versions({"a": VERSIONS, "b": VERSIONS | {"python": "3.11.9", "kernel": "6.1"}})
    assert (found.level, found.found) == (OK, "the same versions on a, b")


def test_ways_that_are_shut() -> None:
    shut = [hosts.Way(caller, "c", "tcp://c:1", "no answer within 3 s") for caller in "ab"]
    long = hosts.Way("c", "a", "tcp://a:1", "long packets do not come through")
    first, second = hosts.judge_ways([*shut, long, hosts.Way("a", "b", "tcp://b:1", "")], {})
    assert (first.level, first.found) == (PROBLEM, "a, b cannot reach c at tcp://c:1: no answer within 3 s")
    assert "at all ports" in first.remedy
    assert second.found == "c cannot reach a at tcp://a:1: long packets do not come through"
    assert "one MTU" in second.remedy
    (good,) = hosts.judge_ways([hosts.Way("a", "b", "tcp://b:1", "")], {})
    assert (good.level, good.found) == (OK, "1 way tried, none of them shut")


# ---- the door --------------------------------------------------------------------------------------------------------


@pytest.fixture
def opened() -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    """One of another process, at the loopback: its URL, its secret, and the process."""
    environ = {**os.environ, "HOCKET_SOCKET_IFNAME": "=lo"}
    command = [sys.executable, "-m", "hocket.doctor.door", "open", "30"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        yield told["url"], told["secret"], process
        process.kill()


def test_a_door_knows_who_may_knock(opened: tuple[str, str, subprocess.Popen[str]]) -> None:
    url, secret, process = opened
    with socket.create_connection(
        ("127.0.0.1", int(url.rpartition(":")[2]))
    ):  # one that says nothing is in nobody's way
        assert door.knock(url, secret) == ""
    assert "does not know this job's secret" in door.knock(url, secret[:-1] + "x")
    assert door.knock(url, secret) == ""  # it is there for others yet
    assert process.stdout is not None
    process.stdout.close()  # nobody is interested any more
    assert process.wait(10) == 0
    assert door.knock(url, secret) == "Connection refused"


def test_a_door_is_shut_by_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hocket.doctor.door", "open", "0.01"],
        env={**os.environ, "HOCKET_SOCKET_IFNAME": "=lo"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, set(json.loads(done.stdout.splitlines()[0]))) == (0, {"url", "secret"})


def test_who_takes_the_call_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that proves who it is, and never hears what is long: its network carries short packets only."""
    monkeypatch.setattr(door, "PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        assert door.knock(url, "x") == "it is connected, and then nothing comes"
        listener.accept()[0].close()
        monkeypatch.setattr(door, "PATIENCE", 3.0)  # in which it does hear what is short

        def deaf() -> None:
            caller = listener.accept()[0]
            door.verify(caller, b"x", "host", b"door", Deadline(10))
            held.append(caller)

        held: list[socket.socket] = []
        thread = threading.Thread(target=deaf)
        thread.start()
        assert door.knock(url, "x") == "long packets do not come through"
        thread.join()
        held[0].close()


def test_a_door_that_is_asked_for_nonsense() -> None:
    assert [door.main(words) for words in ([], ["open"], ["close", "1"])] == [2, 2, 2]
    for words in (["open", "x"], ["knock", "tcp://a:1"]):
        with pytest.raises(ValueError):
            door.main(words)
    with pytest.raises(RendezvousError, match='"nonsense" is no address'):
        door.main(["knock", "nonsense", "x"])


def test_all_hosts_are_this_one() -> None:
    """With a stand-in for ssh that stays here, at the loopback."""
    by = f"env HOCKET_SOCKET_IFNAME==lo {sys.executable}"
    found, missed = hosts.ways(["a", "b"], by)
    assert missed == {}
    assert [(way.caller, way.host, way.error) for way in found] == [("a", "b", ""), ("b", "a", "")]
    assert hosts.ways(["a"], by) == ([], {})
    script = f"shift 2; [ $1 = knock ] && echo [1 || exec {by} -m hocket.doctor.door $*"
    noise = "something else was printed, too"
    assert hosts.ways(["a", "b"], f"sh -c '{script}' sh") == ([], {"a": noise, "b": noise})
