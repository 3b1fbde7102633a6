"""Timelines: what the ranks of a job did when, as they wrote it."""

from __future__ import annotations

import json
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import numpy as np
from launching import Hocket

from hocket.observe.timeline import behind

JOB = """
import hocket, numpy as np
with hocket.init(20) as group:
    for length in (2, 100000): group.all_reduce(np.ones(length, "f4"))
    half = group.split(rank % 2)
    half.barrier(); half.close()
    if rank == 0:
        group.send(np.ones(3, "u1"), 1)
        group.send(np.ones(3, "u1"), 2, async_op=True).wait()
    elif rank < 3: group.recv(0)
    group.barrier()
    try: group.all_reduce(np.ones(2 + rank))
    except hocket.MismatchError: pass
"""


def events(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(file.read_text())["traceEvents"]
    return found


def test_every_call_and_message_of_every_rank_is_there(hocket: Hocket, tmp_path: Path) -> None:
    folder = tmp_path / "of" / "the job"
    folder.mkdir(parents=True)
    (folder / "rank-7.json").write_text("of an earlier job")
    done = hocket.run("run", "-n", "3", "--trace", str(folder), hocket.script(JOB))
    assert done.returncode == 0, done
    assert f"the timeline is {folder / 'trace.json'}" in done.stderr
    assert sorted(file.name for file in folder.iterdir()) == [*(f"rank-{r}.json" for r in range(3)), "trace.json"]
    merged = events(folder / "trace.json")
    for rank in range(3):
        mine = [event for event in merged if event["pid"] == rank and event["ph"] == "X"]
        own = [event for event in events(folder / f"rank-{rank}.json") if event["ph"] == "X"]
        assert [event["args"] for event in own] == [event["args"] for event in mine]
        calls = [event["args"]["call"] for event in mine if event["tid"] == 0]
        messages = {0: ["send(dst=1, tag=0)", "send(dst=2, tag=0), async"]}.get(rank, ["recv(src=0, tag=0)"])
        assert calls[:2] == ["all_reduce(float32[2], op='sum')", "all_reduce(float32[100000], op='sum')"]
        assert [text for text in calls if text.startswith(("send", "recv"))] == messages
        assert calls[-2] == "barrier()"
        assert calls[-1] == f"all_reduce(float64[{2 + rank}], op='sum')"
        assert [event["name"] for event in mine if event["tid"] == 1] == ["barrier"]  # of the half
        last = mine[-1] if mine[-1]["tid"] == 0 else mine[-2]
        assert (last["name"], last["args"]["failed"]) == ("all_reduce (failed)", True)
        assert all(event["dur"] * 1.001 >= event["args"]["waiting_us"] >= 0 for event in mine)
    # Nobody leaves a barrier before the last has entered it: so it is in their times, too.
    barriers = [event for event in merged if event["name"] == "barrier" and event["tid"] == 0]
    assert len(barriers) == 3
    assert min(e["ts"] + e["dur"] for e in barriers) >= max(e["ts"] for e in barriers)
    assert min(event["ts"] for event in merged if "ts" in event) == 0


def test_a_job_that_fails_leaves_what_there_was(hocket: Hocket, tmp_path: Path) -> None:
    script = hocket.script("import hocket\ngroup = hocket.init(20)\ngroup.barrier()\nif rank: sys.exit(3)\nforever()\n")
    done = hocket.run("run", "-n", "2", "--trace", str(tmp_path / "t"), "--grace", "0.2", script)
    assert done.returncode == 3, done
    assert {event["pid"] for event in events(tmp_path / "t" / "trace.json")} == {1}
    done = hocket.run("run", "-n", "2", "--trace", str(tmp_path / "t"), "true")
    assert done.returncode == 0, done
    assert "there are no timelines in" in done.stderr


def test_a_forked_child_with_a_group_of_its_own_writes_its_own(hocket: Hocket, tmp_path: Path) -> None:
    script = hocket.script(
        "import hocket\n"
        "group = hocket.init(20)\n"
        "group.barrier()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os.environ['RANK'] = os.environ['LOCAL_RANK'] = '1'\n"
        "    with hocket.init(20, rank=1, size=2, rendezvous=f'file://{sys.argv[1]}') as own: own.barrier()\n"
        "    os._exit(0)\n"
        "with hocket.init(20, rank=0, size=2, rendezvous=f'file://{sys.argv[1]}') as other: other.barrier()\n"
        "os.waitpid(child, 0)\n"
        "group.barrier()\n"
        "group.close()\n"
    )
    environ = {"HOCKET_TRACE": str(tmp_path / "t"), "HOCKET_SECRET": "ours"}
    done = hocket.run("run", "-n", "1", script, str(tmp_path / "meeting"), environ=environ)
    assert done.returncode == 0, done
    for rank, count in ((0, 3), (1, 1)):
        calls = [event for event in events(tmp_path / "t" / f"rank-{rank}.json") if event["ph"] == "X"]
        assert [event["name"] for event in calls] == ["barrier"] * count


def test_other_launchers_are_given_a_variable_and_a_command(hocket: Hocket, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    script = hocket.script("import hocket\nwith hocket.init(20) as group: group.barrier()\n")
    assert hocket.run("run", "-n", "2", script, environ={"HOCKET_TRACE": str(folder)}).returncode == 0
    assert not (folder / "trace.json").exists()
    done = hocket.run("trace", str(folder))
    assert done.stdout.strip() == str(folder / "trace.json"), done
    assert {event["pid"] for event in events(folder / "trace.json")} == {0, 1}
    empty = hocket.run("trace", str(tmp_path))
    assert (empty.returncode, empty.stdout) == (1, "")
    assert f"there are no timelines in {tmp_path}" in empty.stderr


def test_ranks_of_several_hosts_may_differ_in_whether_they_write_one(hocket: Hocket, tmp_path: Path) -> None:
    """Also the first, whose clock the others ask for. The clocks here are one, and so they are nearly equal."""
    for silent in (0, 1):
        folder = tmp_path / str(silent)
        script = hocket.script(
            f"if rank == {silent}: del os.environ['HOCKET_TRACE']\n"
            "import hocket\n"
            "from hocket.observe.timeline import timeline\n"
            "with hocket.init(20) as group:\n"
            "    group.barrier()\n"
            f"    if rank != {silent}: say(abs(timeline().behind or 0) < 10**9)\n"
        )
        done = hocket.run("run", "-n", "3", "--trace", str(folder), script, environ={"HOCKET_TRANSPORT": "tcp"})
        assert done.stdout.split() == ["True", "True"], done
        assert {event["pid"] for event in events(folder / "trace.json")} == {0, 1, 2} - {silent}


class Fake:
    """One end of a pair of ranks, whose messages take as long as their clocks say."""

    def __init__(self, rank: int, out: Queue[Any], back: Queue[Any]) -> None:
        self.rank, self._out, self._back = rank, out, back

    def send(self, x: Any, dst: int, *, tag: int) -> None:
        self._out.put(x.copy())

    def recv(self, src: int, *, tag: int) -> Any:
        return self._back.get(timeout=10)


def test_a_clock_that_is_behind_is_measured_by_the_quickest_answer() -> None:
    there: Queue[Any] = Queue()
    back: Queue[Any] = Queue()
    # Its clock when it asks and when it has heard: the sixth answer is the quickest.
    took = [900, 700, 800, 500, 400, 20, 600, 90]
    asks = iter([time for i, t in enumerate(took) for time in (1000 * i, 1000 * i + t)])
    # Of rank 0's, 5 seconds ahead, each is read half-way, but for the slow ones.
    answers = iter([5 * 10**9 + 1000 * i + (t // 2 if t < 100 else t) for i, t in enumerate(took)])
    answering = Thread(target=behind, args=(Fake(0, back, there), [2], lambda: next(answers)))
    answering.start()
    assert behind(Fake(2, there, back), [2], lambda: next(asks)) == 5 * 10**9
    answering.join()
    assert behind(Fake(1, there, back), [2], lambda: 0) == 0
    assert np.all([there.empty(), back.empty()])
