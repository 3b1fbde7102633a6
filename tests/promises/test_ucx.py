"""Through UCX all holds that holds over TCP; and where two ranks cannot talk through it, both know, and say why.

There is no RDMA in these tests. The ranks share no memory of hocket's, and UCX links them by its own: what is tested is
everything but what RDMA's hardware and drivers do. `pytest tests/conformance --transports ucx` takes longer, and proves
more.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hocket
from certificates import certified
from hocket._core import Ucx, UcxContext
from moments import Signs, descriptors, seconds, stopped
from worlds import Died, World, Worlds, raised

Own = Callable[[int], World]
MIB = 2**20
NONE = "/none/libucp.so.0"


@pytest.fixture(scope="module")
def transport() -> str:
    return "ucx"


@pytest.fixture(scope="module")
def world(transport: str) -> Iterator[Worlds]:
    worlds = Worlds(transport)
    yield worlds
    worlds.close()


def sums(group: Any, counts: list[int]) -> tuple[str, ...]:
    """Exact ones, of all lengths; also of a part of the group at the same time, and beside messages."""
    half = group.split(group.rank % 2, group.rank)
    right, left = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    for count in counts:
        everyone = [np.arange(count) * 7 - 3 * rank for rank in range(group.size)]
        mine = everyone[group.rank]
        later = [half.all_reduce(mine, async_op=True), group.send(mine, right, tag=count, async_op=True)]
        assert (group.all_reduce(mine) == sum(everyone)).all()
        assert (group.recv(left, tag=count) == everyone[left]).all()
        assert (later[0].wait() == sum(everyone[group.rank % 2 :: 2])).all()
        assert (group.all_gather(mine) == np.concatenate(everyone)).all()
        later[1].wait()
    return (*group.transports, *half.transports)


def test_all_is_as_over_tcp(world: Worlds) -> None:
    """Messages of no bytes, of less than a line, of about a page, of a piece, and of many."""
    counts = [0, 1, 9, 513, 8191, 70_001, 300_007]
    for transports in world(3).run(sums, counts):
        names = sorted(transports)
        assert names[:2] == ["self", "self"]
        assert {name.partition(":")[0] for name in names[2:]} == {"ucx"}
        assert {each for name in names[2:] for each in name[4:].split(",")} <= {"sysv", "posix", "cma"}


def listening(_: None, name: str) -> list[str]:
    """At which TCP ports this process listens, where UCX may use whatever it has."""
    os.environ["TORCHELASTIC_RUN_ID"], before = name, os.environ["UCX_TLS"]
    os.environ["UCX_TLS"] = "all"
    try:
        with hocket.init(10) as group:
            assert group.all_reduce(1) == 2
            assert {name.partition(":")[0] for name in group.transports} == {"self", "ucx"}
            tables = [Path("/proc/self/net", name).read_text().splitlines() for name in ("tcp", "tcp6")]
            rows = [line.split() for table in tables for line in table]
            listeners = {f"socket:[{row[9]}]": row[1] for row in rows if row[3] == "0A"}
            own = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
            return [listeners[link] for link in own if link in listeners]
    finally:
        os.environ["UCX_TLS"] = before


def test_nothing_listens_once_they_are_linked(world: Worlds) -> None:
    here = world(2)
    here.start_alone(listening, f"{os.getpid()} all")
    assert here.finish(30) == [[], []]


def closed(group: Any) -> list[tuple[int, int]]:
    """Descriptors and shared segments of UCX's, after each of several groups."""
    counts = []
    for turn in range(5):
        with group.split(0, group.rank) as part:
            assert part.all_reduce(turn) == turn * part.size
        segments = Path("/proc/self/maps").read_text().count("SYSV")
        counts.append((descriptors(), segments))
    return counts


def test_a_closed_group_leaves_nothing(world: Worlds) -> None:
    for counts in world(2).run(closed):
        assert len(set(counts[1:])) == 1, counts


def forks(group: Any) -> int:
    """A child that closes a group, and drops another one, takes nothing from the parent."""
    held = [group.split(0, group.rank)]
    child = os.fork()
    if child == 0:
        raised(hocket.HocketError, group.all_reduce, 1)
        group.close()
        held.clear()
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    return int(group.all_reduce(np.full(MIB, 1))[-1] + held[0].all_reduce(1))


def test_a_forked_child_leaves_it_alone(world: Worlds) -> None:
    assert world(2).run(forks, fresh=True) == [4, 4]


