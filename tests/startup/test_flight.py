"""Flight records: what ranks write when an error breaks their group, and what `hocket flight` makes of it."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from launching import Hocket

from hocket.errors import HocketError
from hocket.observe.flight import differences
from hocket.observe.records import Call, Record, Wait, dumped, load

BEGIN = """
import hocket, numpy as np
group = hocket.init(60)
for _ in range(39): group.all_reduce(np.ones(2))
group.barrier()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "of the job" / "flight"


def job(hocket: Hocket, folder: Path, size: int, text: str, *options: str) -> str:
    """Run it with a recorder, until it has failed; its script."""
    script = hocket.script(BEGIN + text)
    environ = {"HOCKET_FLIGHT": str(folder)}
    done = hocket.run("run", "-n", str(size), *options, script, environ=environ)
    assert done.returncode != 0
    return script


def findings(hocket: Hocket, folder: Path) -> tuple[int, list[str]]:
    done = hocket.run("flight", str(folder))
    assert done.stderr == ""
    head, *rest = done.stdout.splitlines()
    assert head.startswith("group ")
    return done.returncode, [line.strip() for line in rest]


def records(folder: Path) -> dict[int, Record]:
    found = [load(file) for file in folder.iterdir()]
    return {record.rank: record for record in found}


# ---- what jobs write -------------------------------------------------------------------------------------------------


def test_one_of_three_is_elsewhere(hocket: Hocket, folder: Path) -> None:
    script = job(
        hocket,
        folder,
        3,
        "group.recv(0, tag=7) if rank == 1 else group.all_reduce(np.ones(3), timeout=1)",
        "--grace=60",
    )
    code, (first, error, *table) = findings(hocket, folder)
    assert code == 1
    assert first.startswith(
        f"rank 1 never entered all_reduce(float64[3], op='sum') (call 41) at {script}:10; "
        f"it is in recv(src=0, tag=7) at {script}:10, for "
    )
    assert "timed out after 1 s" in error
    assert any(
        "all_reduce(float64[3], op='sum') (call 41)" in line and line.endswith("failed, waiting for rank 1")
        for line in table
    )
    found = records(folder)
    assert sorted(found) == [0, 1, 2]
    for rank, record in found.items():
        last = 40 if rank == 1 else 41
        assert [call.number for call in record.calls] == list(range(1, last + 1))
        assert record.calls[0].title == "all_reduce(float64[2], op='sum')"
        assert (record.size, record.condition, record.left) == (3, "", False)
        times = [time for call in record.calls for time in (call.entered, call.left)]
        assert None not in times
        assert times == sorted(time for time in times if time)
        assert (record.formed or 0) < (times[0] or 0)
        assert (times[-1] or 0) < record.at
        assert [call.failed for call in record.calls] == [False] * 40 + [True] * (last - 40)


def test_a_root_without_room_waited_for_who_had_not_read(hocket: Hocket, folder: Path) -> None:
    """Not for the first of those that it sent to."""
    job(
        hocket,
        folder,
        4,
        "x = np.zeros(2_000_000)\n"
        "group.recv(1, tag=7) if rank == 3 else group.broadcast(x, algorithm='direct', timeout=1)\n",
        "--grace=60",
    )
    code, (_, error, *table) = findings(hocket, folder)
    assert code == 1
    assert "in vain for rank 3 (pid " in error
    assert any("broadcast(" in line and line.endswith("failed, waiting for rank 3") for line in table)
    found = records(folder)
    assert [found[rank].calls[-1].waited_for for rank in range(3)] == [3, 0, 0]


def test_who_was_killed_in_the_middle_of_a_call_is_written_by_others(hocket: Hocket, folder: Path) -> None:
    job(
        hocket,
        folder,
        3,
        "def add(a, b, out):\n"
        "    if os.environ['RANK'] == '1': os.kill(os.getpid(), signal.SIGKILL)\n"
        "    np.add(a, b, out)\n"
        "group.all_reduce(np.ones(5), add)\n"
        "group.barrier()\n",
        "--grace=60",
    )
    found = records(folder)
    assert sorted(found) == [0, 1, 2]
    assert found[1].condition == "dead"
    last = found[1].calls[-1]
    assert (last.number, last.left, last.failed) == (41, None, False)
    assert last.title.startswith("all_reduce(float64[5], op=")
    assert all(found[rank].calls[-1].failed and not found[rank].condition for rank in (0, 2))
    code, (first, *_) = findings(hocket, folder)
    assert code == 1
    assert first.startswith("rank 1 never entered barrier() (call 42)")
    assert "; it is dead, in all_reduce(float64[5], op=" in first


