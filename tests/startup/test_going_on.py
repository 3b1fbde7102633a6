"""`hocket run --max-restarts K --min-ranks N`: what becomes of the others, and of the job, when ranks die."""

from __future__ import annotations

import os
import pty
import re
import signal
import termios
from pathlib import Path
from subprocess import Popen

import pytest
from launching import Hocket, all_gone, lines

from moments import state, until
from ports import free_ports

# All meet, and nobody goes on, maybe to its death, while another one is in that call. From then on a rank that is in a
# call when another one is lost goes on with those that are left.
MEET = """
import hocket
lives = int(os.environ.get('HOCKET_RESTARTS', '0'))
def kill(): os.kill(os.getpid(), signal.SIGKILL)
def meet():
    group = hocket.init(timeout=20)
    group.barrier()
    open(f'{__file__}.{rank}', 'w')
    while not all(os.path.exists(f'{__file__}.{other}') for other in range(group.size)): time.sleep(0.005)
    return group
def total(group):
    while True:
        try: return group.all_reduce(10**rank)
        except hocket.HocketError: group = group.recover()
def show(): open(sys.argv[1], 'w')
def shown():
    while not os.path.exists(sys.argv[1]): time.sleep(0.005)
"""
LOST = "; the others go on ({} ranks, at least {} are needed)"


def told(err: str) -> list[str]:
    """What the launcher said, without pids."""
    return [re.sub(r" \(pid \d+\)", "", line[12:]) for line in err.splitlines() if line.startswith("hocket run: ")]


def hear(process: Popen[str], words: str) -> None:
    """Read its errors up to a line with these."""
    assert process.stderr is not None
    while words not in (line := process.stderr.readline()):
        assert line, f"it ended without {words!r}"


# ---- going on ----


def test_the_others_go_on_without_a_rank(hocket: Hocket) -> None:
    script = hocket.script(MEET + "group = meet()\nif rank == 1: kill()\nsay(rank, total(group))\nshown()")
    sign = hocket.folder / "sign"
    process = hocket.start("run", "-n", "4", "--min-ranks", "2", script, str(sign))
    assert process.stderr is not None
    assert told(process.stderr.readline()) == ["rank 1 failed: killed by SIGKILL" + LOST.format(3, 2)]
    assert lines(process, 3) == ["0 1101", "2 1101", "3 1101"]
    sign.touch()
    assert process.communicate(timeout=20) == ("", "")
    assert process.returncode == 0


def test_its_error_is_shown_at_once(hocket: Hocket) -> None:
    """Under the line that tells of it, while the others go on; and not again at their end."""
    script = hocket.script(MEET + "group = meet()\nif rank == 1: raise ValueError('the cause')\ntotal(group)\nshown()")
    sign = hocket.folder / "sign"
    process = hocket.start("run", "-n", "3", "--min-ranks", "2", script, str(sign))
    assert process.stderr is not None
    first = [process.stderr.readline() for _ in range(3)]
    assert told(first[0]) == ["rank 1 failed: exit code 1" + LOST.format(2, 2)]
    assert first[1:] == ["rank 1:\n", "Traceback (most recent call last):\n"]
    hear(process, "ValueError: the cause")
    assert process.poll() is None
    sign.touch()
    assert process.communicate(timeout=20) == ("", "")
    assert process.returncode == 0


def test_what_is_no_traceback_is_not_shown_twice(hocket: Hocket) -> None:
    script = hocket.script(MEET + "group = meet()\nif rank == 1: sys.exit('the cause')\ntotal(group)\nshown()")
    sign = hocket.folder / "sign"
    process = hocket.start("run", "-n", "3", "--min-ranks", "2", script, str(sign))
    assert process.stderr is not None
    assert process.stderr.readline() == "the cause\n"
    assert told(process.stderr.readline()) == ["rank 1 failed: exit code 1" + LOST.format(2, 2)]
    sign.touch()
    assert process.communicate(timeout=20) == ("", "")
    assert process.returncode == 0


