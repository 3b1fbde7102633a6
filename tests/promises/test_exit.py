"""The end of an interpreter, whatever its threads are in; and what an operator keeps of its arguments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from programs import run

# What a daemon thread is in when the main thread ends. In a group of two, whose rank 1 never joins. Not an asynchronous
# call: those are finished before the interpreter ends, each by its deadline.
INSIDE = {
    "all_reduce": "group.all_reduce(x)",
    "large all_reduce": "group.all_reduce(np.ones(2**22))",
    "barrier": "group.barrier()",
    "recv": "group.recv(1)",
    "async recv": "group.recv(1, async_op=True).wait()",
    "scatter": "group.scatter(root=1)",
    "persistent": "group.all_reduce_init(x)()",
}
TURNS = 8  # each ends a process at another moment
# Rank 0 is looked at alone, without a launcher that ends the job: rank 1 is a process forked beside it.
PAIR = """
def main(rank):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2",
                      MASTER_ADDR="127.0.0.1", MASTER_PORT="1", TORCHELASTIC_RUN_ID=f"storm.{os.getppid()}.{turn}")
    play(rank, hocket.init(timeout=60))
codes = []
for turn in range(turns):
    other = os.fork()
    if other == 0:
        try: main(1)
        finally: os._exit(9)
    played, plays = os.pipe()
    mine = os.fork()
    if mine == 0:
        main(0)
        os.write(plays, b"!")
        sys.exit(0)
    os.close(plays)
    os.read(played, 1)
    begin = time.monotonic()
    _, status = os.waitpid(mine, 0)
    took = time.monotonic() - begin
    os.close(played)
    os.kill(other, signal.SIGKILL)
    os.waitpid(other, 0)
    codes.append(os.waitstatus_to_exitcode(status))
    say("turn", turn, "code", codes[-1], "took", round(took, 2))
    if codes[-1] or took > 5:
        break
"""


# What rank 0 plays; rank 1 waits for its end.
WAITS = """
def play(rank, group):
    if rank == 1:
        while True: signal.pause()
    x = np.ones(1000)
"""


def in_a_thread(call: str) -> str:
    """The rest of it: a daemon thread that sleeps in this call."""
    return f"""
    def daemon():
        {call}
        threading.Event().wait()
    thread = threading.Thread(target=daemon, daemon=True)
    thread.start()
    asleep(thread.native_id)
"""


def ends(folder: Path, play: str, turns: int, limit: float = 100.0) -> None:
    """Each of so many ranks 0 ends with code 0 within 5 seconds of its last line, and says nothing."""
    ended = run(folder, f"turns = {turns}\n{play}\n{PAIR}", limit=limit)
    found = re.findall(r"turn \d+ code (-?\d+) took ([\d.]+)", ended.out)
    assert "terminate called" not in ended.err
    assert "Fatal Python error" not in ended.err
    assert [code for code, _ in found] == ["0"] * turns, (ended.out, ended.err)
    assert max(float(took) for _, took in found) < 5


@pytest.mark.parametrize("what", INSIDE)
def test_a_daemon_thread_inside_a_call_at_exit(what: str, tmp_path: Path) -> None:
    ends(tmp_path, f"{WAITS}{in_a_thread(INSIDE[what])}", TURNS)


@pytest.mark.parametrize("pace", ["python", "numpy"])
def test_a_daemon_thread_inside_an_operator_at_exit(pace: str, tmp_path: Path) -> None:
    """The operator is Python code that goes on and on, or that is mostly in NumPy, without Python's lock."""
    body = "np.sin(np.ones(100_000))" if pace == "numpy" else "time.monotonic()"
    play = f"""
def play(rank, group):
    x = np.ones(1000)
    inside, busy = threading.Event(), threading.Event()
    if rank == 0: busy.set()
    def op(a, b, out):
        np.add(a, b, out)
        inside.set()
        end = time.monotonic() + 30
        while busy.is_set() and time.monotonic() < end:
            {body}
    def daemon():
        group.all_reduce(x, op=op)
    threading.Thread(target=daemon, daemon=True).start()
    if rank == 1:
        while True: signal.pause()
    inside.wait()
"""
    ends(tmp_path, play, TURNS)


