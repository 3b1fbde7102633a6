"""`hocket bench` as a user types it, with real processes."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import hocket
from hocket.bench import sweep
from hocket.bench.hosts import reason
from hocket.bench.peers import APIS, LIBRARIES, LIMITS, ROUNDS, Peer
from hocket.bench.peers.data import COLLECTIVES, OBJECTS, SCANS
from hocket.bench.session import LibraryFailed, Session
from hocket.cli import bench
from hocket.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
CALLED = [*(("numpy", key) for key in LIBRARIES if key != "hocket"), ("torch", "hocket")]
TINY = ["-n", "3", "-w", "1", "--rounds", "2", "--seconds", "0.01"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hocket", "bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


def test_help_teaches() -> None:
    text = re.sub(r"\s+", " ", run("--help").stdout)
    for word in (
        "-b",
        "-e",
        "-f",
        "-n",
        "-w",
        "-c",
        "--ranks",
        "--hosts",
        "--shape",
        "--vs",
        "--json",
        "--csv",
        "--plot",
        "--memory",
        "--form",
    ):
        assert word in text
    assert "hocket bench -b 8 -e 64M -f 8" in text


def test_a_small_run(tmp_path: Path) -> None:
    """Every collective, out of place and in place, checked."""
    table = tmp_path / "figures.csv"
    done = run("all", "--sizes", "8,12K", "-c", "3", "--ranks", "2,3", *TINY, "--json", "-", "--csv", str(table))
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert {row["wrong"] for row in rows} == {0}
    assert {row["ranks"] for row in rows} == {2, 3}
    # ranks x (collectives x sizes x in place or not, send_recv and four of objects x sizes, barrier)
    assert len(rows) == 2 * (10 * 2 * 2 + 5 * 2 + 1)
    assert all(row["p99_us"] >= row["p50_us"] * 0.5 > 0 for row in rows)
    assert {row["algorithm"] for row in rows if row["collective"] == "barrier"} == {"direct"}
    assert len(list(csv.DictReader(table.open()))) == len(rows)


@pytest.mark.parametrize(
    "options",
    [
        ["--form", "persistent"],
        ["--form", "protect"],
        ["--form", "async", "--dtype", "bfloat16"],
        ["--memory", "arena", "--op", "mean", "--dtype", "int32"],
        ["--op", "fmax"],
        ["--algorithm", "ring"],
    ],
    ids=" ".join,
)
def test_ways_to_call(options: list[str]) -> None:
    done = run("all_reduce", "--sizes", "1K", *TINY, *options)
    assert done.returncode == 0, done.stderr
    assert "busbw" in done.stdout
    if "ring" in options:
        assert "ring" in done.stdout


def test_an_algorithm_of_ones_own(tmp_path: Path) -> None:
    """From a file, in turns with one of the book's; its results are checked as all are."""
    (tmp_path / "mine.py").write_text(
        "from hocket.plans.algorithms.ring import all_reduce as ring\n\n\ndef mine(n):\n    yield from ring(n)\n"
    )
    mine = f"{tmp_path}/mine.py:mine"
    options = ("--sizes", "1K", "-a", f"{mine},two_shot", *TINY, "-c", "2", "--json", "-")
    done = run("all_reduce", *options)
    assert done.returncode == 0, done.stderr
    rows = [row for row in json.loads(done.stdout)["rows"] if row["in_place"]]
    assert [row["algorithm"] for row in rows] == [mine, "two_shot"]
    assert {row["wrong"] for row in rows} == {0}


def test_through_torch() -> None:
    """hocket and gloo, called alike, with one torch."""
    torch = pytest.importorskip("torch", reason="the extra: pip install hocket[torch]")
    calls = [("all_reduce", True), ("barrier", False), ("ddp", False), ("fsdp2", False)]
    names = [name for name, _ in calls]
    done = run(*names, "--api", "torch", "--vs", "gloo", "--sizes", "1K", *TINY, "--json", "-")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    version = torch.__version__.partition("+")[0]
    assert {row["library"] for row in rows if row["samples"]} == {
        f"hocket {hocket.__version__} (torch {version})",
        f"gloo (torch {version})",
    }
    measured = [(row["collective"], row["in_place"], row["key"]) for row in rows if row["samples"]]
    assert measured == [(*call, key) for call in calls for key in ("hocket", "gloo")]


