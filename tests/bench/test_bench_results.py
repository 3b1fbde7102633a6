"""Rows become tables, JSON, CSV, pictures and docs/performance.md; the libraries' processes are stood in for."""

from __future__ import annotations

import csv
import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hocket.bench import show
from hocket.bench.peers import LIBRARIES
from hocket.bench.session import LibraryFailed
from hocket.bench.sweep import Effort, Entry, ratio, side_by_side, take_turns, task_for

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
EFFORT = Effort(rounds=3, times=4)


class Pretend:
    """A session of two ranks whose calls take `seconds` on rank 0 and twice that on rank 1."""

    ranks, dead, hosts = 2, "", ()

    bare = 0.0
    wall = 1e-4

    def __init__(self, name: str, seconds: float, wrong: int = 0, lacks: bool = False, fails: bool = False) -> None:
        self.name, self.seconds, self.wrong, self.lacks, self.fails = name, seconds, wrong, lacks, fails
        self.asked: list[dict[str, Any]] = []

    def ask(self, what: str, **task: Any) -> list[dict[str, Any]]:
        self.asked.append(task)
        if self.fails:
            raise LibraryFailed(f"{self.name} broke off")
        if self.lacks:
            return [{"lacks": True}] * 2
        took = [[self.seconds * factor] * task["times"] for factor in (1, 2)]
        common = {"wall": self.wall, "algorithm": "", "predicted": None, "wrong": self.wrong if task["check"] else 0}
        return [{"seconds": seconds, "bare": [self.bare] * task["times"], **common} for seconds in took]


def rows_of(
    sessions: dict[str, Pretend], size: int = 1 << 20, collective: str = "all_reduce", effort: Effort = EFFORT
) -> list[dict[str, Any]]:
    task = task_for(collective, size, 2, effort, in_place=True)
    entries = [Entry(key, session, task) for key, session in sessions.items()]  # type: ignore[arg-type]
    take_turns(entries, effort)
    return side_by_side(entries)


def test_the_slowest_rank_counts() -> None:
    (row,) = rows_of({"hocket": Pretend("hocket 1", 1e-3)})
    assert row["p50_us"] == row["p99_us"] == pytest.approx(2000)
    assert row["algbw"] == pytest.approx((1 << 20) / 2e-3 / 1e9)
    assert row["busbw"] == row["algbw"]  # 2(n-1)/n is 1 for two
    assert row["samples"] == EFFORT.rounds * EFFORT.times
    assert (row["library"], row["wrong"], row["bytes"], row["count"]) == ("hocket 1", 0, 1 << 20, 1 << 18)


def test_a_ping_pong_is_half_of_there_and_back() -> None:
    (row,) = rows_of({"hocket": Pretend("hocket 1", 1e-3)}, collective="send_recv")
    assert row["p50_us"] == pytest.approx(1000)


def test_what_does_not_count_is_subtracted() -> None:
    session = Pretend("hocket 1", 1e-3)
    session.bare = 0.5e-3
    (row,) = rows_of({"hocket": session}, collective="ddp")
    assert row["p50_us"] == row["p99_us"] == pytest.approx(1500)


def test_libraries_take_turns() -> None:
    order: list[str] = []
    sessions = {key: Pretend(key, 1e-3) for key in ("hocket", "openmpi", "gloo")}
    for session in sessions.values():
        ask = session.ask
        session.ask = lambda what, ask=ask, name=session.name, **task: (order.append(name), ask(what, **task))[1]  # type: ignore[method-assign]
    rows_of(sessions)
    assert order[:9] == [key for key in sessions for _ in range(3)]  # which finds how many fit
    assert order[9:] == [[*sessions][(turn + i) % 3] for turn in range(EFFORT.rounds) for i in range(3)]


def test_results_are_checked_once() -> None:
    session = Pretend("hocket", 1e-3, wrong=3)
    (row,) = rows_of({"hocket": session})
    assert row["wrong"] == 6  # three on each rank
    assert [task["check"] for task in session.asked] == [1, 0, 0, 0, 0, 0]