def test_the_launcher_has_lines_of_its_own(hocket: Hocket) -> None:
    """Between those of ranks, of which one is not at its end."""
    script = hocket.script(
        MEET + "group = meet()\nif rank: shown(); kill()\n"
        "os.write(2, b'half')\ntotal(group)\nprint(' a line', file=sys.stderr)"
    )
    sign = hocket.folder / "sign"
    process = hocket.start("run", "-n", "2", "--min-ranks", "1", "--tag-output", script, str(sign))
    assert process.stderr is not None
    assert process.stderr.read(8) == "[0] half"
    sign.touch()
    assert process.stderr.readline() == "\n"
    assert process.stderr.readline().startswith("hocket run: rank 1 (pid ")
    assert process.communicate(timeout=20)[1] == "[0]  a line\n"
    assert process.returncode == 0


def test_below_the_least_the_job_ends(hocket: Hocket) -> None:
    script = hocket.script(
        MEET + "group = meet()\nif rank == 1: kill()\n"
        "if rank == 0: say(os.getpid()); forever()\n"
        "try: group.barrier()\nexcept hocket.HocketError: sys.exit(5)"
    )
    done = hocket.run("run", "-n", "3", "--min-ranks", "2", script)
    assert done.returncode == 5
    assert told(done.stderr) == [
        "rank 1 failed: killed by SIGKILL" + LOST.format(2, 2),
        "rank 2 failed: exit code 5; too few are left (1 rank, at least 2 are needed); the others were ended",
    ]
    all_gone([int(done.stdout)])


def test_all_fail_though_one_would_be_enough(hocket: Hocket) -> None:
    """They do not go on after their loss: the last one's code is the job's, and their errors are shown once."""
    script = hocket.script(MEET + "group = meet()\nif rank == 1: kill()\ngroup.barrier()")
    done = hocket.run("run", "-n", "4", "--min-ranks", "1", script)
    assert done.returncode == 76
    events = told(done.stderr)
    assert events[0] == "rank 1 failed: killed by SIGKILL; the others go on (3 ranks, at least 1 is needed)"
    assert events[-1].endswith("exit code 76, for a peer was lost; too few are left (0 ranks, at least 1 is needed)")
    assert len(events) == 4
    assert done.stderr.count("PeerLost: rank 1") < 3  # once, unless one of them took its time


def test_the_last_words_of_each_life_are_shown(hocket: Hocket) -> None:
    """Although those of a consequence wait for those of others."""
    script = hocket.script(
        MEET + "from hocket.launch import aftermath\n"
        "if not lives: meet()\n"
        "aftermath.install()\n"
        "if rank: raise hocket.PeerLost(f'life {lives}')\n"
        "forever()"
    )
    done = hocket.run("run", "-n", "2", "--max-restarts", "1", script)
    assert done.returncode == 76
    assert re.findall(r"PeerLost: (life \d)", done.stderr) == ["life 0", "life 1"]


@pytest.mark.parametrize("options", [["--max-restarts", "0"], ["--min-ranks", "2"]])
def test_what_is_said_anyway_changes_nothing(hocket: Hocket, options: list[str]) -> None:
    script = hocket.script("if rank == 1: sys.exit(3)\nsay(os.environ.get('HOCKET_RESTARTS'))\nforever()")
    done = hocket.run("run", "-n", "2", *options, script)
    assert done.returncode == 3
    assert told(done.stderr) == ["rank 1 failed first: exit code 3; the others were ended"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-n", "4", "--min-ranks", "5"], "--min-ranks 5 is more than there are: -n 4"),
        (["-n", "4", "--min-ranks", "0"], "Invalid value for '--min-ranks'"),
        (["-n", "4", "--max-restarts", "-1"], "Invalid value for '--max-restarts'"),
    ],
)
def test_usage_errors(hocket: Hocket, words: list[str], message: str) -> None:
    done = hocket.run("run", *words, "true")
    assert done.returncode == 2
    assert message in re.sub(r"\s*│\n│\s*", " ", done.stderr)


# ---- starting one again ----


