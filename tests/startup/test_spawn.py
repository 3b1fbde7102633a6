"""spawn: results, every way to fail, and that nothing stays behind."""

from __future__ import annotations

import os
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from launching import SOURCE, all_gone

from hocket.config import Config
from hocket.deadline import Deadline
from hocket.errors import CollectiveTimeout, HocketError, PeerLost
from hocket.launch import spawn as launch
from hocket.launch.reports import RemoteTraceback
from hocket.launch.spawn import spawn

NOTES = sys.version_info >= (3, 11)


def rank() -> int:
    return int(os.environ["RANK"])


def meet(folder: str, size: int) -> None:
    """Return when all ranks are here. (Files, since these tests do without collectives.)"""
    Path(folder, f"{rank()} {os.getpid()}").touch()
    while len(list(Path(folder).iterdir())) < size:
        time.sleep(0.005)


def pids(folder: Path) -> list[int]:
    return [int(path.name.split()[1]) for path in folder.iterdir()]


# ---- results ----


def place(factor: int, *, add: int) -> tuple[int, Config]:
    return factor * rank() + add, Config.from_env()


def test_ranks_that_a_rank_spawns_are_a_job_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the ranks of the outer one meet."""
    outer = {"HOCKET_RENDEZVOUS": "tcp://10.9.9.9:1", "HOCKET_SECRET": "outer", "RANK": "5", "WORLD_SIZE": "7"}
    for name, value in outer.items():
        monkeypatch.setenv(name, value)
    found = spawn(place, 2, (10,), {"add": 1})
    assert [(number, config.rank, config.size) for number, config in found] == [(1, 0, 2), (11, 1, 2)]
    assert all(config.address.startswith("@hocket-") for _, config in found)


@pytest.mark.parametrize("size", [1, 3])
def test_results_come_by_rank(size: int) -> None:
    found = spawn(place, size, (10,), {"add": 1})
    assert [value for value, _ in found] == [10 * r + 1 for r in range(size)]
    assert [(config.rank, config.size) for _, config in found] == [(r, size) for r in range(size)]
    assert len({(config.address, config.secret) for _, config in found}) == 1


def port() -> str:
    return os.environ["MASTER_PORT"]


def ports() -> list[str]:
    return [port(), *spawn(port, 2)]


def test_a_jobs_ranks_have_one_port_for_torch() -> None:
    (first, *inner), (second, *_) = spawn(ports, 2)
    assert first == second != inner[0] == inner[1]


def echo(data: bytes) -> tuple[int, bytes]:
    return rank(), data


def test_large_arguments_and_results() -> None:
    data = os.urandom(3 << 20)
    assert spawn(echo, 2, (data,)) == [(0, data), (1, data)]


def nested() -> list[tuple[int, bytes]]:
    return spawn(echo, 2, (str(rank()).encode(),))


def test_ranks_may_spawn() -> None:
    assert spawn(nested, 2) == [[(0, b"0"), (1, b"0")], [(0, b"1"), (1, b"1")]]


def exits(code: Any) -> None:
    if rank() == 1:
        sys.exit(code)


def test_sys_exit_without_error_is_a_return() -> None:
    assert spawn(exits, 2, (0,)) == [None, None]


@pytest.mark.parametrize("size", [0, -1])
def test_no_ranks(size: int) -> None:
    with pytest.raises(ValueError, match=f"size is {size}; at least one rank is needed"):
        spawn(place, size)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((place, "4"), r"spawn: size is '4'; it is the number of ranks: spawn\(fn, 4\)"),
        ((place, 2.0), r"spawn: size is 2.0; it is the number of ranks"),
        ((place, 4, 5), r"spawn: args is 5; it is a tuple of fn's arguments: spawn\(fn, 4, \(x,\)\)"),
        ((place, 4, "ab"), r"spawn: args is 'ab'; it is a tuple"),
        ((place, 4, np.arange(3)), r"spawn: args is array\(\[0, 1, 2\]\); it is a tuple"),
        ((place, 4, (), [5]), r"spawn: kwargs is \[5\]; it is a dict"),
        ((4, place), r"spawn: fn is 4; it is the function that each rank runs"),
    ],
)
def test_arguments_that_are_none(given: Any, sentence: str) -> None:
    with pytest.raises(TypeError, match=f"^{sentence}"):
        spawn(*given)


# ---- what no rank can import ----


def test_a_lambda_goes_by_value() -> None:
    factor = 3
    assert spawn(lambda x: factor * rank() + x, 2, (10,)) == [10, 13]


def test_without_cloudpickle_it_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(TypeError, match=r"^spawn: .*lambda.*: `pip install cloudpickle`, .*, or put it into a module$"):
        spawn(lambda: None, 2)
    assert spawn(exits, 2, (0,)) == [None, None]  # what can be imported needs none


TYPED = """
import os, sys
from dataclasses import dataclass
import numpy as np
import hocket
@dataclass
class Point:
    x: int

def add(point):
    with hocket.init() as group:
        return Point(int(group.all_reduce(np.array(point.x + group.rank))))

def fail():
    raise KeyError(Point(5))