def test_the_ratio_is_of_the_best_peer() -> None:
    rows = rows_of({"hocket": Pretend("hocket", 1e-3), "openmpi": Pretend("o", 4e-3), "gloo": Pretend("g", 9e-3)})
    assert ratio(rows) == pytest.approx(4)
    assert ratio(rows, lambda key: key == "gloo") == pytest.approx(9)
    assert show.three(ratio(rows[:1])) == "-"


class Unsteady(Pretend):
    """Each time it is asked its calls take another while."""

    def __init__(self, name: str, *seconds: float) -> None:
        super().__init__(name, seconds[0])
        self.next = iter(seconds)

    def ask(self, what: str, **task: Any) -> list[dict[str, Any]]:
        self.seconds = next(self.next)
        return super().ask(what, **task)


def test_the_ratio_is_of_what_was_taken_in_one_round() -> None:
    """The machine is half as fast in hocket's turn of the second round, and in all of the third."""
    sessions = {
        "hocket": Unsteady("h", 1e-3, 1e-3, 1e-3, 1e-3, 2e-3, 2e-3),
        "gloo": Unsteady("g", 3e-3, 3e-3, 3e-3, 1.5e-3, 1.5e-3, 3e-3),
    }
    rows = rows_of(sessions)  # type: ignore[arg-type]
    assert [row["p50_us"] for row in rows] == pytest.approx([4000, 3000])
    assert ratio(rows) == pytest.approx(1.5)
    kept = [{key: value for key, value in row.items() if key != "of_hocket"} for row in rows]
    assert ratio(kept) == pytest.approx(0.75)


@pytest.mark.parametrize(("seconds", "rounds"), [(0.0, 3), (1e9, 12)])
def test_there_are_more_rounds_while_there_is_time(seconds: float, rounds: int) -> None:
    effort = Effort(rounds=3, times=4, again=4, seconds=seconds)
    sessions = {key: Pretend(key, 1e-3) for key in ("hocket", "gloo")}
    rows_of(sessions, effort=effort)
    assert [len(session.asked) for session in sessions.values()] == [3 + rounds] * 2


class Late(Pretend):
    """It starts something at its first call, which takes a second."""

    def ask(self, what: str, **task: Any) -> list[dict[str, Any]]:
        first = not self.asked
        return [{**answer, "wall": 1.0 if first else 1e-4} for answer in super().ask(what, **task)]


def test_what_a_library_does_once_does_not_cost_it_samples() -> None:
    (row,) = rows_of({"hocket": Late("hocket", 1e-3)})
    assert row["samples"] == EFFORT.rounds * EFFORT.times


@pytest.mark.parametrize(
    ("collective", "size", "seconds", "calls"),
    [
        ("all_reduce", 1 << 20, 1.0, 220),
        ("scatter", 1 << 20, 1.0, 440),
        ("all_reduce", 8, 1.0, 7),  # of 32 calls each
        ("all_reduce", 1 << 20, 1e-3, 80),
        ("all_reduce", 1 << 20, 1e-9, 1),
    ],
)
def test_what_a_library_finds_out_comes_before(collective: str, size: int, seconds: float, calls: int) -> None:
    """Two calls and two that warm up take 100 µs."""
    session = Pretend("hocket", 1e-3)
    rows_of({"hocket": session}, size, collective, replace(EFFORT, seconds=seconds))
    assert session.asked[2]["times"] == calls


def test_it_takes_no_longer_than_a_session_waits() -> None:
    """Calls of a second, of which 220 fit into what is asked for."""
    session = Pretend("hocket", 1.0)
    session.wall = 4.0
    rows_of({"hocket": session}, effort=replace(EFFORT, seconds=100.0))
    assert session.asked[2]["times"] == 60


