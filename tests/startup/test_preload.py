"""`hocket run --preload`: ranks that are forked from one process which has imported what they need."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import signal
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from launching import SOURCE, Hocket, all_gone, is_gone, lines

from hocket.launch.forkserver import hear, tell
from moments import until
from ports import free_ports

# What a rank is, as far as it can be the same in all jobs.
SELF = """
import gc, json, pickle, threading
OTHERS = ("HOCKET_ADDRESS", "HOCKET_SECRET", "LAUNCHER", "MASTER_PORT")
def listing(path): return sorted(os.listdir(path), key=int)
class Here: pass
main = sys.modules["__main__"]
streams = [[type(s).__name__, type(getattr(s, "buffer", None)).__name__, s.encoding, s.errors, s.line_buffering,
            s.write_through, s.isatty(), s.fileno()] for s in (sys.stdin, sys.stdout, sys.stderr)]
told = dict(
    name=__name__, file=__file__, package=__package__, loader=type(__loader__).__name__,
    spec=__spec__ and [__spec__.name, __spec__.origin, __spec__.parent, __spec__.cached],
    cached=__cached__, documented=__doc__, builtins=__builtins__.__name__, argv=sys.argv, path=sys.path,
    code=(lambda: 0).__code__.co_filename, found=pickle.loads(pickle.dumps(Here)) is Here is main.Here,
    environ={k: v for k, v in os.environ.items() if k not in OTHERS},
    descriptors=[d for d in listing("/proc/self/fd") if os.path.exists("/proc/self/fd/" + d)],
    leads=os.getpgid(0) == os.getpid(), session=os.getsid(0), parent=os.getppid() == int(os.environ["LAUNCHER"]),
    threads=threading.active_count(), tasks=len(listing("/proc/self/task")), main=repr(threading.main_thread().name),
    signals={n: repr(signal.getsignal(n)) for n in (2, 13, 15, 17)}, streams=streams, gc=gc.isenabled(),
    folder=os.getcwd(), umask=os.umask(0o22),
)
print(json.dumps(told))
print(sys.stdin.read(), end="", file=sys.stderr)
"""

# A module after which the n-th fork fails, as where a limit of processes is reached.
NO_FORK = """
import errno, itertools, os
fork, forks = os.fork, itertools.count(1)
def limited():
    if next(forks) < {}: return fork()
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
os.fork = limited
"""
USED_UP = "a process cannot be started: this user may have no more of them (ulimit -u)"


def launched(hocket: Hocket, *words: str, text: str) -> list[dict[str, Any]]:
    """What the ranks say of a job that knows the pid of its launcher, and where one of them reads that text."""
    begin = "import os; os.environ['LAUNCHER'] = str(os.getpid()); from hocket.cli.app import main; main()"
    process = hocket.begin([sys.executable, "-c", begin, "run", *words], stdin=-1)
    out, err = process.communicate(text, timeout=60)
    assert (process.returncode, err) == (0, text)
    return sorted((json.loads(line) for line in out.splitlines()), key=lambda told: told["environ"]["RANK"])


@pytest.mark.parametrize("as_module", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_a_rank_is_what_it_is_without(
    hocket: Hocket, size: int, as_module: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = hocket.script(SELF)
    package = hocket.folder / "pack"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(Path(script).read_text())
    program = ["-m", "pack", "--x", "y z"] if as_module else [script, "--x", "y z"]
    monkeypatch.chdir(hocket.folder)
    without, ranks = (
        launched(hocket, "-n", str(size), *options, *program, text="read by one\n")
        for options in ([], ["--preload", "json,numpy"])
    )
    assert len(without) == len(ranks) == size
    for one, other in zip(ranks, without, strict=True):
        assert {key: (one[key], other[key]) for key in one if one[key] != other[key]} == {}


def counted(hocket: Hocket) -> Path:
    """What the module `counted` writes a letter to, each time that it is imported."""
    seen = hocket.folder / "seen"
    (hocket.folder / "counted.py").write_text(f"import os\npid = os.getpid()\nopen({str(seen)!r}, 'a').write('x')\n")
    return seen


def test_imported_once(hocket: Hocket) -> None:
    """Where the program would find it; and each rank is a group's, with random numbers of its own."""
    script = hocket.script(
        "import counted, random, hocket, numpy as np\n"
        "with hocket.init() as group:\n"
        "    say(len(np.unique(group.all_gather(np.random.random(1)))), counted.pid != os.getpid(),\n"
        "        len(set(group.all_gather_object(random.random()))), *group.all_reduce(np.arange(3) + rank))\n"
    )
    seen = counted(hocket)
    done = hocket.run("run", "-n", "4", "--preload", "counted, numpy", script)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "4 True 4 6 10 14\n" * 4
    assert seen.read_text() == "x"