def test_beside_the_hocket_of_another_environment(tmp_path: Path) -> None:
    """That has modules of its own, and makes the same calls."""
    other = tmp_path / "other"
    (other / "bin").mkdir(parents=True)
    (other / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (other / "pyvenv.cfg").write_text((Path(sys.prefix) / "pyvenv.cfg").read_text())
    (other / "lib").symlink_to(Path(sys.prefix) / "lib")
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nfrom pathlib import Path\n"
        f"if sys.prefix == {str(other)!r}: Path({str(tmp_path)!r}, 'seen').touch()\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "hocket", "bench", "all_reduce", "--sizes", "1K", "-a", "ring,two_shot"),
            *("--form", "persistent", "--memory", "arena", "--vs", "./other", *TINY, "--json", "-"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [row for row in json.loads(done.stdout)["rows"] if row["in_place"]]
    name = f"hocket {hocket.__version__}"
    assert [(row["library"], row["algorithm"]) for row in rows] == [
        (name, "ring"),
        ("two_shot", "two_shot"),
        (f"{name} (./other)", "ring"),
    ]
    assert {(row["form"], row["memory"], row["wrong"]) for row in rows} == {("persistent", "arena", 0)}
    assert all(row["samples"] and row["of_hocket"] > 0 for row in rows)
    assert (tmp_path / "seen").exists(), "it ran in that environment"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["all_reduced"], "all_reduced"),
        (["all", "figures.json"], 'no collective for --api numpy called "figures.json"'),
        (["ddp"], 'no collective for --api numpy called "ddp"'),
        (["-b", "8X"], "8X"),
        (["-b", "8", "-e", "4"], "no less"),
        (["--sizes", "8,,"], "is not a size"),
        (["--ranks", "two"], "two"),
        (["--ranks", "0"], "at least one"),
        (["--hosts", "2"], '"2" is not such as 2x1 or 2x1,4x2: 2 to 16 hosts x ranks on each'),
        (["--hosts", "2x1,1x2"], '"2x1,1x2" is not such as 2x1'),
        (["--hosts", "2x1", "--ranks", "2"], "leave --ranks out"),
        (["--shape", "1gbit"], "only links between --hosts can be shaped"),
        (["--vs", "lean"], 'no library for --api numpy called "lean"'),
        (["--vs", "nccl"], "nccl"),
        (["--vs", "./nowhere"], "there is no bin/python in ./nowhere"),
        (["--op", "summ"], "Did you mean"),
        (["--dtype", "float31"], "float31"),
        (["--algorithm", "rings"], "rings"),
        (["--form", "maybe"], "maybe"),
        (["--api", "jax"], "jax"),
        (["--api", "torch", "--vs", "openmpi"], 'no library for --api torch called "openmpi", only gloo'),
        (["--api", "torch", "--algorithm", "ring"], 'torch.distributed has no "ring"'),
        (["--api", "torch", "--memory", "arena"], 'torch.distributed has no "arena"'),
        (["--api", "torch", "--form", "persistent"], 'torch.distributed has no "persistent"'),
        (["--api", "torch", "--op", "fmax"], 'torch.distributed has no "fmax"'),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(arguments: list[str], word: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert word in re.sub(r"\s*│?\n│?\s*", " ", done.stderr)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_bare_loops_over_shared_memory_sum(ranks: int) -> None:
    """Parts that are not equal, pieces and chunks that are not full, rings that go around, and what they lack."""
    effort = sweep.Effort(rounds=1, times=2, warmup=0, seconds=0.01)
    sizes = {4, 12, 64 << 10, 256 << 10, (4 << 20) + 4, 4 << 20}
    with sweep.Field(LIMITS | ROUNDS, ranks) as field:
        rows = [
            r
            for size in sizes
            for r in field.compare(sweep.task_for("all_reduce", size, ranks, effort, in_place=True), effort)
        ]
        none = field.compare(sweep.task_for("all_reduce", 4, ranks, effort), effort)
    assert len(rows) == 4 * len(sizes)
    for row in rows:
        assert (row["wrong"], row["error"]) == (0, ""), row
        assert bool(row["samples"]) == (ranks == 2 or row["key"] in ROUNDS), row
    assert not any(row["samples"] for row in none)


@pytest.mark.skipif(bool(reason()), reason=reason() or "-")
def test_over_hosts() -> None:
    """The links are as slow as they are asked to be: a bucket of 128 KiB at either end is through at once. Another
    algorithm takes turns with the first, and the bare loops with them."""
    words = ("--hosts", "2x1", "--shape", "1gbit", "--vs", "lean,pump", "--sizes", "1M", "-a", "one_shot,ring")
    done = run("--json", "-", *words, *TINY, "-c", "2")
    assert done.returncode == 0, done.stderr
    rows = [row for row in json.loads(done.stdout)["rows"] if row["in_place"]]
    assert [row["key"] for row in rows] == ["hocket", "hocket ring", "lean", "pump"]
    assert [row["algorithm"] for row in rows] == ["one_shot", "ring", "", ""]
    for row in rows:
        assert (row["hosts"], row["ranks"], row["rate"], row["wrong"]) == (2, 2, "1gbit", 0)
        assert row["p50_us"] > 1e6 * 8 * ((1 << 20) - (256 << 10)) / 1e9, row


def test_hosts_take_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    done = command("--hosts", "2x1")
    assert done.exit_code == 2
    assert "hosts are network namespaces, which only root can make" in re.sub(r"\s*│?\n│?\s*", " ", done.output)


class Spoilt(sweep.Field):
    """Three elements of every result of hocket's are wrong."""

    def compare(self, task: Any, effort: Any) -> list[dict[str, Any]]:
        return [{**row, "wrong": 3} for row in super().compare(task, effort)]


def test_wrong_results_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "Field", Spoilt)
    done = command("--sizes", "8", *TINY)
    assert done.exit_code == 1
    assert re.search(r"\b3\b", done.output)


def test_a_plot_without_matplotlib_is_refused_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "find_spec", lambda _: None)
    done = command("--plot", "figure.png")
    assert done.exit_code == 2
    assert "hocket[plot]" in done.output