@pytest.mark.parametrize("what", [*INSIDE, "queue"])
def test_a_call_that_ends_by_an_error_while_the_interpreter_ends(what: str, tmp_path: Path) -> None:
    """Its thread asks for Python's lock, to tell of the error. The main thread has it, and gives it away once it is too
    late for all others: in what is collected last."""
    queue = """
    executor = Executor()
    executor.put(group.barrier, "a call")
    asleep(executor._engine.native_id)
"""
    play = f"""
import atexit
from hocket.calls.executor import Executor
class Last:
    def __del__(self, sleep=time.sleep):
        sleep(0.1)
{WAITS}{queue if what == "queue" else in_a_thread(INSIDE[what])}
    def end():
        sys.setswitchinterval(1e3)
        group._calls.endpoint.close()
        end = time.monotonic() + 0.2
        while time.monotonic() < end: pass
    atexit._clear()
    atexit.register(end)
    sys.modules["last"] = Last()
"""
    ends(tmp_path, play, 2)


# What the operator does with a, b and out, after it has added them. What it keeps goes with a copy for comparison.
KEEPS = {
    "list": "keep(a, b, out)",
    "view": "keep(a[1:], b[::2], out[:3])",
    "thread": "keep(a, b, out); threading.Thread(target=lambda: [a.sum() + out.sum() for _ in range(300)]).start()",
}
USE = """
def keep(*views):
    kept.append((*views, *(view.copy() for view in views)))

def look(when):
    for views in kept:
        for view, copy in zip(views[:3], views[3:]):
            try:
                seen = view.copy()
            except Exception as error:
                assert str(error), when
            else:
                assert (seen == copy).all(), (when, seen[:5], copy[:5])
"""


@pytest.mark.parametrize("arena", [False, True], ids=["plain", "arena"])
@pytest.mark.parametrize("size", [10, 200_000])
@pytest.mark.parametrize("keeps", KEEPS)
def test_an_operator_that_keeps_its_arguments(keeps: str, size: int, arena: bool, tmp_path: Path) -> None:
    """Used after later calls, after close, and when the group is gone: as they were, or a clear error; no crash."""
    text = f"""
kept = []
{USE}
def op(a, b, out):
    np.add(a, b, out)
    {KEEPS[keeps]}
group = hocket.init()
make = group.empty if {arena} else np.empty
x = make({size}, "float64")
x[:] = np.arange({size}) + rank
y = group.all_reduce(x, op=op)
assert (y == 3 * np.arange({size}) + 3).all()
look("at once")
for turn in range(4):
    x[:] = turn
    z = make({size}, "float64")
    group.all_reduce(x, op=op, out=z)
    group.all_reduce(x, op="max", out=z)
    group.all_gather(x)
look("after later calls")
group.close()
look("after close")
del group, x, y, z, make
gc.collect()
look("after the group")
junk = [bytearray(np.random.default_rng(i).bytes(1 << 20)) for i in range(64)]
look("after much else")
say("good")
"""
    ended = run(tmp_path, text, ranks=3, limit=60)
    assert (ended.code, ended.lines()) == (0, ["good"] * 3), ended.err


def test_an_error_of_an_operator_keeps_its_arguments(tmp_path: Path) -> None:
    """Its traceback holds them, as an exception that is logged at the end does."""
    text = """
def op(a, b, out):
    there = a.copy(), b.copy()
    raise KeyError("from the operator")
group = hocket.init()
x = group.empty(5000, "float64")
x[:] = rank + 1
try:
    group.all_reduce(x, op=op)
    group.barrier()
except Exception as error:
    kept = error
    text = repr(error)
x[:] = 7
group.close()
del group, x
gc.collect()
junk = [bytearray(1 << 20) for _ in range(64)]
trace = kept.__traceback__
while trace is not None:
    names = trace.tb_frame.f_locals
    if trace.tb_frame.f_code.co_name == "op":
        for view, copy in zip((names["a"], names["b"]), names["there"]):
            assert (view == copy).all(), (view, copy)
        say("looked")
    trace = trace.tb_next
say("good")
"""
    ended = run(tmp_path, text, ranks=2, limit=60)
    assert ended.code == 0, ended.err
    assert ended.lines().count("good") == 2
    assert "looked" in ended.lines()


def test_arrays_outlive_their_group(tmp_path: Path) -> None:
    """Arena arrays, results and views of them are used after close and when the group is collected."""
    text = """
group = hocket.init()
x = group.empty((100, 50), "int64")
x[:] = np.arange(5000).reshape(100, 50) + rank
y = group.all_reduce(x)
view = x[3:90:2, ::-1]
again = group.all_reduce_init(x)
z = again()
group.close()
del group, again
gc.collect()
assert (x == np.arange(5000).reshape(100, 50) + rank).all() and (y == z).all()
x[:] = 1
assert (view == 1).all() and view.sum() == view.size
say("good")
"""
    ended = run(tmp_path, text, ranks=2, limit=60)
    assert (ended.code, ended.lines()) == (0, ["good"] * 2), ended.err
