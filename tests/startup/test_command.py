"""`hocket run`, as a user and a shell see it: streams, exit codes, signals, and what is left behind."""

from __future__ import annotations

import os
import pty
import re
import signal
import sys
import termios
from pathlib import Path
from subprocess import Popen

import pytest
from launching import Hocket, all_gone, is_gone, lines, until

from hocket.launch import aftermath

BLAME = "hocket run: rank {} (pid "


def headline(err: str) -> str:
    """The line in which the launcher speaks."""
    (line,) = [line for line in err.splitlines() if line.startswith("hocket run: ")]
    return line


# ---- programs and streams ----


def test_every_rank_has_its_place(hocket: Hocket) -> None:
    script = hocket.script(
        "names = 'RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE OMP_NUM_THREADS HOCKET_ADDRESS HOCKET_SECRET'.split()\n"
        "*places, address, secret = [os.environ[name] for name in names]\n"
        "say(*places, address[:8], len(secret), *sys.argv[1:])"
    )
    done = hocket.run("run", "-n", "3", script, "-n", "7", "--tag-output", "--", "last")
    assert done.returncode == 0
    assert done.stderr == ""
    rest = "@hocket- 32 -n 7 --tag-output -- last"
    assert sorted(done.stdout.splitlines()) == [f"{r} 3 {r} 3 1 {rest}" for r in range(3)]


def test_the_jobs_port_is_free_for_its_ranks_alone(hocket: Hocket) -> None:
    script = hocket.script(
        "import socket\n"
        "place = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])\n"
        "for reuse in range(2):\n"
        "    with socket.socket() as listener:\n"
        "        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)\n"
        "        try: listener.bind(place), listener.listen()\n"
        "        except OSError as error: say(error.strerror)\n"
        "        else: say(*place)"
    )
    taken, place = hocket.run("run", "-n", "1", script).stdout.splitlines()
    assert taken == "Address already in use"
    assert re.fullmatch(r"127\.0\.0\.1 \d+", place)


def test_any_program_and_any_module(hocket: Hocket) -> None:
    assert hocket.run("run", "-n", "2", "--", "sh", "-c", "exit 0").returncode == 0
    (hocket.folder / "here.py").write_text("import sys; print(sys.argv[1:])")
    done = hocket.run("run", "-n", "2", "-m", "here", "-m", "x", cwd=hocket.folder)
    assert done.stdout == "['-m', 'x']\n" * 2


def test_auto_is_one_rank_per_core(hocket: Hocket) -> None:
    done = hocket.run("run", "-n", "auto", hocket.script("say(rank)"))
    assert sorted(done.stdout.split(), key=int) == [str(r) for r in range(len(os.sched_getaffinity(0)))]


def test_tagged_lines(hocket: Hocket) -> None:
    script = hocket.script(
        "for word in 'one', 'two':\n    print(word, rank); print(word, rank, file=sys.stderr)\nprint('end', end='')"
    )
    done = hocket.run("run", "-n", "2", "--tag-output", script)
    for text, end in ((done.stdout, ["end"]), (done.stderr, [])):
        for r in range(2):
            mine = [line for line in text.splitlines() if line.startswith(f"[{r}] ")]
            assert mine == [f"[{r}] one {r}", f"[{r}] two {r}", *(f"[{r}] {word}" for word in end)]


@pytest.mark.parametrize("stream", [1, 2])
def test_output_arrives_unchanged(hocket: Hocket, stream: int) -> None:
    script = hocket.script(f"for i in range(256): os.write({stream}, bytes(range(i, 256)) * 3)")
    process = hocket.start("run", "-n", "1", script, text=False)
    expected = b"".join(bytes(range(i, 256)) * 3 for i in range(256))
    assert process.communicate(timeout=20)[stream - 1] == expected


def test_lines_of_different_ranks_are_not_mixed(hocket: Hocket) -> None:
    script = hocket.script("for i in range(200): print(*[rank] * 50)")
    done = hocket.run("run", "-n", "4", script)
    assert sorted(set(done.stdout.splitlines())) == [" ".join([str(r)] * 50) for r in range(4)]
    assert len(done.stdout.splitlines()) == 800