def test_who_is_stopped_is_written_by_others(hocket: Hocket, folder: Path) -> None:
    stops = "if rank == 2: os.kill(os.getpid(), signal.SIGSTOP)\ngroup.all_reduce(np.ones(3), timeout=1)\n"
    job(hocket, folder, 3, stops, "--grace=1")
    assert {rank: record.condition for rank, record in records(folder).items()} == {0: "", 1: "", 2: "stopped"}
    code, (first, *_) = findings(hocket, folder)
    assert code == 1
    assert "rank 2 never entered all_reduce(float64[3], op='sum') (call 41)" in first
    assert "; it is stopped, in no call, after barrier() (call 40)" in first


def test_calls_that_differ(hocket: Hocket, folder: Path) -> None:
    job(hocket, folder, 3, "group.barrier() if rank == 0 else group.all_reduce(np.ones(3))", "--grace=60")
    code, (first, *_) = findings(hocket, folder)
    assert code == 1
    one, two = first.split(", but ")
    assert one.startswith("rank 0 made barrier() (call 41)")
    assert two.startswith("ranks 1, 2 made all_reduce(float64[3], op='sum') (call 41)")


def test_as_json(hocket: Hocket, folder: Path, tmp_path: Path) -> None:
    job(hocket, folder, 2, "group.barrier() if rank == 0 else group.all_reduce(np.ones(3))", "--grace=60")
    (group,) = json.loads(hocket.run("flight", str(folder), "--json", "-").stdout)
    assert (group["size"], [rank["rank"] for rank in group["ranks"]]) == (2, [0, 1])
    assert group["differences"][0]["words"].startswith("rank 0 made barrier()")
    assert group["ranks"][1]["calls"][-1]["title"] == "all_reduce(float64[3], op='sum')"
    file = tmp_path / "all.json"
    done = hocket.run("flight", str(folder), "--json", str(file))
    assert done.stdout.startswith("group ")
    assert json.loads(file.read_text()) == [group]


def test_each_group_has_its_own(hocket: Hocket, folder: Path) -> None:
    half = "half = group.split(rank % 2)\nforever() if rank == 3 else half.barrier(timeout=1 if rank == 1 else 60)\n"
    job(hocket, folder, 4, half, "--grace=60")
    ones = [json.loads(file.read_text()) for file in folder.iterdir()]
    assert {record["error"].count("timed out") for record in ones if len(record["pids"]) == 2} >= {1}
    done = hocket.run("flight", str(folder))
    assert done.returncode == 1
    assert "rank 1 never entered barrier() (call 1)" in done.stdout


def test_nothing_is_written_unasked_or_in_peace(hocket: Hocket, folder: Path) -> None:
    done = hocket.run("run", "-n", "2", hocket.script(BEGIN + "group.close()"), environ={"HOCKET_FLIGHT": str(folder)})
    assert done.returncode == 0
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_to(hocket: Hocket, folder: Path) -> None:
    """The error counts, and is what it was."""
    folder.parent.mkdir()
    folder.write_text("a file")
    script = hocket.script(BEGIN + "group.barrier() if rank == 0 else group.all_reduce(np.ones(3))")
    done = hocket.run("run", "-n", "2", script, environ={"HOCKET_FLIGHT": str(folder)})
    assert f"the flight record cannot be written to {folder}" in done.stderr
    assert "MismatchError" in done.stderr


# ---- what is made of them --------------------------------------------------------------------------------------------


def record(rank: int, last: int, *, size: int = 3, **fields: Any) -> Record:
    """Of a rank that has made so many calls, one in each second, and has left the last one."""
    calls = tuple(
        Call(n, "k", "barrier()", n * 10**9, n * 10**9 + 1000, failed=False, waited_for=None, place="")
        for n in range(1, last + 1)
    )
    made = Record(
        "9", rank, 70 + rank, "h", 1, (70,) * size, left=False, error="", calls=calls, waits=(), at=(last + 2) * 10**9
    )
    return made._replace(**fields)


def words(*those: Record) -> list[str]:
    return [finding.words for finding in differences(those)]


def changed(one: Record, **fields: Any) -> Record:
    """With another last call."""
    return one._replace(calls=(*one.calls[:-1], one.calls[-1]._replace(**fields)))


def test_ranks_that_agree() -> None:
    assert words(*(record(rank, 5) for rank in range(3))) == []
    assert words(*(changed(record(rank, 5), failed=True) for rank in range(3))) == []
    assert words(*(record(rank, 0) for rank in range(3))) == []