def joined(_: Any) -> list[bool]:
    """Two ends in this process, and whether UCX would tell each if the way broke: of its shared memory it does not."""
    context, sockets = UcxContext(os.environ["HOCKET_UCX"], "posix,sysv,self"), socket.socketpair()
    ends = [Ucx(context, sock.fileno()) for sock in sockets]
    tell = [one.connect(other.address()) for one, other in zip(ends, reversed(ends), strict=True)]
    for end, sock in zip(ends, sockets, strict=True):
        end.close()
        sock.close()
    return tell


def test_both_ends_know_whether_a_break_is_told(world: Worlds) -> None:
    assert world(2).run(joined) == [[False, False]] * 2


# ---- bad weather -----------------------------------------------------------------------------------------------------


def lost(group: Any, signs: Signs) -> str:
    x = np.ones(4 * MIB, np.float32)
    group.all_reduce(x)
    signs.give(f"begun {group.rank}")
    result = None
    while not isinstance(result, BaseException):
        result, _ = seconds(lambda: group.all_reduce(x, out=x, op="max"))
    return repr(result)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_who_dies_or_is_stopped_is_named_by_all(own: Own, signs: Signs, number: int) -> None:
    """The deadline of the calls is a minute: nobody waits for that."""
    world = own(3)
    world.start(lost, signs, timeout=60)
    for rank in range(3):
        signs.wait(f"begun {rank}")
    world.signal(1, number)
    outcomes = world.finish(30, without=1 if number == signal.SIGSTOP else None)
    for rank in (0, 2):
        assert "PeerLost" in str(outcomes[rank]), outcomes
        how = "died" if number == signal.SIGKILL else "was silent for 2 s"
        assert re.search(rf"rank 1 \(pid {world.processes[1].pid} on [^)]*\) {how}", outcomes[rank]), outcomes
    assert number == signal.SIGSTOP or isinstance(outcomes[1], Died)


def given_up(group: Any, signs: Signs) -> str:
    """Rank 0 gives up a call of 32 MiB while rank 1 is stopped in it, and has its arrays back."""
    x, out = np.full(8 * MIB, 1 + group.rank, np.float32), np.zeros(8 * MIB, np.float32)
    group.all_reduce(x, out=out)
    signs.give(f"begun {group.rank}")
    timeout = 60 if group.rank else 0.8
    result = None
    while not isinstance(result, BaseException):
        result, _ = seconds(lambda: group.all_reduce(x, out=out, timeout=timeout))
    if group.rank == 0:
        x[:], out[:] = 100, 200
        signs.give("filled")
        signs.wait("gone on")
        assert (x == 100).all()
        assert (out == 200).all()
    else:
        signs.give("gone on")
        assert set(np.unique(out)) <= {0, 1, 2, 3}, "what rank 0 wrote after it had given up was sent"
    return type(result).__name__


def test_arrays_that_were_given_up_stay_as_they_are(own: Own, signs: Signs) -> None:
    world = own(2)
    world.start(given_up, signs)
    for rank in range(2):
        signs.wait(f"begun {rank}")
    world.signal(1, signal.SIGSTOP)
    stopped(world.processes[1].pid)
    signs.wait("filled")
    world.signal(1, signal.SIGCONT)
    outcomes = world.finish(30)
    assert outcomes[0] == "CollectiveTimeout", outcomes
    assert outcomes[1] in ("PeerLost", "CollectiveTimeout"), outcomes


# ---- where it cannot be ----------------------------------------------------------------------------------------------


def met(_: None, name: str, asked: dict[str, str], of_rank_1: dict[str, str]) -> str:
    """What a group is linked by where that is asked for, or the error; and behind it what UCX wrote meanwhile."""
    before = [os.dup(number) for number in (1, 2)]
    with tempfile.TemporaryFile() as said:
        for number in (1, 2):
            os.dup2(said.fileno(), number)
        try:
            found = linked_by(name, asked, of_rank_1)
        finally:
            ctypes.CDLL(None).fflush(None)
            for number, own in zip((1, 2), before, strict=True):
                os.dup2(own, number)
                os.close(own)
        said.seek(0)
        return found + said.read().decode()


def linked_by(name: str, asked: dict[str, str], of_rank_1: dict[str, str]) -> str:
    changed = {"TORCHELASTIC_RUN_ID": name, **asked, **(of_rank_1 if os.environ["RANK"] == "1" else {})}
    before = {key: os.environ.get(key) for key in changed}
    os.environ.update(changed)
    try:
        with hocket.init(10) as group:
            assert group.all_reduce(group.rank + 1) == 3
            return group.transports[1 - group.rank].partition(":")[0]
    except hocket.RendezvousError as error:
        return str(error)
    finally:
        for key, value in before.items():
            os.environ.pop(key) if value is None else os.environ.update({key: value})