def test_a_prompt_is_not_held_back(hocket: Hocket) -> None:
    process = hocket.start("run", "-n", "1", hocket.script("os.write(1, b'name? ')\nforever()"), bufsize=0, text=False)
    assert process.stdout is not None
    assert process.stdout.read(6) == b"name? "
    process.send_signal(signal.SIGTERM)
    process.wait(20)


def test_stdin_goes_to_rank_0(hocket: Hocket) -> None:
    done = hocket.run("run", "-n", "3", hocket.script("say(rank, repr(sys.stdin.read()))"), text="words\n")
    assert sorted(done.stdout.splitlines()) == ["0 'words\\n'", "1 ''", "2 ''"]


def test_ranks_share_a_session_and_lead_process_groups(hocket: Hocket) -> None:
    """Ranks of several sessions could not give way to one another."""
    done = hocket.run("run", "-n", "3", hocket.script("say(os.getsid(0), os.getpgrp() == os.getpid())"))
    assert done.stdout.splitlines() == [f"{os.getsid(0)} True"] * 3


def test_a_terminal_is_seen_and_read_by_rank_0(hocket: Hocket) -> None:
    """On a terminal rank 0 can ask, and every rank can tell that it writes to one."""
    ours, theirs = pty.openpty()
    script = hocket.script(
        "answer = input('name? ') if rank == 0 else ''\nsay(rank, sys.stdin.isatty(), sys.stdout.isatty(), answer)"
    )
    process = hocket.start("run", "-n", "2", "--no-tag-output", script, stdin=theirs, stdout=theirs)
    os.close(theirs)
    os.write(ours, b"Ockeghem\n")
    seen = ""
    while "0 True True Ockeghem" not in seen or "1 False True" not in seen:
        seen += os.read(ours, 1000).decode()
    assert process.wait(20) == 0
    os.close(ours)


def test_at_a_terminal_lines_begin_with_their_rank(hocket: Hocket) -> None:
    """A question too, and what rank 1 says before it is answered has a line of its own."""
    ours, theirs = pty.openpty()
    attributes = termios.tcgetattr(theirs)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    script = hocket.script(
        "if rank == 0: say('hello', input('name? '))\n"
        "else:\n    while not os.path.exists(sys.argv[1]): time.sleep(0.005)\n    say('now')"
    )
    asked = hocket.folder / "asked"
    process = hocket.start("run", "-n", "2", script, str(asked), stdin=theirs, stdout=theirs)
    os.close(theirs)
    seen = b""
    while not seen.endswith(b"name? "):
        seen += os.read(ours, 1000)
    asked.touch()
    while not seen.endswith(b"now\r\n"):
        seen += os.read(ours, 1000)
    os.write(ours, b"Ockeghem\n")
    while not seen.endswith(b"Ockeghem\r\n"):
        seen += os.read(ours, 1000)
    assert process.wait(20) == 0
    os.close(ours)
    first, second = b"\x1b[36m[0]\x1b[0m ", b"\x1b[33m[1]\x1b[0m "
    assert seen.split(b"\r\n") == [first + b"name? ", second + b"now", first + b"hello Ockeghem", b""]


def test_a_single_rank_has_the_terminal(hocket: Hocket) -> None:
    ours, theirs = pty.openpty()
    process = hocket.start("run", "-n", "1", hocket.script("say(sys.stdout.isatty())"), stdin=theirs, stdout=theirs)
    os.close(theirs)
    seen = b""
    while not seen.endswith(b"\n"):  # a terminal gives a line in pieces, too
        seen += os.read(ours, 1000)
    assert seen == b"True\r\n"
    assert process.wait(20) == 0
    os.close(ours)


def test_nobody_reads_the_output(hocket: Hocket) -> None:
    script = hocket.script("say(os.getpid())\nwhile True: say('more')")
    process = hocket.start("run", "-n", "2", script)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    assert process.wait(20) == 128 + signal.SIGPIPE