def test_a_rank_is_started_again_where_it_was(hocket: Hocket) -> None:
    """With its place, its streams and its tag; it alone knows how often, and the others were left alone."""
    script = hocket.script(
        MEET + "names = 'RANK WORLD_SIZE LOCAL_RANK HOCKET_ADDRESS HOCKET_SECRET MASTER_PORT HOCKET_MIN_RANKS'\n"
        "place = [os.environ.get(name) for name in names.split()]\n"
        "if not lives: group = meet()\n"
        "if rank == 0: word = os.read(0, 4)\n"
        "if rank == 0 and not lives: os.write(1, b'begun'); kill()\n"
        "if rank == 0: place.append(sys.stdin.read())\n"
        "elif not lives: total(group); shown()\n"
        "show()\nsay(os.environ.get('HOCKET_RESTARTS'), *place)"
    )
    options = ["--max-restarts", "2", "--min-ranks", "2", "--tag-output"]
    done = hocket.run("run", "-n", "3", *options, script, str(hocket.folder / "sign"), text="one\ntwo\nthree\n")
    assert done.returncode == 0
    assert told(done.stderr) == ["rank 0 failed: killed by SIGKILL; started again (1 of 2)"]
    said = sorted(done.stdout.splitlines())
    assert [line.split()[:5] for line in said if "@" in line] == [
        ["[0]", "1", "0", "3", "0"],
        ["[1]", "None", "1", "3", "1"],
        ["[2]", "None", "2", "3", "2"],
    ]
    assert len({tuple(line.split()[5:9]) for line in said if "@" in line}) == 1
    assert {line.split()[8] for line in said if "@" in line} == {"2"}
    assert "[0] begun" in said
    assert next(line for line in said if line.startswith("[0] 1")).endswith(" three")


def test_its_successor_reads_the_terminal(hocket: Hocket) -> None:
    ours, theirs = pty.openpty()
    attributes = termios.tcgetattr(theirs)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    script = hocket.script(
        MEET + "if not lives: group = meet()\n"
        "if rank: total(group); shown()\n"
        "elif not lives: input('name? '); kill()\n"
        "else: show(); say(input('again? '), sys.stdin.isatty(), os.getsid(0) == os.getpid())"
    )
    command = ["run", "-n", "2", "--max-restarts", "1", script, str(hocket.folder / "sign")]
    process = hocket.start(*command, stdin=theirs, stdout=theirs)
    os.close(theirs)
    seen = b""
    for question, answer in ((b"name? ", b"Ockeghem\n"), (b"again? ", b"Obrecht\n")):
        while not seen.endswith(question):
            seen += os.read(ours, 1000)
        os.write(ours, answer)
    while not seen.endswith(b"\r\n"):
        seen += os.read(ours, 1000)
    assert seen.endswith(b"Obrecht True True\r\n")
    assert process.wait(20) == 0
    os.close(ours)


def test_restarts_are_used_up(hocket: Hocket) -> None:
    """By one that fails each time: the job ends with its code."""
    script = hocket.script(
        MEET + "if not lives: meet()\nif rank == 0: forever()\n"
        "say(lives)\nprint('words', lives, file=sys.stderr)\nsys.exit(3)"
    )
    done = hocket.run("run", "-n", "2", "--max-restarts", "2", script)
    assert done.returncode == 3
    assert done.stdout.split() == ["0", "1", "2"]
    assert told(done.stderr) == [
        "rank 1 failed: exit code 3; started again (1 of 2)",
        "rank 1 failed: exit code 3; started again in 0.5 s (2 of 2)",
        "rank 1 failed: exit code 3; all 2 restarts are used; too few are left (1 rank, at least 2 are needed); "
        "the others were ended",
    ]
    assert [line for line in done.stderr.splitlines() if line.startswith("words")] == ["words 0", "words 1", "words 2"]


def test_once_they_are_used_up_the_others_go_on(hocket: Hocket) -> None:
    script = hocket.script(
        MEET + "group = None if lives else meet()\nif rank == 1: raise ValueError(lives)\n"
        "sum = total(group)\nshown()\nsay(rank, sum)"
    )
    sign = hocket.folder / "sign"
    process = hocket.start("run", "-n", "3", "--max-restarts", "1", "--min-ranks", "1", script, str(sign))
    hear(process, "exit code 1; started again (1 of 1)")
    hear(process, "ValueError: 0")
    hear(process, "exit code 1; the others go on (2 ranks, at least 1 is needed)")
    hear(process, "ValueError: 1")
    sign.touch()
    out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert sorted(out.splitlines()) == ["0 101", "2 101"]