CASES: dict[str, tuple[str, dict[str, str], str]] = {
    "no libucp": ("ucx", {"HOCKET_UCX": NONE}, "rank 1 .* cannot: UCX cannot be loaded .*, or set HOCKET_UCX to"),
    "no libucp, TCP": ("ucx,tcp", {"HOCKET_UCX": NONE}, "tcp$"),
    "only one asks": ("ucx", {"HOCKET_TRANSPORT": "tcp"}, "rank 0 .* over ucx, and rank 1 .* over tcp: give all"),
    "only one asks, TCP": ("ucx,tcp", {"HOCKET_TRANSPORT": "tcp"}, "tcp$"),
    "no way": ("ucx", {"UCX_TLS": "self"}, "UCX knows no way there without TCP, .* would fall back"),
    "no way, TCP": ("ucx,tcp", {"UCX_TLS": "self"}, "tcp$"),
    "TCP": ("ucx", {"UCX_TLS": "tcp"}, "rank 1 .* cannot: UCX_TLS leaves it nothing but TCP"),
    "no device": ("ucx", {"UCX_TLS": "nothing"}, "UCX .* cannot begin with the transports nothing: .* would fall back"),
    "no device, TCP": ("ucx,tcp", {"UCX_TLS": "nothing"}, "tcp"),
    "all": ("ucx,tcp", {"UCX_TLS": "all"}, "ucx$"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_one_rank_cannot_do(world: Worlds, case: str) -> None:
    """Either both ends fall back, or both raise the error, which says what to do; and UCX says nothing by itself."""
    asked, of_rank_1, words = CASES[case]
    here = world(2)
    of_both = {"HOCKET_TRANSPORT": asked, "HOCKET_INTEGRITY": "1"}
    here.start_alone(met, f"{os.getpid()} {case}", of_both, of_rank_1)
    for outcome in here.finish(30):
        assert re.match(rf".*{words}", str(outcome)), outcome
        assert "UCX  " not in outcome or "nothing" in of_rank_1.values(), outcome


def met_at(_: None, urls: list[list[str]]) -> list[str]:
    rank, before = int(os.environ["RANK"]), os.environ["HOCKET_TRANSPORT"]
    os.environ["HOCKET_TRANSPORT"] = "ucx,tcp"
    try:
        with hocket.init(10, rank=rank, peers=urls) as group:
            assert group.all_reduce(2**rank) == 7
            return [name.partition(":")[0] for name in group.transports]
    finally:
        os.environ["HOCKET_TRANSPORT"] = before


def test_urls_tell_who_talks_through_it(world: Worlds) -> None:
    """Two of three do, and both talk with the third over TCP."""
    with ExitStack() as held:  # so that there are three
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        a, b, c = (f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes)
    here = world(3)
    here.start_alone(met_at, [[f"rdma://{a}", f"tcp://{a}"], [f"tcp://{b}", f"rdma://{b}"], [f"tcp://{c}"]])
    assert here.finish(30) == [["self", "ucx", "tcp"], ["ucx", "self", "tcp"], ["tcp", "tcp", "self"]]


def test_nothing_goes_past_tls(world: Worlds, tmp_path: Path) -> None:
    """What goes through UCX is not encrypted: where TLS is asked for that is refused, or TLS what is fallen back to."""
    files = certified(tmp_path)
    for asked, words in (("ucx", "what goes through UCX is not encrypted"), ("ucx,tcp", "tls$")):
        here = world(2)
        here.start_alone(met, f"{os.getpid()} tls {asked}", {"HOCKET_TRANSPORT": asked, **files}, {})
        for outcome in here.finish(30):
            assert re.match(rf".*{words}", str(outcome)), outcome


FAULTS = (signal.SIGHUP, signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)
SENT = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD)


def masked(task: int | str, name: str, numbers: tuple[int, ...]) -> int:
    line = re.findall(rf"{name}:\t(\w+)", Path(f"/proc/self/task/{task}/status").read_text())
    return int(line[0], 16) & sum(1 << number - 1 for number in numbers)


def signals(group: Any) -> tuple[int, list[int]]:
    """Which faults, and hang-ups, are caught, and what each thread but the first blocks of what may be sent."""
    group.all_reduce(1)
    threads = [task.name for task in Path("/proc/self/task").iterdir() if task.name != str(os.getpid())]
    return masked(os.getpid(), "SigCgt", FAULTS), [masked(task, "SigBlk", SENT) for task in threads]


def test_signals_stay_the_programs(own: Own) -> None:
    """UCX would catch hang-ups, and older ones faults too; and its threads would take what is sent to the program."""
    all_of_them = sum(1 << number - 1 for number in SENT)
    for caught, blocked in own(2).run(signals):
        assert caught == 0
        assert len(blocked) >= 2  # the keeper, and UCX's
        assert set(blocked) == {all_of_them}