a, b = hocket.spawn(add, 2, (Point(10),))
print("same class:", type(a) is Point, a == b == Point(21))
try:
    hocket.spawn(fail, 2)
except KeyError as error:
    print("error:", error.args[0] == Point(5))

"""


def typed(text: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """What comes of typing this at a prompt."""
    environ = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-i", *options]
    return subprocess.run(command, input=text, env=environ, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("options", [[], ["script.py"]], ids=["python -i", "python -i script.py"])
def test_at_a_prompt(tmp_path: Path, options: list[str]) -> None:
    script = tmp_path / "script.py"
    script.write_text("x = 5\n")
    done = typed(TYPED, tmp_path, *(str(tmp_path / option) for option in options))
    assert done.stdout.splitlines() == ["same class: True True", "error: True"], done.stderr


def test_at_a_prompt_without_cloudpickle(tmp_path: Path) -> None:
    (tmp_path / "cloudpickle.py").write_text("raise ImportError('not here')\n")
    done = typed(TYPED, tmp_path)
    assert (
        "TypeError: spawn: add was typed in here, and no other process can import it: `pip install cloud" in done.stderr
    )


# ---- failures ----


class Odd(Exception):
    """Cannot be made again from its pickle."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def fails(folder: str, error: BaseException) -> None:
    meet(folder, 3)
    if rank() == 1:
        raise error
    signal.pause()


def fails_oddly(folder: str) -> None:
    fails(folder, Odd(1, 2))


def check_cause(error: BaseException, *words: str) -> None:
    assert isinstance(error.__cause__, RemoteTraceback)
    for word in ("rank 1 (pid ", "Traceback (most recent call last)", "in fails\n", *words):
        assert word in str(error.__cause__)
    assert "/hocket/launch/" not in str(error.__cause__)


def test_an_error_comes_back_as_it_was(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="the key") as caught:
        spawn(fails, 3, (str(tmp_path), KeyError("the key")))
    check_cause(caught.value, "KeyError: 'the key'")
    if NOTES:
        assert caught.value.__notes__[0].startswith("raised by rank 1 (pid ")
    all_gone(pids(tmp_path))


def test_an_error_that_cannot_travel_comes_back_in_words(tmp_path: Path) -> None:
    with pytest.raises(HocketError, match=r"rank 1 \(pid \d+\) failed: test_spawn.Odd: 1 and 2") as caught:
        spawn(fails_oddly, 3, (str(tmp_path),))
    check_cause(caught.value, "Odd: 1 and 2")
    all_gone(pids(tmp_path))


@pytest.mark.parametrize(
    ("error", "words"), [(SystemExit(3), "SystemExit: 3"), (KeyboardInterrupt(), "KeyboardInterrupt")]
)
def test_a_rank_that_leaves_does_not_end_the_parent(tmp_path: Path, error: BaseException, words: str) -> None:
    with pytest.raises(HocketError, match=rf"rank 1 \(pid \d+\) failed: {words}"):
        spawn(fails, 3, (str(tmp_path), error))


def returns_what_cannot_travel() -> object:
    return sys


def test_a_result_that_cannot_travel() -> None:
    with pytest.raises(TypeError, match="pickle 'module' object"):
        spawn(returns_what_cannot_travel, 2)


def dies(folder: str, how: int) -> None:
    meet(folder, 3)
    if rank() == 2:
        os.kill(os.getpid(), how)
    signal.pause()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_a_rank_that_was_killed(tmp_path: Path, how: signal.Signals) -> None:
    with pytest.raises(PeerLost, match=rf"^rank 2 \(pid \d+\) was killed by {how.name}$"):
        spawn(dies, 3, (str(tmp_path), how))
    all_gone(pids(tmp_path))


def leaves(code: int) -> NoReturn:
    os._exit(code)


@pytest.mark.parametrize("code", [0, 7])
def test_a_rank_that_left_without_a_result(code: int) -> None:
    with pytest.raises(PeerLost, match=rf"rank \d \(pid \d+\) ended with exit code {code} before it returned"):
        spawn(leaves, 2, (code,))


class Crash:
    """Kills its process when the interpreter ends."""

    def __init__(self) -> None:
        import atexit

        atexit.register(os.abort)


def crashes_at_exit() -> None:
    if rank() == 1:
        import multiprocessing.util

        multiprocessing.util.Finalize(None, os.abort, exitpriority=1)


def test_a_crash_after_the_result_is_no_secret() -> None:
    with pytest.raises(PeerLost, match=r"rank 1 \(pid \d+\) ended after it had returned its result: killed by SIGABRT"):
        spawn(crashes_at_exit, 2)