# ---- failures ----


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.py"], "nowhere.py: there is no such file"),
        (["no-such-program"], "no-such-program: there is no such program"),
        (["-n", "0", "true"], '"0" is neither a number of ranks'),
        (["-n", "many", "true"], '"many" is neither a number of ranks'),
        (["--timeout", "0", "true"], "Invalid value for '--timeout'"),
        (["--no-such-option", "true"], "No such option"),
        ([], "Missing argument"),
    ],
)
def test_usage_errors_are_code_2(hocket: Hocket, words: list[str], message: str) -> None:
    done = hocket.run("run", *words)
    assert done.returncode == 2
    assert message in re.sub(r"\s*│\n│\s*", " ", done.stderr)


def test_a_program_that_the_kernel_refuses(hocket: Hocket) -> None:
    (program := hocket.folder / "program").write_text("no program at all")
    program.chmod(0o755)
    done = hocket.run("run", "-n", "2", str(program))
    assert done.returncode == 126
    assert done.stderr.startswith("hocket run: [Errno 8] Exec format error")


def test_the_first_failure_is_what_the_user_sees_last(hocket: Hocket) -> None:
    script = hocket.script("if rank == 2: raise ValueError('the cause')\nforever()")
    done = hocket.run("run", "-n", "4", script)
    assert done.returncode == 1
    assert headline(done.stderr).startswith(BLAME.format(2))
    assert headline(done.stderr).endswith(") failed first: exit code 1; the others were ended")
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.splitlines()[1] == "rank 2:"
    assert done.stderr.endswith("\nValueError: the cause\n")


@pytest.mark.parametrize("tag", [[], ["--tag-output"]])
def test_it_is_shown_again_when_others_spoke_after_it(hocket: Hocket, tag: list[str]) -> None:
    script = hocket.script(
        "def bye(*_): print('a last word', file=sys.stderr); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, bye)\n"
        "if rank == 1:\n"
        "    sys.stdin = open(sys.argv[1]); sys.stdin.read(1); raise ValueError('the cause')\n"
        "open(sys.argv[1], 'w').write('x')\n"
        "while True: time.sleep(1)"
    )
    fifo = hocket.folder / "fifo"
    os.mkfifo(fifo)
    done = hocket.run("run", "-n", "2", *tag, script, str(fifo))
    assert done.returncode == 1
    before, after = done.stderr.split(headline(done.stderr))
    assert before.splitlines()[-1] == ("[0] " if tag else "") + "a last word"
    assert after.strip().startswith("rank 1:\nTraceback")
    assert done.stderr.strip().endswith("ValueError: the cause")


MISTAKE = """
import numpy as np, hocket
def step(group):
    return group.all_reduce(np.ones(4 if rank == 3 else 3))
step(hocket.init())
"""


def test_one_error_is_one_screen(hocket: Hocket) -> None:
    """What all ranks raise alike is shown once, from the user's line on."""
    done = hocket.run("run", "-n", "5", hocket.script(MISTAKE))
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert len(lines) < 16
    assert headline(done.stderr) == lines[0] == "hocket run: ranks 0-4 failed: exit code 1"
    assert lines[1] == "ranks 0-4:"
    assert lines[2] == "Traceback (most recent call last):"
    assert re.search(r"in step$", "\n".join(line for line in lines if line.startswith("  File")))
    assert "src/hocket" not in done.stderr
    assert done.stderr.count("hocket.errors.MismatchError: ") == 1


def test_a_syntax_error_is_shown_once(hocket: Hocket) -> None:
    """It has no line that says "Traceback"."""
    done = hocket.run("run", "-n", "3", hocket.script("print(1"))
    lines = done.stderr.splitlines()
    assert lines[:2] == ["hocket run: ranks 0-2 failed: exit code 1", "ranks 0-2:"]
    assert lines[2].startswith('  File "')
    assert [line for line in lines if line.startswith("SyntaxError: ")] == lines[-1:]
    assert len(lines) < 8


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("hocket.init().broadcast_object(lambda: 1)", "PicklingError: Can't pickle <function <lambda> at "),
        ("hocket.init().all_gather_object(open(__file__))", "TypeError: cannot pickle '_io.TextIOWrapper' object"),
        (
            "hocket.init().Get_rank()",
            "'Group' object has no attribute 'Get_rank'; what you look for is group.rank here",
        ),
        ("hocket.init(); hocket.all_reduce(3)", "calls are methods of a group, such as hocket.init().all_reduce"),
    ],
)
def test_a_mistake_shows_no_line_of_hockets(hocket: Hocket, call: str, error: str) -> None:
    done = hocket.run("run", "-n", "1", hocket.script(f"import hocket\n{call}"))
    assert error in done.stderr
    assert "src/hocket" not in done.stderr