def test_torchs_random_numbers_are_its_own_too(hocket: Hocket) -> None:
    script = hocket.script("import torch\nsay(torch.initial_seed(), torch.rand(1).item())\n")
    done = hocket.run("run", "-n", "3", "--preload", "torch", script)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(set(done.stdout.split())) == 6


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("def f(): {}['x']\nf()", 1),
        ("x = 1 +", 1),
        ("sys.exit(3 + rank)", 3),
        ("sys.exit('words')", 1),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("import hocket\nwith hocket.init() as g: g.send(1.0, dst=7)", 1),
        ("import atexit\natexit.register(say, 'bye')\n1 / 0", 1),
        ("import threading\nt = threading.Timer(0.01, say, ['later'])\nt.start()", 0),
        ("import warnings\nwarnings.warn('beware')", 0),
        ("raise KeyboardInterrupt", 130),
        ("class Odd(BaseException): pass\nraise Odd('words')", 1),
        ("import atexit\natexit.register(lambda: say(sys.last_type, sys.last_traceback.tb_lineno))\n1 / 0", 1),
        ("class Last:\n    def __del__(self): os.write(1, b'deleted')\nkept = [Last()]\nkept.append(kept)", 0),
        ("say(sorted(globals()), sys.orig_argv)", 0),
    ],
)
def test_ends_alike(hocket: Hocket, text: str, code: int) -> None:
    """With the same words, but for numbers."""
    script = hocket.script(text)
    without = hocket.run("run", "-n", "1", script)
    done = hocket.run("run", "-n", "1", "--preload", "numpy", script)
    assert (done.returncode, done.stdout) == (without.returncode, without.stdout) == (code, done.stdout)
    digits = str.maketrans("0123456789", "#" * 10)
    assert done.stderr.translate(digits).replace("#", "") == without.stderr.translate(digits).replace("#", "")