def test_what_a_rank_left_behind_is_ended_as_it_is_started_again(hocket: Hocket) -> None:
    """Its successor may need what that holds."""
    script = hocket.script(
        MEET + "pid = sys.argv[1] + '.pid'\n"
        "if rank == 0: total(meet()); shown(); sys.exit()\n"
        "if lives:\n"
        "    while os.path.exists(f'/proc/{open(pid).read()}/cwd'): time.sleep(0.005)\n"
        "    say('free'); show(); sys.exit()\n"
        "group = meet()\n"
        "open(pid, 'w').write(str(subprocess.Popen(['sleep', '1000']).pid))\n"
        "raise ValueError('the cause')"
    )
    done = hocket.run("run", "-n", "2", "--max-restarts", "1", script, str(hocket.folder / "sign"))
    assert (done.returncode, done.stdout) == (0, "free\n")
    assert done.stderr.count("ValueError: the cause") == 1


def test_something_else_holds_its_streams(hocket: Hocket) -> None:
    """A daemon that left its group, and talks on: nobody waits for it."""
    script = hocket.script(
        MEET + "if rank == 0: total(meet()); shown(); sys.exit()\n"
        "if lives: show(); sys.exit()\n"
        "group = meet()\n"
        "talk = '''import os\ntry:\n    while True: os.write(1, b'x' * 4096), os.write(2, b'y' * 4096)\n"
        "except OSError: pass'''\n"
        "subprocess.Popen([sys.executable, '-c', talk], start_new_session=True)\n"
        "kill()"
    )
    done = hocket.run("run", "-n", "2", "--max-restarts", "1", script, str(hocket.folder / "sign"))
    assert done.returncode == 0
    assert "started again (1 of 1)" in done.stderr


def test_who_has_joined_can_be_joined(hocket: Hocket) -> None:
    """It says so in the launcher's store: when the last of those fails that met first, all need not begin anew."""
    script = hocket.script(
        MEET + "from hocket.config import Config\n"
        "from hocket.rendezvous.store import SocketStore, joined\n"
        "config = Config.from_env()\n"
        "if rank and lives:\n"
        "    SocketStore(config.address, config.secret, 20.0).set(joined(config.rank, config.restarts), b'')\n"
        "    show()\n"
        "    while os.path.exists(sys.argv[1]): time.sleep(0.005)\n"
        "elif rank: meet(); kill()\n"
        "elif lives: os.remove(sys.argv[1])\n"
        "else: group = meet(); shown(); kill()"
    )
    done = hocket.run("run", "-n", "2", "--max-restarts", "2", script, str(hocket.folder / "sign"))
    assert done.returncode == 0
    assert told(done.stderr) == [
        "rank 1 failed: killed by SIGKILL; started again (1 of 2)",
        "rank 0 failed: killed by SIGKILL; started again (2 of 2)",
    ]


@pytest.mark.parametrize("needed", [1, 2])
def test_who_wakes_up_when_all_others_have_ended_is_told(hocket: Hocket, needed: int) -> None:
    """It was given up, and wants to join those that went on: at once, not after the minutes that it would wait."""
    script = hocket.script(
        "import hocket\n"
        "def steps(group, state):\n"
        "    while state['x'] < 3:\n"
        "        if rank == 1 and state['x'] == 1: say(os.getpid()); os.kill(os.getpid(), signal.SIGSTOP)\n"
        "        state['x'] += group.all_reduce(1) // group.size\n"
        "        yield\n"
        "    say('done', group.size, os.getpid())\n"
        "hocket.elastic({'x': 0}, steps, timeout=20)"
    )
    process = hocket.start("run", "-n", "3", "--min-ranks", str(needed), script)
    sleeper, *ended = lines(process, 3)
    assert [line.split()[:2] for line in ended] == [["done", "2"]] * 2
    all_gone([int(line.split()[2]) for line in ended])
    os.kill(int(sleeper), signal.SIGCONT)
    out, err = process.communicate(timeout=30)
    assert out == ""
    assert "RendezvousError: this rank was not let in: all others have ended" in err
    assert process.returncode == 0
    least = {1: "1 is", 2: "2 are"}[needed]
    assert told(err) == [
        "rank 1 failed: exit code 76, for a peer was lost; "
        f"the others have ended well (2 ranks, at least {least} needed)"
    ]


def test_who_is_started_again_when_all_others_have_ended_is_told(hocket: Hocket) -> None:
    """And then all begin anew, for one of two is not enough."""
    script = hocket.script(
        MEET + "first = not os.path.exists(sys.argv[1])\n"
        "group = meet()\n"
        "if rank == 1 and first: show(); kill()\n"
        "if rank == 0 and first: shown()\n"
        "if rank == 0: group.close()\n"
        "say('met')"
    )
    done = hocket.run("run", "-n", "2", "--max-restarts", "2", script, str(hocket.folder / "first"))
    assert done.returncode == 0
    assert told(done.stderr) == [
        "rank 1 failed: killed by SIGKILL; started again (1 of 2)",
        "rank 1 failed: exit code 1; nobody is left to join; all are started again in 0.5 s (2 of 2)",
    ]
    assert "RendezvousError: this rank was not let in: all others have ended" in done.stderr
    assert done.stdout.splitlines() == ["met"] * 3