def test_one_error_of_ranks_in_different_places(hocket: Hocket) -> None:
    """Each line of the program, and the error under them once."""
    script = hocket.script(
        "import numpy as np, hocket\ngroup = hocket.init()\n"
        "if rank == 1: group.broadcast(np.ones(2), root=1)\nelse: group.barrier()"
    )
    done = hocket.run("run", "-n", "3", script)
    lines = [line for line in done.stderr.splitlines() if not re.fullmatch(r"[ ~^]*", line)]
    assert lines[0] == headline(done.stderr) == "hocket run: ranks 0-2 failed: exit code 1"
    assert [line for line in lines if not line.startswith(" ")][1:5] == [
        "ranks 0, 2:",
        "Traceback (most recent call last):",
        "rank 1:",
        "Traceback (most recent call last):",
    ]
    assert done.stderr.count("hocket.errors.MismatchError: ") == 1
    assert sum("group.barrier()" in line for line in lines) == 1
    assert sum("root=1)" in line and line.startswith("    if") for line in lines) == 1


def test_developers_see_all_of_it(hocket: Hocket) -> None:
    done = hocket.run("run", "-n", "2", sys.executable, "-X", "dev", hocket.script(MISTAKE.replace("3 else", "1 else")))
    assert "calls/session.py" in done.stderr


def test_errors_that_differ_are_shown_each(hocket: Hocket) -> None:
    """The cause last; of more than three the others without their tracebacks."""
    script = hocket.script(
        "raise [IndexError, KeyError, OSError, EOFError, ValueError, ValueError][rank]('why', rank // 5)"
    )
    done = hocket.run("run", "-n", "6", script)
    assert done.stderr.count("Traceback") >= 3
    before, after = done.stderr.split(headline(done.stderr))
    (blamed,) = re.findall(r"rank (\d)", headline(done.stderr))
    assert after.startswith(f"\nrank {blamed}:\nTraceback")
    assert len(re.findall(r"^rank \d:\n\w+Error: ", before, flags=re.MULTILINE)) == 2
    assert {*re.findall(r"^rank (\d)", done.stderr, flags=re.MULTILINE)} == set("012345")


def test_last_words_are_shown_though_something_else_holds_the_stream(hocket: Hocket) -> None:
    """A daemon that left the rank's process group: it is not ended, and nobody waits for it."""
    script = hocket.script(
        "import subprocess\n"
        "daemon = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "say(daemon.pid)\n"
        "raise ValueError('the cause')"
    )
    done = hocket.run("run", "-n", "2", script)
    for pid in done.stdout.split():
        os.kill(int(pid), signal.SIGKILL)
    assert done.stderr.endswith("\nValueError: the cause\n")
    assert "ranks 0, 1:\n" in done.stderr


def test_a_traceback_of_a_program_that_goes_on_is_not_held_for_ever(hocket: Hocket) -> None:
    script = hocket.script(
        "import traceback\ntry: 1 / 0\nexcept ZeroDivisionError: traceback.print_exc()\n"
        "print('and on', file=sys.stderr)\nforever()"
    )
    process = hocket.start("run", "-n", "2", script)
    assert process.stderr is not None
    lines: list[str] = []
    while lines.count("and on\n") < 2:
        lines.append(process.stderr.readline())
    assert lines.count("Traceback (most recent call last):\n") == 2
    assert lines.count("ZeroDivisionError: division by zero\n") == 2
    process.send_signal(signal.SIGTERM)
    process.wait(20)


@pytest.mark.parametrize("code", [1, 3, 255])
def test_the_exit_code_is_that_of_the_first_failure(hocket: Hocket, code: int) -> None:
    done = hocket.run("run", "-n", "2", hocket.script(f"if rank == 1: sys.exit({code})\nforever()"))
    assert done.returncode == code
    assert f"failed first: exit code {code};" in headline(done.stderr)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_rank_that_was_killed(hocket: Hocket, number: signal.Signals) -> None:
    done = hocket.run("run", "-n", "2", hocket.script(f"if rank == 1: os.kill(os.getpid(), {number})\nforever()"))
    assert done.returncode == 128 + number
    assert f"failed first: killed by {number.name};" in headline(done.stderr)