def test_ranks_behind_the_furthest_first() -> None:
    wait = Wait("recv(src=0, tag=1)", 4 * 10**9, None, "a.py:4")
    assert words(
        record(0, 3, size=4, waits=(wait,)), record(1, 5, size=4), record(2, 2, size=4), record(3, 5, size=4)
    ) == [
        "rank 2 never entered barrier() (call 3); it is in no call, after barrier() (call 2), for 2.0 s",
        "rank 0 never entered barrier() (call 4); it is in recv(src=0, tag=1) at a.py:4, for 1.0 s",
    ]


def test_ranks_that_stay_in_a_call() -> None:
    stays = changed(record(2, 5), left=None)
    expected = "rank 2 is still in barrier() (call 5), for 2.0 s, but ranks 0, 1 are through with barrier() (call 5)"
    assert words(record(0, 5), record(1, 5), stays) == [expected]


def test_the_first_call_that_differs() -> None:
    one = record(1, 5)
    calls = [call._replace(kind="other", title="all_reduce()") if call.number > 3 else call for call in one.calls]
    (first,) = words(record(0, 5), one._replace(calls=tuple(calls)), record(2, 5))
    assert first == "rank 1 made all_reduce() (call 4), but ranks 0, 2 made barrier() (call 4)"


def test_ranks_that_wrote_nothing() -> None:
    assert words(record(0, 5), record(2, 5)) == ["rank 1 wrote nothing"]


def test_all_agree_is_exit_code_0(hocket: Hocket, tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"flight-9-rank-{rank}.json").write_text(dumped(record(rank, 5)))
    code, rest = findings(hocket, tmp_path)
    assert (code, rest[0]) == (0, "all did the same, up to barrier() (call 5)")


# ---- what is no record -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is not JSON"),
        ('{"hocket_flight"', "it is not JSON"),
        ("\ud800", "it is not JSON"),
        ("[" * 100000, "it is not JSON"),
        ("[1]", "is no flight record of hocket's"),
        ('{"traceEvents": []}', "is no flight record of hocket's"),
        ('{"hocket_flight": 99}', "was written by another version of hocket"),
        ('{"hocket_flight": 1}', "is damaged"),
        (dumped(record(0, 2)).replace('"rank": 0', '"rank": 3'), "is damaged: what it says of rank"),
        (dumped(record(0, 2)).replace('"number": 2', '"number": "2"'), "is damaged: what it says of number"),
    ],
)
def test_bad_files_are_a_sentence_and_exit_code_2(hocket: Hocket, tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "flight-9-rank-0.json"
    file.write_bytes(text.encode(errors="surrogatepass"))
    done = hocket.run("flight", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"hocket flight: {file}")
    assert says in line


def test_an_empty_folder_says_where_records_come_from(hocket: Hocket, tmp_path: Path) -> None:
    done = hocket.run("flight", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"HOCKET_FLIGHT={tmp_path}" in done.stderr


def test_two_jobs_files_under_one_name(hocket: Hocket, tmp_path: Path) -> None:
    for rank, size in ((0, 3), (1, 4)):
        (tmp_path / f"flight-9-rank-{rank}.json").write_text(dumped(record(rank, 5, size=size)))
    done = hocket.run("flight", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "does not fit the other records of its group" in done.stderr


def spoil(found: Any, noise: random.Random) -> Any:
    """Another value somewhere in it."""
    values = [None, True, -1, 1.5, 10**30, "x", [], {}, [[]], {"rank": 1}]
    if isinstance(found, dict) and found and noise.random() < 0.9:
        key = noise.choice(sorted(found))
        return {**found, key: spoil(found[key], noise)} if noise.random() < 0.9 else {**found, "more": 1}
    if isinstance(found, list) and found and noise.random() < 0.9:
        index = noise.randrange(len(found))
        return [*found[:index], spoil(found[index], noise), *found[index + 1 :]]
    return noise.choice(values)


def test_records_in_which_anything_is_another_value(tmp_path: Path) -> None:
    """They are records, of which something can be said, or an error that says what is wrong."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    noise, file = random.Random(seed), tmp_path / "flight-9-rank-0.json"
    good = json.loads(dumped(record(0, 3, waits=(Wait("recv()", 1, None, ""),))))
    refused = 0
    for _ in range(500):
        file.write_text(json.dumps(spoil(good, noise)))
        with suppress(HocketError):
            assert differences([load(file), record(1, 4)])
            continue
        with pytest.raises(HocketError, match=str(file)):
            load(file)
        refused += 1
    assert 50 < refused < 500