def test_its_error_is_shown_at_once_though_something_else_holds_the_stream(hocket: Hocket) -> None:
    script = hocket.script(
        MEET + "group = meet()\nif rank == 0: total(group); shown(); sys.exit()\n"
        "say(subprocess.Popen(['sleep', '1000'], start_new_session=True).pid)\n"
        "raise ValueError('the cause')"
    )
    sign = hocket.folder / "sign"
    process = hocket.start("run", "-n", "2", "--min-ranks", "1", script, str(sign))
    assert process.stderr is not None
    seen = [process.stderr.readline()]
    while not seen[-1].startswith("hocket run: "):
        seen.append(process.stderr.readline())
    assert seen[-2] == "ValueError: the cause\n"
    sign.touch()
    out, err = process.communicate(timeout=20)
    os.kill(int(out), signal.SIGKILL)
    assert (process.returncode, err) == (0, "")


# ---- starting all again ----

# What each meeting was given, and what is left of the one before.
ANEW = """
import hocket
lives = os.environ.get('HOCKET_RESTARTS')
first = not os.path.exists(sys.argv[1])
def kill(): os.kill(os.getpid(), signal.SIGKILL)
"""


def test_before_they_have_met_all_are_started_again(hocket: Hocket) -> None:
    """The others, which wait in init, are ended; then all meet elsewhere."""
    script = hocket.script(
        ANEW + "if rank == 1 and first:\n"
        "    for r in 0, 2:\n"
        "        while not os.path.exists(f'{sys.argv[1]}{r}'): time.sleep(0.005)\n"
        "    open(sys.argv[1], 'w')\n"
        "    sys.exit(3)\n"
        "if first: open(f'{sys.argv[1]}{rank}', 'w')\n"
        "say(lives, os.getpid(), os.environ['HOCKET_ADDRESS'], os.environ['HOCKET_SECRET'])\n"
        "with hocket.init(timeout=60) as group: say('met', group.all_reduce(10**rank))"
    )
    done = hocket.run("run", "-n", "3", "--max-restarts", "1", script, str(hocket.folder / "first"))
    assert done.returncode == 0
    assert told(done.stderr) == ["rank 1 failed: exit code 3, before the ranks had met; all are started again (1 of 1)"]
    said = [line.split() for line in done.stdout.splitlines()]
    assert [line for line in said if line[0] == "met"] == [["met", "111"]] * 3
    places = [line for line in said if line[0] != "met"]
    assert {line[0] for line in places} == {"None"}
    (before,), (after,) = {line[2] for line in places[:2]}, {line[2] for line in places[2:]}
    assert (len(places), before != after, places[0][3] != places[-1][3]) == (5, True, True)
    assert before not in Path("/proc/net/unix").read_text()
    all_gone([int(line[1]) for line in places])


def test_who_met_in_a_folder_has_met(hocket: Hocket) -> None:
    script = hocket.script(
        "import hocket\n"
        "group = hocket.init(60, rank=rank, size=3, rendezvous=f'file://{sys.argv[1]}', secret='theirs')\n"
        "if rank == 1: group.barrier(); os.kill(os.getpid(), signal.SIGKILL)\n"
        "try:\n    while True: group.barrier()\n"
        "except hocket.PeerLost: group = group.recover()\n"
        "say(group.all_reduce(10**rank))"
    )
    done = hocket.run("run", "-n", "3", "--min-ranks", "2", script, str(hocket.folder / "met"))
    assert (done.returncode, done.stdout.split()) == (0, ["101"] * 2)
    assert told(done.stderr) == ["rank 1 failed: killed by SIGKILL; the others go on (2 ranks, at least 2 are needed)"]


def test_before_they_have_met_none_can_be_missed(hocket: Hocket) -> None:
    script = hocket.script("import hocket\nif rank == 1: sys.exit(3)\nhocket.init(timeout=60)")
    done = hocket.run("run", "-n", "3", "--min-ranks", "1", script)
    assert done.returncode == 3
    assert told(done.stderr) == ["rank 1 failed: exit code 3, before the ranks had met; the others were ended"]