CONSEQUENCE = f"""
if rank == 0:
    end = os.open(sys.argv[1], os.O_WRONLY)
    os._exit({aftermath.CONSEQUENCE})
open(sys.argv[1]).read()  # until rank 0 has ended
"""


@pytest.mark.parametrize(
    ("then", "code", "words"),
    [
        ("sys.exit('the cause')", 1, "failed first: exit code 1"),
        ("os.kill(os.getpid(), 9)", 137, "failed first: killed by SIGKILL"),
    ],
)
def test_the_cause_is_blamed_though_its_consequence_ended_first(
    hocket: Hocket, then: str, code: int, words: str
) -> None:
    fifo = hocket.folder / "fifo"
    os.mkfifo(fifo)
    done = hocket.run("run", "-n", "2", hocket.script(CONSEQUENCE + then), str(fifo))
    assert done.returncode == code
    assert headline(done.stderr).startswith(BLAME.format(1))
    assert words in headline(done.stderr)


def test_a_consequence_without_a_cause_is_blamed_after_all(hocket: Hocket) -> None:
    script = hocket.script(f"if rank: sys.exit({aftermath.CONSEQUENCE})\nforever()")
    done = hocket.run("run", "-n", "2", script)
    assert done.returncode == aftermath.CONSEQUENCE
    assert headline(done.stderr).startswith(BLAME.format(1))
    assert headline(done.stderr).endswith("failed first: exit code 76, for a peer was lost; the others were ended")


EARLY = (
    r"^hocket run: rank {} \(pid \d+\) ended first \(exit code 0\), while the others still needed it; "
    r"rank {} \(pid \d+\) then failed: exit code 76, for a peer was lost(; the others were ended)?$"
)


def test_a_rank_that_ended_too_early_is_blamed(hocket: Hocket) -> None:
    done = hocket.run("run", "-n", "2", hocket.script(f"sys.exit({aftermath.CONSEQUENCE} if rank else 0)"))
    assert done.returncode == aftermath.CONSEQUENCE
    assert re.match(EARLY.format(0, 1), headline(done.stderr))


def test_of_those_that_ended_the_one_that_was_needed_is_blamed(hocket: Hocket) -> None:
    """Rank 3 names it. Rank 0 has ended before, rank 2 ends afterwards, and rank 1 only when rank 3 has failed."""
    script = hocket.script(
        "folder = sys.argv[1]\n"
        "def wait(name):\n"
        "    while not os.path.exists(f'{folder}/{name}'): time.sleep(0.005)\n"
        "def tell(name, text=''):\n"
        "    with open(f'{folder}/{name}.part', 'w') as file: file.write(text)\n"
        "    os.rename(f'{folder}/{name}.part', f'{folder}/{name}')\n"
        "def ended(name):\n"
        "    wait(name)\n"
        "    pid = open(f'{folder}/{name}').read()\n"
        "    while open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[0] != 'Z': time.sleep(0.005)\n"
        "    return pid\n"
        "if rank == 0: tell('zero', str(os.getpid()))\n"
        "if rank == 1: tell('one', str(os.getpid())); wait('failed')\n"
        "if rank == 2: ended('zero'); tell('two', str(os.getpid()))\n"
        "if rank == 3:\n"
        "    ended('two')\n"
        "    wait('one')\n"
        "    pid = open(f'{folder}/one').read()\n"
        "    print(f'rank 1 (pid {pid} on host) left the group while rank 3 (pid {os.getpid()} on host) waited',"
        " file=sys.stderr)\n"
        "    tell('failed')\n"
        f"    sys.exit({aftermath.CONSEQUENCE})"
    )
    (hocket.folder / "notes").mkdir()
    done = hocket.run("run", "-n", "4", script, str(hocket.folder / "notes"))
    assert done.returncode == aftermath.CONSEQUENCE
    assert re.match(EARLY.format(1, 3), headline(done.stderr))