def test_bare_loops_and_other_algorithms_are_no_peers() -> None:
    """They have columns of their own, and are not what is best."""
    times = {"hocket": 2e-3, "hocket two_shot": 3e-3, "gloo": 8e-3, "lean": 1e-3, "pump": 5e-4}
    rows = rows_of({key: Pretend(key, seconds) for key, seconds in times.items()})
    assert ratio(rows) == pytest.approx(4)
    text = printed(show.versus_table(rows, "title"))
    (line,) = (line for line in text.splitlines() if "1 MiB" in line)
    assert line.split()[-4:] == ["4.00", "1.50", "0.500", "0.250"]
    assert [word for word in ("two_shot", "lean", "pump", "gloo") if text.count(word) == 2] == [
        "two_shot",
        "lean",
        "pump",
    ]
    assert show.three(ratio([row for row in rows if row["key"] != "gloo"])) == "-"


def test_what_is_lacking_or_failed_is_left_out() -> None:
    sessions = {
        "hocket": Pretend("hocket", 1e-3),
        "openmpi": Pretend("o", 2e-3, lacks=True),
        "mpich": Pretend("m", 3e-3, fails=True),
        "gloo": Pretend("g", 8e-3),
    }
    rows = rows_of(sessions)
    assert [row["lacks"] for row in rows] == [False, True, False, False]
    assert [row["error"] for row in rows] == ["", "", "m broke off", ""]
    assert ratio(rows) == pytest.approx(8)
    text = printed(show.versus_table(rows, "title"))
    assert "failed" in text
    assert " - " in text


def printed(table: Any) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_tables_have_the_columns_of_nccl_tests() -> None:
    rows = rows_of({"hocket": Pretend("hocket", 1e-3, wrong=1)})
    text = printed(show.own_table([*rows, {**rows[0], "in_place": False, "wrong": 0}], "title"))
    for word in ("size", "count", "type", "op", "p50", "p99", "algbw", "busbw", "wrong", "1048576", "262144", "2000"):
        assert word in text
    assert text.count("busbw") == 2


def test_a_narrow_table_fits_into_a_terminal_of_80_columns() -> None:
    rows = [
        {**row, "bytes": 1 << 30, "algorithm": "hierarchical_chain", "p50_us": 54321.0, "predicted_us": 54321.0}
        for row in rows_of({"hocket": Pretend("hocket", 1e-3)})
        if row["in_place"]
    ]
    console = Console(file=io.StringIO(), width=80)
    console.print(show.own_table(rows, "title", narrow=True))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in text
    for word in (str(1 << 30), "54321", "hierarchical_chain", "busbw"):
        assert word in text


def test_json_and_csv_hold_every_figure() -> None:
    rows = rows_of({"hocket": Pretend("hocket", 1e-3), "gloo": Pretend("gloo", 1e-3, lacks=True)})
    text = io.StringIO()
    show.write_json(rows, text)
    read = json.loads(text.getvalue())
    assert read["machine"]["cores"] >= 1
    assert read["rows"][0] == rows[0]
    assert read["rows"][1]["p50_us"] is None
    text = io.StringIO()
    show.write_csv(rows, text)
    lines = list(csv.DictReader(io.StringIO(text.getvalue())))
    assert [line["key"] for line in lines] == ["hocket", "gloo"]
    assert list(lines[0]) == list(rows[0])
    assert float(lines[0]["p50_us"]) == pytest.approx(2000)


def test_a_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra: pip install hocket[plot]")
    from hocket.bench.plot import plot

    sessions = {"hocket": Pretend("hocket", 1e-3), "gloo": Pretend("gloo", 2e-3)}
    plot([row for size in (8, 1024) for row in rows_of(sessions, size)], tmp_path / "p.png", "title")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def through_torch(ranks: int, seconds: dict[tuple[str, int], tuple[float, float]]) -> list[dict[str, Any]]:
    """Rows of hocket's and gloo's medians, by collective and bytes."""
    rows = []
    for (name, nbytes), times in seconds.items():
        sessions = {key: Pretend(f"{key} (torch 2)", t / 2) for key, t in zip(("hocket", "gloo"), times, strict=True)}
        rows += [{**row, "ranks": ranks} for row in rows_of(sessions, nbytes, name)]
    return rows