@pytest.mark.parametrize("most", [1, 2])
def test_where_all_have_failed_all_are_started_again(hocket: Hocket, most: int) -> None:
    """Programs that do not go on when a peer is lost begin anew, once, however many restarts there were for some."""
    script = hocket.script(
        ANEW + "if lives: forever()\n"
        "with hocket.init(timeout=60) as group:\n"
        "    group.barrier()\n"
        "    if rank == 2 and first: open(sys.argv[1], 'w'); kill()\n"
        "    say('met', group.all_reduce(10**rank))"
    )
    done = hocket.run("run", "-n", "3", "--max-restarts", str(most), script, str(hocket.folder / "first"))
    assert done.returncode == 0
    assert done.stdout.splitlines() == ["met 111"] * 3
    events = told(done.stderr)
    assert events[0] == f"rank 2 failed: killed by SIGKILL; started again (1 of {most})"
    end = f"failed: exit code 76, for a peer was lost; nobody is left to join; all are started again (1 of {most})"
    assert events[-1].endswith(end)
    assert len(events) == 1 + most
    assert done.stderr.count("PeerLost: rank 2") == 1


def test_a_single_rank_is_started_again(hocket: Hocket) -> None:
    script = hocket.script("say(os.environ.get('HOCKET_RESTARTS'))\nsys.exit(3)")
    done = hocket.run("run", "-n", "1", "--max-restarts", "2", script)
    assert (done.returncode, done.stdout) == (3, "None\n" * 3)
    assert told(done.stderr)[:2] == [
        "rank 0 failed: exit code 3; started again (1 of 2)",
        "rank 0 failed: exit code 3; started again in 0.5 s (2 of 2)",
    ]


# ---- the end of it ----

CRASHES = MEET + "if rank: say(os.getpid()); sys.exit(3)\nforever()"
CRASHES_LATER = CRASHES.replace("if rank", "if not lives: meet()\nif rank")


@pytest.mark.parametrize("crashes", [CRASHES, CRASHES_LATER], ids=["all", "one"])
def test_ctrl_c_while_some_wait_to_be_started_again(hocket: Hocket, crashes: str) -> None:
    """Nothing is started any more."""
    process = hocket.start("run", "-n", "2", "--max-restarts", "9", hocket.script(crashes))
    hear(process, "started again in 2 s (4 of 9)")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert told(err) == ["SIGINT: the job was ended"]
    assert len(out.split()) == 4
    all_gone([int(pid) for pid in out.split()])


def test_ctrl_c_while_all_are_ended_to_be_started_again(hocket: Hocket) -> None:
    script = hocket.script(
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "say(os.getpid())\n"
        "if rank:\n"
        "    while not os.path.exists(sys.argv[1]): time.sleep(0.005)\n"
        "    sys.exit(3)\n"
        "forever()"
    )
    go = hocket.folder / "go"
    process = hocket.start("run", "-n", "2", "--max-restarts", "9", "--grace", "1000", script, str(go))
    ranks = [int(pid) for pid in lines(process, 2)]
    go.touch()
    hear(process, "all are started again (1 of 9)")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    assert told(err) == ["SIGINT: the job was ended"]
    all_gone(ranks)


@pytest.mark.parametrize("crashes", [CRASHES, CRASHES_LATER], ids=["all", "one"])
def test_the_jobs_time_is_that_of_all_its_lives(hocket: Hocket, crashes: str) -> None:
    done = hocket.run("run", "-n", "2", "--max-restarts", "99", "--timeout", "2", hocket.script(crashes))
    assert done.returncode == 124
    assert "the job's time is over" in told(done.stderr)[-1]


def test_nothing_survives_a_killed_launcher_that_started_some_again(hocket: Hocket) -> None:
    script = hocket.script(
        MEET + "if rank == 0: total(meet()); forever()\n"
        "if lives: say(os.getpid(), subprocess.Popen(['sleep', '1000']).pid); forever()\n"
        "meet(); kill()"
    )
    process = hocket.start("run", "-n", "2", "--max-restarts", "1", script)
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split()]
    process.kill()
    process.wait(20)
    all_gone(pids)