def test_the_jobs_time(hocket: Hocket) -> None:
    done = hocket.run("run", "-n", "2", "--timeout", "0.1", "sleep", "1000")
    assert done.returncode == 124
    assert re.search(r"time is over; these were still running: rank 0 \(pid \d+\), rank 1 \(pid \d+\)$", done.stderr)


# ---- signals, and nothing left ----

# Each rank has a child; all are deaf to what they may be, and tell their pids.
STUBBORN = """
deaf = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
signal.pthread_sigmask(signal.SIG_BLOCK, deaf)
child = subprocess.Popen(['sleep', '1000'])
say(os.getpid()), say(child.pid)
"""


def pids(process: Popen[str], count: int) -> list[int]:
    return [int(line) for line in lines(process, count)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_passed_on(hocket: Hocket, number: signal.Signals) -> None:
    script = hocket.script(
        "def bye(*_): say('bye', rank); sys.exit(0)\n"
        f"signal.signal({number}, bye)\nsay('here')\nwhile True: time.sleep(9)"
    )
    process = hocket.start("run", "-n", "2", script)
    assert lines(process, 2) == ["here", "here"]
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert sorted(out.splitlines()) == ["bye 0", "bye 1"]
    assert headline(err) == f"hocket run: {number.name}: the job was ended"


def test_a_second_ctrl_c_kills(hocket: Hocket) -> None:
    process = hocket.start("run", "-n", "2", "--grace", "1000", hocket.script(STUBBORN + "forever()"))
    ranks = pids(process, 4)
    process.send_signal(signal.SIGINT)
    until(lambda: _pending(process.pid, signal.SIGINT) is False, "the first one taken")
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    all_gone(ranks)


def _pending(pid: int, number: int) -> bool:
    """Whether the signal waits to be taken by the process."""
    status = Path(f"/proc/{pid}/status").read_text()
    masks = [int(mask, 16) for mask in re.findall(r"^(?:SigPnd|ShdPnd):\s*(\w+)", status, re.MULTILINE)]
    return any(mask >> (number - 1) & 1 for mask in masks)


def test_the_stubborn_are_killed_after_the_grace(hocket: Hocket) -> None:
    script = hocket.script(
        STUBBORN + "if rank == 1: sys.stdin = open(sys.argv[1]); sys.stdin.read(); sys.exit(5)\n"
        "if rank == 2: os.kill(os.getpid(), signal.SIGSTOP)\n"
        "forever()"
    )
    fifo = hocket.folder / "fifo"
    os.mkfifo(fifo)
    process = hocket.start("run", "-n", "3", "--grace", "0.2", script, str(fifo))
    ranks = pids(process, 6)
    fifo.write_text("go")
    assert process.wait(20) == 5
    all_gone(ranks)


def test_what_ranks_leave_behind_is_ended_with_the_job(hocket: Hocket) -> None:
    done = hocket.run("run", "-n", "2", hocket.script(STUBBORN))
    assert done.returncode == 0
    all_gone([int(line) for line in done.stdout.split()])


def test_nothing_survives_a_killed_launcher(hocket: Hocket) -> None:
    process = hocket.start("run", "-n", "3", hocket.script(STUBBORN + "forever()"))
    ranks = pids(process, 6)
    guards = [int(p) for p in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    process.kill()
    process.wait(20)
    all_gone(ranks + guards)


def test_killing_all_ranks_ends_the_job(hocket: Hocket) -> None:
    process = hocket.start("run", "-n", "3", hocket.script("say(os.getpid())\nforever()"))
    ranks = pids(process, 3)
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)
    assert process.wait(20) == 137
    assert all(is_gone(pid) for pid in ranks)


def test_the_ranks_get_no_descriptors_of_the_launcher(hocket: Hocket) -> None:
    script = hocket.script("say(*sorted(os.listdir('/proc/self/fd'), key=int))")
    done = hocket.run("run", "-n", "2", script)
    assert done.stdout.splitlines() == ["0 1 2 3"] * 2  # 3 is the listing's own


def test_no_socket_is_left(hocket: Hocket) -> None:
    done = hocket.run("run", "-n", "2", hocket.script("say(os.environ['HOCKET_ADDRESS'])"))
    address = done.stdout.split()[0]
    assert address not in Path("/proc/net/unix").read_text()