def test_json_to_a_file_beside_the_tables(tmp_path: Path) -> None:
    """Where nobody else was measured, nobody is compared with."""
    done = command("--sizes", "8", "--json", str(tmp_path / "figures.json"), *TINY)
    assert done.exit_code == 0
    assert "busbw" in done.output
    assert "best peer" not in done.output
    rows = json.loads((tmp_path / "figures.json").read_text())["rows"]
    assert {(row["key"], row["bytes"], row["wrong"]) for row in rows} == {("hocket", 8, 0)}


def test_help_shows_no_type_of_flags() -> None:
    for name in ([], ["run"], ["bench"]):
        command = [sys.executable, "-m", "hocket", *name, "--help"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert "--help" in done.stdout
        assert not re.search(r"bool", done.stdout, re.IGNORECASE)


def test_an_absent_peer_is_named_and_the_rest_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    absent = replace(LIBRARIES["mpich"], places=[tmp_path / ".venv-mpich"])
    monkeypatch.setitem(LIBRARIES, "mpich", absent)
    done = command("--sizes", "8", "--vs", "mpich", *TINY)
    assert done.exit_code == 0
    assert "MPICH is not installed" in done.output
    assert "busbw" in done.output


@pytest.mark.parametrize(("api", "key"), CALLED)
def test_the_peers_calls_are_right(api: str, key: str) -> None:
    """Where a peer is installed: whatever it has of the collectives gives what NumPy says."""
    if APIS[api][key].place() is None:
        pytest.skip(APIS[api][key].advice())
    if api == "torch":
        pytest.importorskip("torch")
    effort, had = sweep.Effort(rounds=1, times=3, warmup=1, check=3, seconds=0.01), set()
    with sweep.Field({key: APIS[api][key]}, 2) as field:
        for name in COLLECTIVES:
            for in_place in (False, True) if name not in OBJECTS else (False,):
                (row,) = field.compare(sweep.task_for(name, 12 << 10, 2, effort, in_place=in_place), effort)
                assert (row["wrong"], row["error"]) == (0, ""), name
                had |= {name} if row["samples"] else set()
        for name in (*SCANS, *OBJECTS) if api == "numpy" and key != "gloo" else ():
            for form in ("call", "persistent", "async"):
                (row,) = field.compare(sweep.task_for(name, 12 << 10, 2, effort, form=form), effort)
                assert (row["wrong"], row["error"], row["lacks"]) == (0, "", form != "call" and name in OBJECTS), name
        for options in ({"op": "mean"}, {"op": "fmax"}, {"form": "async"}, {"form": "persistent"}, {"form": "protect"}):
            (row,) = field.compare(sweep.task_for("all_reduce", 12 << 10, 2, effort, in_place=True, **options), effort)
            assert (row["wrong"], row["error"]) == (0, ""), options
    assert had == set(COLLECTIVES) - ({*SCANS, *OBJECTS} if key in ("gloo", "hocket") else set())


def command(*arguments: str) -> Any:
    """In this process, so that parts can be replaced."""
    if "bench" not in {each.name for each in app.registered_commands}:
        app.command("bench")(bench.bench)
        app.command("other", hidden=True)(lambda: None)
    return CliRunner().invoke(app, ["bench", *arguments])


def test_a_library_that_ends_says_why() -> None:
    broken = replace(LIBRARIES["hocket"], script="nothing_of_that_name")
    with pytest.raises(LibraryFailed, match=r"(?s)hocket with 2 ranks broke off.*nothing_of_that_name"):
        Session(broken, 2)


def test_ranks_without_a_launcher_can_give_way_to_one_another() -> None:
    """Linux shares the cores out among sessions first."""
    pytest.importorskip("torch")
    with Session(APIS["torch"]["hocket"], 2) as session:
        places = {(os.getsid(process.pid), os.getpgid(process.pid)) for process in session._processes}
        assert places == {(os.getsid(0), process.pid) for process in session._processes}


def test_a_session_leaves_no_process() -> None:
    with Session(LIBRARIES["hocket"], 2) as session:
        assert session.name.startswith("hocket ")
        answers = session.ask("memory")
        assert answers[0]["after"]["Rss"] > 0
        processes = session._processes
    assert all(process.poll() is not None for process in processes)


def test_a_failed_task_ends_the_session_and_tells() -> None:
    with Session(LIBRARIES["hocket"], 2) as session:
        with pytest.raises(LibraryFailed, match="no_such_call"):
            session.ask("time", collective="no_such_call", count=4)
        assert "no_such_call" in session.dead


STUCK = """
import json, socket, sys
address, rank = sys.argv[1], int(sys.argv[2])
with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rw") as stream:
    connection.connect(address)
    print(json.dumps({"library": "stuck 1.0", "rank": rank, "size": 2}), file=stream, flush=True)
    stream.readline()
    if rank == 1:
        print(json.dumps({"error": "rank 1 cannot"}), file=stream, flush=True)
    stream.readline()
"""


def test_who_fails_is_heard_though_another_one_waits_for_it() -> None:
    """Rank 0 never answers, as in a barrier that rank 1 does not come to."""

    class Stuck(Peer):
        def commands(self, place: Path, address: str, ranks: int, *_: Any) -> list[list[str]]:
            return [[sys.executable, "-c", STUCK, address, str(rank)] for rank in range(ranks)]

    stuck = Stuck("stuck", "none", [Path(sys.prefix)], "bin/python", "stuck")
    with Session(stuck, 2) as session, pytest.raises(LibraryFailed, match="rank 1 cannot"):
        session.ask("time")


def test_the_example_of_overlap() -> None:
    command = [sys.executable, "-m", "hocket", "run", "-n", "2", str(ROOT / "examples" / "overlap.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    for line in (
        r"compute only +[\d.]+ ms",
        r"communicate only +[\d.]+ ms",
        r"both at once +[\d.]+ ms",
        r"overlap +-?\d+%",
    ):
        assert re.search(line, done.stdout), done.stdout