def test_the_page_says_met_and_missed(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra: pip install hocket[plot]")
    from page import write

    sessions = {
        "hocket": Pretend("hocket 1", 1e-3),
        "openmpi": Pretend("MPI 2", 2e-3),
        "gloo": Pretend("gloo 3", 19e-3),
    }
    goals = rows_of(sessions, 64 << 20)
    limit = [{**row, "label": label} for row, label in zip(goals, ("fused kernel", "arena", "private"), strict=True)]
    memory = {"Pss_Anon": 1 << 20, "Pss_Shmem": 0, "Rss": 2 << 20}
    found = {
        "machine": show.machine(),
        "date": "today",
        "sizes": [8, 64 << 20],
        "all_reduce 2": goals,
        "all_reduce 4": [{**row, "ranks": 4} for row in goals],
        "others 2": [{**row, "collective": "broadcast"} for row in goals],
        "forms 2": [{**row, "label": "mean"} for row in goals],
        "torch 2": through_torch(
            2,
            {
                ("all_reduce", 4): (5e-6, 1e-4),
                ("all_reduce", 1 << 10): (5e-6, 45e-6),
                ("all_reduce", 64 << 10): (5e-6, 30e-6),
                ("all_gather", 1 << 10): (5e-6, 30e-6),
                ("barrier", 0): (5e-6, 95e-6),
                ("ddp", 0): (1e-4, 5.5e-4),
                ("fsdp2", 0): (1e-2, 0.9e-2),
            },
        ),
        "torch 4": through_torch(4, {("all_reduce", 4): (5e-6, 1e-4)}),
        "torch 2x2": through_torch(4, {("all_reduce", 4): (5e-6, 6e-6), ("ddp", 0): (1e-4, 1.9e-4)}),
        "arena": limit,
        "protected": [{**row, "label": label} for row, label in zip(goals[:2], ("in place", "protected"), strict=True)],
        "dtypes 2": [{**goals[0], "label": "float32"}, {**goals[1], "label": "bfloat16"}],
        "crowd 8": goals,
        "waiting 2": {"hocket 1": 0.001, "MPI 2": 0.9},
        "memory": {"before init": memory, "after init": {**memory, "Pss_Shmem": 65 << 20}},
        "overlap": "hidden\n",
    }
    write(found, tmp_path)
    page = (tmp_path / "performance.md").read_text()
    assert any("| 2.00 | 2.20 | **missed** | 19.0 | **missed** |" in line for line in page.splitlines())  # two ranks
    assert any("| 2.00 | 1.80 | met | 19.0 | **missed** |" in line for line in page.splitlines())  # four
    for text in (
        "hocket bench all --ranks 2 --sizes 8,64M --vs all",
        "at most 1.3 | **missed**",
        "0.10% | met",
        "| 65.0 |",
    ):
        assert text in page
    for line in (
        "| all_reduce | 4 B | 5.00 µs | 100 µs | 20.0 | 10, at most 4 µs | **missed** |",
        "| all_reduce | 1 KiB | 5.00 µs | 45.0 µs | 9.00 | 10 | **missed** |",
        "| all_reduce | 64 KiB | 5.00 µs | 30.0 µs | 6.00 | 5 | met |",
        "| all_gather | 1 KiB | 5.00 µs | 30.0 µs | 6.00 |  |  |",
        "| barrier |  | 5.00 µs | 95.0 µs | 19.0 | 20 | **missed** |",
        "| DDP overhead |  | 100 µs | 550 µs | 5.50 | 5 | met |",
        "| FSDP2 overhead |  | 10.0 ms | 9.00 ms | 0.900 | 1 | **missed** |",
        "| all_reduce | 4 B | 5.00 µs | 100 µs | 20.0 | 10 | met |",
        "barrier ddp fsdp2 --api torch --ranks 2 --sizes 4,1K,64K --vs gloo",
        "### 2 hosts x 2",
        "sudo hocket bench all_reduce ddp --api torch --hosts 2x2 --sizes 4 --vs gloo",
        "| all_reduce | 4 B | 5.00 µs | 6.00 µs | 1.20 |  |  |",
        "| DDP overhead |  | 100 µs | 190 µs | 1.90 | 2 | **missed** |",
    ):
        assert line in page
    assert (tmp_path / "performance.png").exists()


def test_the_page_says_what_is_reached_between_hosts() -> None:
    from page import between

    times = {"hocket": 1e-3, "openmpi": 4e-3, "mpich": 2e-3, "gloo": 9e-3, "lean": 7e-4, "pump": 5e-4}

    def rows(keys: str, nbytes: int, **more: object) -> list[dict[str, Any]]:
        return [{**row, **more} for row in rows_of({key: Pretend(key, times[key]) for key in keys.split()}, nbytes)]

    every = "hocket openmpi mpich gloo lean pump"
    page = "\n".join(
        between(
            {
                "sizes": [8, 256 << 10],
                "hosts 2x1": rows(every, 8) + rows(every, 256 << 10) + rows(every, 512),
                "hosts 2x2": rows(every, 8, ranks=4) + rows(every, 4 << 20, ranks=4),
                "shaped 1gbit": rows("hocket gloo pump", 64 << 20, hosts=3, rate="1gbit"),
            }
        )
    )
    shown = "2.00 ms | 8.00 ms | 4.00 ms | 18.0 ms | 1.40 ms | 1.00 ms | 2.00 | 9.00 | 0.700 | 0.500"
    for line in (
        f"| 8 B |  | {shown} | MPI 1, gloo 10 | **missed**: gloo |",
        f"| 256 KiB |  | {shown} | MPI 1.8, lean 0.8 | **missed**: lean |",
        f"| 512 B |  | {shown} |  |  |",
        "| 4 MiB |  | 2.00 ms | 8.00 ms | 4.00 ms | 18.0 ms | 1.00 ms | 2.00 | 9.00 | 0.500 | MPI 2, gloo 2 | met |",
        "| 3 | 64 MiB | 2.00 ms | 18.0 ms | 1.00 ms | 50.0% | **missed** |",
        "hocket bench --hosts 2x2 --vs all --sizes 8,256K",
        "hocket bench --hosts 3x1 --shape 1gbit --vs gloo,pump --sizes 64M",
    ):
        assert line in page, page


def test_the_page_says_how_far_it_is_from_what_two_cores_can_do() -> None:
    from page import limits

    def rows(times: dict[str, float]) -> list[dict[str, Any]]:
        libraries = {key: Pretend(key, seconds) for key, seconds in times.items()}
        return [row for nbytes in (8, 256 << 10) for row in rows_of(libraries, nbytes)]

    pair = rows({"hocket": 10e-6, "write_back": 7e-6, "interleaved": 8e-6})
    crowd = rows({"hocket": 10e-6, "one_round": 20e-6, "two_rounds": 16e-6})
    page = "\n".join(limits({"limits 2": pair, "limits 4": crowd}))
    assert "| 8 B | 20.0 µs | 14.0 µs | 16.0 µs | 1.43 |  |  |" in page
    assert "| 256 KiB | 20.0 µs | 14.0 µs | 16.0 µs | 1.43 | 1.25 | **missed** |" in page
    assert "| 256 KiB | 20.0 µs | 40.0 µs | 32.0 µs | 0.625 |" in page.splitlines()
    assert "### 4 ranks" not in "\n".join(limits({"limits 2": pair}))
    assert limits({}) == []


@pytest.mark.parametrize("key", [key for key in LIBRARIES if key != "hocket"])
def test_what_is_missing_is_named_with_the_way_to_install_it(key: str) -> None:
    advice = LIBRARIES[key].advice()
    assert advice.startswith(LIBRARIES[key].name)
    assert "make bench" in advice
    assert "pip install" in advice


def test_more_ranks_than_cores_give_their_core_away() -> None:
    place = Path("/somewhere")
    for key, word in (("openmpi", "mpi_yield_when_idle"), ("mpich", "MPIR_CVAR_POLLS_BEFORE_YIELD")):
        few, many = (LIBRARIES[key].commands(place, "address", ranks, cores=2)[0] for ranks in (2, 4))
        assert word not in few
        assert word in many
        assert many.index(word) > many.index("/somewhere/bin/mpirun")
    assert len(LIBRARIES["gloo"].commands(place, "address", 3, cores=2)) == 3