def consequence(folder: str, what: str) -> None:
    """Ranks 0 and 2 fail because of rank 1, and say so before it does."""
    meet(folder, 3)
    if rank() != 1:
        Path(folder, f"failed {rank()}").touch()
        try:
            raise PeerLost("rank 1 left")
        except PeerLost:
            raise RuntimeError("what the user made of it") from (None if rank() == 0 else KeyError("another cause"))
    while len(list(Path(folder).iterdir())) < 5:
        time.sleep(0.005)
    if what == "raise":
        raise ValueError("the cause")
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_cause_is_reported_and_not_its_consequences(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the cause"):
        spawn(consequence, 3, (str(tmp_path), "raise"))


def test_a_killed_rank_is_the_cause(tmp_path: Path) -> None:
    with pytest.raises(PeerLost, match=r"rank 1 \(pid \d+\) was killed by SIGKILL"):
        spawn(consequence, 3, (str(tmp_path), "kill"))


def only_a_consequence() -> None:
    if rank() == 1:
        raise PeerLost("somebody left")
    signal.pause()


def test_a_consequence_without_a_cause_is_reported_after_all() -> None:
    with pytest.raises(PeerLost, match="somebody left"):
        spawn(only_a_consequence, 2)


def returns_early(folder: str, named: bool) -> None:
    """Rank 0 is needed, ranks 0 and 2 return, rank 1 fails when they have."""
    meet(folder, 3)
    if rank() == 1:
        pid = next(pid for path in Path(folder).iterdir() for r, pid in [path.name.split()] if r == "0")
        who = f"rank 0 (pid {pid} on host) left the group while rank 1 (pid {os.getpid()} on host) needed it"
        raise PeerLost(who if named else "somebody left")


@pytest.mark.parametrize("named", [False, True])
def test_a_rank_that_returned_too_early_is_told(tmp_path: Path, named: bool) -> None:
    with pytest.raises(PeerLost) as caught:
        spawn(returns_early, 3, (str(tmp_path), named))
    who = "0" if named else "[02]"
    words = (
        rf"rank 1 \(pid \d+\)(?: raised it)?, after rank {who} \(pid \d+\) had returned while the others still needed"
    )
    assert re.match(words, str(caught.value.__cause__))
    if NOTES:
        assert re.match(f"raised by {words} it$", caught.value.__notes__[0])


def one_waits() -> None:
    if rank() == 0:
        signal.pause()


def test_the_deadline_names_who_had_not_returned() -> None:
    with launch._started(pickle.dumps((one_waits, (), {})), pickle.dumps, 2) as ranks:
        assert ranks[1].pipe.poll(20)
        with pytest.raises(
            CollectiveTimeout, match=r"^spawn timed out after 0.1 s, and these had not returned: rank 0 \(pid \d+\)$"
        ):
            launch._gather(ranks, Deadline(0.1))


def test_the_deadline_of_a_spawn() -> None:
    with pytest.raises(
        CollectiveTimeout, match=r"^spawn timed out after 0.1 s, .*: rank 0 \(pid \d+\), rank 1 \(pid \d+\)$"
    ):
        spawn(signal.pause, 2, timeout=0.1)


# ---- nothing stays behind ----


def stubborn(folder: str) -> None:
    """Deaf to SIGTERM, one of them stopped, and with a child of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "1000"])
    Path(folder, f"child {child.pid}").touch()
    Path(folder, f"{rank()} {os.getpid()}").touch()
    while len(list(Path(folder).iterdir())) < 6:
        time.sleep(0.005)
    if rank() == 1:
        raise ValueError("over")
    if rank() == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
    signal.pause()


def test_stubborn_ranks_and_what_they_started_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.launch.processes.end.__defaults__", (0.2,))
    with pytest.raises(ValueError, match="over"):
        spawn(stubborn, 3, (str(tmp_path),))
    assert len(pids(tmp_path)) == 6
    all_gone(pids(tmp_path))


HERE = Path(__file__).parent
PATHS = [str(folder) for folder in (SOURCE, HERE, HERE.parent)]
PARENT = """
import sys; sys.path[:0] = {paths!r}
from hocket.launch.spawn import spawn
from test_spawn import stubborn_for_ever
if __name__ == "__main__":
    spawn(stubborn_for_ever, 2, ({folder!r},))
"""


def stubborn_for_ever(folder: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "1000"])
    Path(folder, f"child {child.pid}").touch()
    meet(folder, 4)
    if rank() == 0:
        os.write(1, b"ready\n")
    signal.pause()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_no_rank_survives_its_parent(tmp_path: Path, how: signal.Signals) -> None:
    (folder := tmp_path / "ranks").mkdir()
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(paths=PATHS, folder=str(folder)))
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        parent.send_signal(how)
        assert parent.wait(20) == -how
        assert len(pids(folder)) == 4
        all_gone(pids(folder))


def test_ctrl_c_ends_the_ranks(tmp_path: Path) -> None:
    (folder := tmp_path / "ranks").mkdir()
    script = tmp_path / "parent.py"
    text = PARENT.format(paths=PATHS, folder=str(folder))
    script.write_text(
        text.replace(
            "import sys;", "import sys, hocket.launch.processes; hocket.launch.processes.end.__defaults__ = (0.2,);"
        )
    )
    environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        parent.send_signal(signal.SIGINT)
        _, err = parent.communicate(timeout=20)
        assert parent.returncode == -signal.SIGINT
        assert err.strip().endswith(b"KeyboardInterrupt")
        all_gone(pids(folder))