def test_nothing_is_reaped_before_the_end(hocket: Hocket) -> None:
    """So that the pid of one that was started again is nobody else's, whom its guard would kill. Nor is anything else
    kept of it."""
    script = hocket.script(
        MEET + "if rank == 0: total(meet()); forever()\n"
        "if not lives: meet()\n"
        "say(os.getpid())\n"
        "if lives == 2: forever()\n"
        "shown(); kill()"
    )
    sign = hocket.folder / "sign"
    process = hocket.start("run", "-n", "2", "--max-restarts", "2", script, str(sign))
    held = Path(f"/proc/{process.pid}/fd")
    pids = [int(line) for line in lines(process, 1)]
    before = len(list(held.iterdir()))
    sign.touch()
    for _ in range(2):
        pids += [int(line) for line in lines(process, 1)]
    assert [state(pid) for pid in pids[:2]] == ["Z", "Z"]
    until(lambda: len(list(held.iterdir())) <= before, "as many descriptors as before")
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 128 + signal.SIGTERM
    assert [state(pid) for pid in pids] == ["X"] * 3


def test_nobody_reads_any_longer(hocket: Hocket) -> None:
    script = hocket.script("say(os.getpid())\nsys.exit(3)")
    process = hocket.start("run", "-n", "1", "--max-restarts", "99", script)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    assert process.wait(20) == 128 + signal.SIGPIPE


def test_nobody_reads_the_last_of_one_that_was_to_be_started_again(hocket: Hocket) -> None:
    script = hocket.script(
        MEET + "if lives: forever()\ngroup = meet()\nsay('here')\nif rank == 0: total(group); forever()\nshown()\n"
        "daemon = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "open(sys.argv[1], 'w').write(str(daemon.pid))\n"
        "os.write(2, b'Traceback (most recent call last):\\n')\nkill()"
    )
    sign = hocket.folder / "sign"
    process = hocket.start("run", "-n", "2", "--max-restarts", "1", "--grace", "1000", script, str(sign))
    lines(process, 2)
    assert process.stderr is not None
    process.stderr.close()
    process.stderr = None
    sign.touch()
    assert process.wait(20) == 128 + signal.SIGPIPE
    os.kill(int(sign.read_text()), signal.SIGKILL)


# ---- several hosts ----


def test_on_several_hosts_each_starts_its_own_again(hocket: Hocket) -> None:
    """There the launchers have no store: whoever fails is to join the others."""
    script = hocket.script(
        MEET + "if lives: say('again', rank, lives, os.environ['HOCKET_MIN_RANKS']); sys.exit()\n"
        "group = meet()\nif rank == 2: kill()\nsay(rank, total(group))"
    )
    (port,) = free_ports(1)
    where = ["--nnodes", "2", "--rendezvous", f"tcp://127.0.0.1:{port}", "--max-restarts", "1", "--min-ranks", "1"]
    environ = {"HOCKET_SECRET": "of the job"}
    hosts = [hocket.start("run", "-n", "2", "--node-rank", str(k), *where, script, environ=environ) for k in range(2)]
    outs, errs = zip(*(host.communicate(timeout=30) for host in hosts), strict=True)
    assert [host.returncode for host in hosts] == [0, 0]
    assert sorted(outs[0].splitlines()) == ["0 1011", "1 1011"]
    assert sorted(outs[1].splitlines()) == ["3 1011", "again 2 1 2"]
    assert [told(err) for err in errs] == [[], ["rank 2 failed: killed by SIGKILL; started again (1 of 1)"]]


def test_who_dies_right_after_its_first_meeting_has_met(hocket: Hocket) -> None:
    """However fast it is: here rank 0 has not even said so."""
    script = hocket.script(
        MEET + "from hocket.rendezvous.store import MET, SocketStore\n"
        "write = SocketStore.set\n"
        "def late(store, key, *value):\n"
        "    if key == MET: shown()\n"
        "    write(store, key, *value)\n"
        "if rank == 0: SocketStore.set = late\n"
        "if lives: show(); sys.exit()\n"
        "group = hocket.init(timeout=20)\nif rank == 1: kill()\ntotal(group)"
    )
    done = hocket.run("run", "-n", "2", "--max-restarts", "1", script, str(hocket.folder / "sign"))
    assert done.returncode == 0, done.stderr
    assert told(done.stderr) == ["rank 1 failed: killed by SIGKILL; started again (1 of 1)"]