@pytest.mark.parametrize("environ", [{}, {"PYTHONSAFEPATH": "1"}])
@pytest.mark.parametrize("program", [["./script.py"], ["archive.py"], ["link.py"], ["-m", "pack"], ["-m", "pack.two"]])
def test_found_alike(
    hocket: Hocket, program: list[str], environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dots in its path, in a zip file, behind a link, and in a package that looks at its arguments."""
    monkeypatch.chdir(hocket.folder)
    environ = {**environ, "PYTHONPATH": f"{SOURCE}:{hocket.folder}"}
    text = "import sys\nprint(__name__, __file__, __spec__ and __spec__.origin, sys.argv, sys.path, flush=True)\n"
    for folder in ("pack", "there"):
        Path(folder).mkdir()
    for name in ("script.py", "there/script.py", "pack/__init__.py", "pack/__main__.py", "pack/two.py"):
        Path(name).write_text(text)
    Path("pack/__main__.py").write_text(text + "1 / 0\n")
    Path("link.py").symlink_to("there/script.py")
    with ZipFile("archive.py", "w") as archive:
        archive.writestr("__main__.py", text + "1 / 0\n")
    without = hocket.run("run", "-n", "1", *program, "x", environ=environ)
    done = hocket.run("run", "-n", "1", "--preload", "json", *program, "x", environ=environ)
    assert done.stdout == without.stdout != ""
    assert re.sub(r"pid \d+", "", done.stderr) == re.sub(r"pid \d+", "", without.stderr)


def test_what_is_preloaded_sees_the_programs_arguments(hocket: Hocket) -> None:
    (hocket.folder / "mine.py").write_text("import sys\nseen = sys.argv\n")
    script = hocket.script("import mine\nsay(mine.seen[1:])\n")
    done = hocket.run("run", "-n", "2", "--preload", "mine", script, "-x")
    assert (done.returncode, done.stdout, done.stderr) == (0, "['-x']\n" * 2, "")


@pytest.mark.parametrize("options", [[], ["--preload", "json"]])
@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_empty_ones(hocket: Hocket, closed: str, options: list[str]) -> None:
    """To the ranks, and nothing of ours takes their numbers."""
    seen = hocket.folder / "seen"
    script = hocket.script(
        "print('out')\nprint('err', file=sys.stderr)\n"
        f"with open({str(seen)!r}, 'a') as file: file.write(repr(sys.stdin.read()))\n"
    )
    words = [sys.executable, "-m", "hocket", "run", "-n", "2", *options, script]
    process = hocket.begin(["/bin/sh", "-c", f"exec {shlex.join(words)} {closed}"])
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert (out, err) == ("" if " >&-" in closed else "out\n" * 2, "" if "2>&-" in closed else "err\n" * 2)
    assert seen.read_text() == repr("") * 2


@pytest.mark.parametrize("name", ["there_is_none", "there_is.none", "json"])
def test_no_such_module_to_run(hocket: Hocket, name: str) -> None:
    done = hocket.run("run", "-n", "1", "--preload", "numpy", "-m", name)
    without = hocket.run("run", "-n", "1", "-m", name)
    assert done.returncode == without.returncode == 1
    assert done.stderr.partition("hocket run: ")[0] == without.stderr.partition("hocket run: ")[0]


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (None, "could not preload hocket.group, numpy, mine: No module named 'mine'"),
        ("import nothing_like_that", "No module named 'nothing_like_that'"),
        ("x = 1\n{}['key']\n", "in <module>\n    {}['key']"),
        (
            "import threading, signal\nthreading.Thread(target=signal.pause, daemon=True).start()",
            "it has started 1 thread, which a fork would not have",
        ),
        ("import os\nos._exit(3)", "the process that ranks are forked from has died"),
        (NO_FORK.format(1), USED_UP),
        (NO_FORK.format(2), USED_UP),
        (NO_FORK.format(3), USED_UP),
    ],
)
def test_what_cannot_be_preloaded_starts_nothing(hocket: Hocket, module: str | None, words: str) -> None:
    script = hocket.script("say('started')\n")
    if module is not None:
        (hocket.folder / "mine.py").write_text(module)
    done = hocket.run("run", "-n", "2", "--preload", "numpy,mine", script)
    assert (done.returncode, done.stdout) == (126, "")
    assert done.stderr.startswith("hocket run: ")
    assert words in done.stderr
    assert "forkserver" not in done.stderr


def test_without_it_a_limit_of_processes_is_told_alike(hocket: Hocket) -> None:
    (hocket.folder / "sitecustomize.py").write_text(
        "import errno, os, subprocess\n"
        "def limited(*_, **__): raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))\n"
        "subprocess.Popen.__init__ = limited\n"
    )
    where = {"PYTHONPATH": f"{hocket.folder}:{SOURCE}"}
    done = hocket.run("run", "-n", "2", hocket.script("say('started')\n"), environ=where)
    assert (done.returncode, done.stdout) == (126, "")
    assert done.stderr.startswith(f"hocket run: {USED_UP}")


@pytest.mark.parametrize("options", [[], ["--preload", "json"]])
def test_a_limit_of_descriptors_is_told(hocket: Hocket, options: list[str]) -> None:
    """Which lets nothing be imported any more, at the moment that it is reached."""
    limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (40, 40))
    script = hocket.script("forever()\n")
    done = hocket.run("run", "-n", "60", *options, script, preexec_fn=limit)
    assert done.returncode == 126
    assert done.stderr == "hocket run: this process has used up its file descriptors: 40 are allowed (ulimit -n)\n"


@pytest.mark.parametrize("ends", ["signal", "timeout"])
def test_a_preload_that_hangs_is_ended(hocket: Hocket, ends: str) -> None:
    begun = hocket.folder / "begun"
    (hocket.folder / "mine.py").write_text(
        f"import os, signal\nopen({str(begun)!r}, 'w').write(str(os.getpid()))\nsignal.pause()\n"
    )
    options = ["--timeout", "5"] if ends == "timeout" else []
    process = hocket.start("run", "-n", "2", *options, "--preload", "mine", hocket.script("say('started')\n"))
    if ends == "signal":
        until(lambda: begun.exists() and begun.read_text().isdigit(), "the module begun")
        process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (130 if ends == "signal" else 124, "")
    all_gone([int(begun.read_text() or 0)] if begun.exists() else [])  # its time may have been over before


def test_nothing_outlives_a_launcher_that_is_killed(hocket: Hocket) -> None:
    """Nor what the ranks started."""
    script = hocket.script("child = subprocess.Popen(['sleep', '600'])\nsay(os.getpid(), child.pid)\nforever()\n")
    process = hocket.start("run", "-n", "2", "--preload", "numpy", script)
    pids = [int(pid) for line in lines(process, 2) for pid in line.split()]
    pids += [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    assert len(pids) == 4 + 4  # what a rank started is its own; the ranks, the guard and the fork server are ours
    process.kill()
    all_gone(pids)


def test_nor_does_a_preload(hocket: Hocket) -> None:
    """Nor what that started."""
    begun = hocket.folder / "begun"
    (hocket.folder / "mine.py").write_text(
        "import os, signal, subprocess\nchild = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(begun)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}} ')\nsignal.pause()\n"
    )
    process = hocket.start("run", "-n", "2", "--preload", "mine", hocket.script("say('started')\n"))
    until(lambda: begun.exists() and begun.read_text().endswith(" "), "the module begun")
    process.kill()
    all_gone([int(pid) for pid in begun.read_text().split()])


def test_a_rank_that_is_not_watched_yet_does_not_begin(hocket: Hocket) -> None:
    """As where the launcher is killed in between: nobody would end it."""
    script = hocket.script("say('begun')\n")
    ours, theirs = socket.socketpair()
    begin = "from hocket.launch.forkserver import main; main()"
    with ours:
        with theirs:
            hocket.begin(
                [sys.executable, "-c", begin, str(theirs.fileno()), "json", script], pass_fds=[theirs.fileno()]
            )
        assert hear(ours)[0] == {"error": ""}
        for permitted in (b"!", b""):
            out, end = os.pipe()
            waits, permit = os.pipe()
            tell(ours, {"environ": {"RANK": "0"}, "alone": False}, [0, end, 2, waits])
            told, _ = hear(ours)
            os.write(permit, permitted)
            for descriptor in (end, waits, permit):
                os.close(descriptor)
            with os.fdopen(out, "rb") as output:
                assert output.read() == (b"begun\n" if permitted else b"")
            all_gone([told["pid"]])


@pytest.mark.parametrize("leaves_the_group", [False, True])
def test_what_a_rank_leaves_behind_is_no_child_of_ours(hocket: Hocket, leaves_the_group: bool) -> None:
    """It goes where it goes without, also where other ranks are forked later than one could have ended."""
    script = hocket.script(f"subprocess.Popen(['sleep', '1'], start_new_session={leaves_the_group})\n")
    begin = (
        "import sys, os, time; from hocket.launch.command import run_command\n"
        "from hocket.launch.starters import Forks\n"
        "fork = Forks._fork\n"
        "Forks._fork = lambda *args: (time.sleep(0.2), fork(*args))[1]\n"
        f"code = run_command([sys.executable, {script!r}], 3, preload=['json'])\n"
        "print(code, repr(open(f'/proc/self/task/{os.getpid()}/children').read()))"
    )
    process = hocket.begin([sys.executable, "-c", begin])
    assert process.communicate(timeout=60) == ("0 ''\n", "")


def test_with_other_options(hocket: Hocket) -> None:
    """Timelines, metrics, and two hosts (here both are this one)."""
    script = hocket.script(
        "import hocket\n"
        "with hocket.init(timeout=30) as group:\n"
        " say(group.rank, group.size, group.all_reduce(rank), os.environ['LOCAL_RANK'], os.environ['HOCKET_METRICS'])\n"
    )
    ports, metrics = free_ports(1), free_ports(4)
    meet = ["--nnodes", "2", "--rendezvous", f"tcp://127.0.0.1:{ports[0]}", "--preload", "json", "-n", "2"]
    trace = hocket.folder / "trace"
    jobs = [
        hocket.start(
            *(
                "run",
                *meet,
                "--node-rank",
                str(node),
                "--trace",
                str(trace),
                "--metrics",
                str(metrics[2 * node]),
                script,
            ),
            environ={"HOCKET_SECRET": "the same on both hosts"},
        )
        for node in range(2)
    ]
    said = [job.communicate(timeout=60) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], said
    got = sorted(line for out, _ in said for line in out.splitlines())
    assert got == [f"{rank} 4 6 {rank % 2} {metrics[rank // 2 * 2]}" for rank in range(4)]
    assert {f"rank-{rank}.json" for rank in range(4)} <= {path.name for path in trace.iterdir()}


def test_who_is_started_again_is_forked_again(hocket: Hocket) -> None:
    script = hocket.script(
        "import hocket, counted\n"
        "group = hocket.init(timeout=30)\n"
        "if rank == 1 and 'HOCKET_RESTARTS' not in os.environ: os.kill(os.getpid(), signal.SIGKILL)\n"
        "if 'HOCKET_RESTARTS' not in os.environ:\n"
        "    try: group.barrier()\n"
        "    except hocket.HocketError: group = group.recover()\n"
        "    while group.size < 3: group = group.grow() if group.pending() else group\n"
        "say(group.size, group.all_reduce(group.rank), counted.pid != os.getpid())\n"
        "group.close()\n"
    )
    seen = counted(hocket)
    done = hocket.run("run", "-n", "3", "--max-restarts", "1", "--preload", "counted", script)
    assert (done.returncode, done.stdout) == (0, "3 3 True\n" * 3), done.stderr
    assert seen.read_text() == "x"
    assert "started again (1 of 1)" in done.stderr


def test_a_fork_server_that_is_stopped_does_not_stop_the_launcher(hocket: Hocket) -> None:
    """It hears of signals, though a rank is to be started."""
    script = hocket.script("say(os.getpid())\nforever()\n")
    process = hocket.start("run", "-n", "2", "--max-restarts", "1", "--preload", "json", script)
    ranks = [int(line) for line in lines(process, 2)]
    server = _server_of(process.pid, ranks)
    os.kill(server, signal.SIGSTOP)
    os.kill(ranks[1], signal.SIGKILL)
    until(lambda: is_gone(ranks[0]), "all are to be started again")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130
    all_gone([server, *ranks])


def test_the_death_of_the_fork_server_is_told(hocket: Hocket) -> None:
    """Where somebody is to be started again; and all are ended."""
    script = hocket.script("say(os.getpid())\nforever()\n")
    process = hocket.start("run", "-n", "2", "--max-restarts", "1", "--preload", "json", script)
    ranks = [int(line) for line in lines(process, 2)]
    os.kill(_server_of(process.pid, ranks), signal.SIGKILL)
    os.kill(ranks[1], signal.SIGKILL)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 126
    assert "hocket run: the process that ranks are forked from has died" in err
    all_gone(ranks)


def _server_of(launcher: int, ranks: list[int]) -> int:
    ours = {int(pid) for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()}
    (server,) = [pid for pid in ours - {*ranks} if b"forkserver" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return server
