"""How scripts and their companions begin and end: exit codes, errors, signals, kills; nothing outlives anything."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tclsh import Way, ended, launch, start

from moments import until

HEAD = "package require hocket\n"
WAIT = "puts ready; flush stdout; torch::distributed_recv\n"  # in the middle of a call, for as long as it may take


def is_gone(pid: int) -> bool:
    """Whether the process is dead, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


# ---- the script's own end ----


def test_a_script_ends_as_in_any_tclsh(way: Way, tmp_path: Path) -> None:
    assert way.run(HEAD + "torch::get_rank; puts -nonewline $argv0,$argv,$argc; exit 3", tmp_path, "-a", "b c") == (
        3,
        f"{tmp_path}/script0.tcl,-a {{b c}},2",
        "",
    )
    code, out, err = way.run(HEAD + "puts there\nproc f {} {torch::zeros -1}\nf", tmp_path)
    assert (code, out) == (1, "there\n")
    assert err.startswith('a shape has no negative lengths: "-1"\n    while executing\n"torch::zeros -1"')
    assert '(procedure "f" line 1)' in err
    assert "Traceback" not in err


def test_the_rank_whose_script_failed_is_blamed(plain: Way, inside: Way, tmp_path: Path) -> None:
    """The others, which go either way, fail for lack of it, and may end first: so they say that it is a consequence.
    The launcher's SIGTERM is not heard, so that all come to their own ends."""
    script = tmp_path / "fails.tcl"
    script.write_text(HEAD + "if {[torch::get_rank] == 1} {error boom}\ntorch::distributed_barrier")
    ways = [shlex.join([*way.command, str(script)]) for way in (plain, inside)]
    choose = (
        f"trap '' TERM; if [ $RANK = 0 ]; then {ways[0]}; else {ways[1]}; fi; code=$?; echo $RANK $code; exit $code"
    )
    code, out, err = ended(start([*launch(3), "sh", "-c", choose], tmp_path, {}))
    assert (code, sorted(out.splitlines())) == (1, ["0 76", "1 1", "2 76"]), err
    (headline,) = (line for line in err.splitlines() if line.startswith("hocket run: "))
    assert headline.startswith("hocket run: rank 1 (pid ")
    assert "failed first: exit code 1" in headline


def test_a_killed_rank_is_a_peer_lost(plain: Way, inside: Way, tmp_path: Path) -> None:
    """Under torchrun's variables; the others, which go either way, are told which it was."""
    script = HEAD + (
        "if {[torch::get_rank] == 1} {torch::distributed_barrier; exec kill -9 [pid]}\n"
        "puts [list [catch {while 1 torch::distributed_barrier} text options] [dict get $options -errorcode] $text]\n"
    )
    place = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": str(tmp_path)}
    ways = [plain, plain, inside]
    processes = [each.start(script, tmp_path, RANK=str(rank), **place) for rank, each in enumerate(ways)]
    ends = [ended(process) for process in processes]
    assert ends[1] == (-signal.SIGKILL, "", "")
    for code, out, err in (ends[0], ends[2]):
        assert (code, err) == (0, "")
        assert out.startswith("1 {HOCKET PeerLost} {")
        assert "rank 1 (pid " in out


def together(script: str, folder: Path, ways: list[Way], places: list[dict[str, str]], *more: str) -> list[str]:
    """What two ranks print that go two ways, each with its variables, and its number behind the script."""
    pairs = enumerate(zip(ways, places, strict=True))
    processes = [way.start(HEAD + script, folder, str(rank), *more, **place) for rank, (way, place) in pairs]
    ends = [ended(process) for process in processes]
    assert [(code, err) for code, _, err in ends] == [(0, ""), (0, "")]
    return [out for _, out, _ in ends]


def test_ranks_meet_where_the_script_says(plain: Way, inside: Way, tmp_path: Path) -> None:
    script = (
        "torch::distributed_init -size 2 -rendezvous file://[lindex $argv 1] -rank [lindex $argv 0] -timeout 20\n"
        "puts [torch::tensor_data [torch::distributed_all_gather [torch::full 1 [torch::get_rank]]]]"
    )
    places = [{"HOCKET_SECRET": "x"}] * 2
    assert together(script, tmp_path, [plain, inside], places, str(tmp_path / "meeting")) == ["0.0 1.0\n"] * 2


def test_ranks_meet_under_mpirun(plain: Way, inside: Way, tmp_path: Path) -> None:
    """Of MPICH, whose ranks are known by the process that started them: a companion's is its tclsh's."""
    script = (
        "puts [torch::get_rank],[torch::tensor_data [torch::distributed_all_reduce [torch::full 1 [torch::get_rank]]]]"
    )
    places = [{"PMI_RANK": str(rank), "PMI_SIZE": "2"} for rank in range(2)]
    assert together(script, tmp_path, [plain, inside], places) == ["0,1.0\n", "1,1.0\n"]


# ---- signals ----


def test_ctrl_c_ends_a_script(inside: Way, tmp_path: Path) -> None:
    """In the middle of Tcl, too, where Python would not look for signals."""
    process = inside.start(HEAD + "puts ready; flush stdout; while 1 {}", tmp_path)
    assert first_line(process) == "ready"
    process.send_signal(signal.SIGINT)
    assert ended(process) == (-signal.SIGINT, "", "")


def test_ctrl_c_ends_a_script_and_its_companion(plain: Way, tmp_path: Path) -> None:
    """In a call. A terminal sends it to both, and neither prints a traceback."""
    process = plain.start(HEAD + "puts [pid $hocket::pipe]\n" + WAIT, tmp_path)
    companion = int(first_line(process))
    assert first_line(process) == "ready"
    os.killpg(process.pid, signal.SIGINT)
    assert ended(process) == (-signal.SIGINT, "", "")
    until(lambda: is_gone(companion), "the companion is gone")


# ---- the companion ----


@pytest.mark.parametrize("doing", ["puts ready; flush stdout; vwait for-ever", WAIT], ids=["idle", "in a call"])
def test_a_companion_dies_with_its_tclsh(plain: Way, doing: str, tmp_path: Path) -> None:
    script = HEAD + "torch::get_rank; puts [pid $hocket::pipe]\n" + doing
    process = plain.start(script, tmp_path, HOCKET_TIMEOUT="600")
    companion = int(first_line(process))
    assert first_line(process) == "ready"
    assert not is_gone(companion)
    process.kill()
    assert ended(process) == (-signal.SIGKILL, "", "")
    until(lambda: is_gone(companion), "the companion is gone")


def test_a_companion_that_died_is_an_error(plain: Way, tmp_path: Path) -> None:
    """Each time, and the script may go on without it, and end as it likes."""
    script = HEAD + (
        "exec kill -9 [pid $hocket::pipe]\n"
        "foreach command {get_rank {zeros 3}} {\n"
        "    puts [list [catch {eval torch::$command} text options] $text [dict get $options -errorcode]]\n"
        "}\nexit 7"
    )
    told = "1 {hocket's companion has ended: killed by SIGKILL} {HOCKET CompanionLost}\n"
    assert plain.run(script, tmp_path) == (7, told * 2, "")
    assert plain.run(HEAD + "exec kill -9 [pid $hocket::pipe]; exit 0x8", tmp_path) == (8, "", "")


def test_what_libraries_print_does_not_disturb_the_pipe(plain: Way, tmp_path: Path) -> None:
    """It goes to standard error."""
    (tmp_path / "sitecustomize.py").write_text(
        "import hocket.tcl.script as s, os\n"
        "before = s.Script.reply\n"
        "s.Script.reply = lambda *words: (os.write(1, b'noise\\n'), before(*words))[1]\n"
    )
    code, out, err = plain.run(HEAD + "puts [torch::get_world_size]", tmp_path, PYTHONPATH=str(tmp_path))
    assert (code, out, err) == (0, "1\n", "noise\n")


def test_large_tensors_stay_where_they_are(plain: Way, tmp_path: Path) -> None:
    """Three of 64 MiB, and few bytes that tclsh reads or writes."""
    script = HEAD + (
        "proc moved {} {set f [open /proc/self/io]; set text [read $f]; close $f\n"
        "    regexp {rchar: (\\d+)\\nwchar: (\\d+)} $text -> in out; expr {$in + $out}}\n"
        "set before [moved]\n"
        "set a [torch::full {4096 4096} 3]; set b [torch::distributed_all_reduce $a]; set c [torch::add $a $b]\n"
        "set bytes [expr {[moved] - $before}]\n"
        "puts [list [expr {$bytes < 2000 ? {few} : $bytes}] [torch::tensor_shape $c]]"
    )
    assert plain.run(script, tmp_path) == (0, "few {4096 4096}\n", "")


def test_a_million_handles_take_no_memory(inside: Way, plain: Way, tmp_path: Path) -> None:
    script = HEAD + (
        "proc memory {} {set f [open /proc/[pid]/status]; set text [read $f]; close $f\n"
        "    regexp {VmRSS:\\s+(\\d+) kB} $text -> kilobytes; return $kilobytes}\n"
        "proc some {times} {for {set i 0} {$i < $times} {incr i} {\n"
        "    set tensors {}; for {set j 0} {$j < 1000} {incr j} {lappend tensors [torch::zeros {}]}\n"
        "    torch::tensor_free {*}$tensors}}\n"
        "some [lindex $argv 0]; set before [memory]; some [lindex $argv 1]; set grown [expr {[memory] - $before}]\n"
        "puts [list [torch::tensor_list] [expr {$grown < 5000 ? {bounded} : $grown}] [torch::zeros 1]]"
    )
    assert inside.run(script, tmp_path, "50", "950") == (0, "{} bounded tensor1000001\n", "")
    there = script.replace("/proc/[pid]/", "/proc/[pid $hocket::pipe]/")
    assert plain.run(there, tmp_path, "3", "7") == (0, "{} bounded tensor10001\n", "")


# ---- the package ----


def test_the_package_answers_to_torch(way: Way, tmp_path: Path) -> None:
    """By the path that the program tells, too; and any other package of that name is preferred."""
    script = "lappend auto_path [exec hocket tcl-path]\nputs [package require torch],[package require hocket]\n"
    assert way.run(script, tmp_path, TCLLIBPATH="") == (0, f"0.0,{version('hocket')}\n", "")
    (tmp_path / "pkgIndex.tcl").write_text("package ifneeded torch 0.1 {package provide torch 0.1}")
    script = f"lappend auto_path {{{tmp_path}}}\nputs [package require torch]"
    assert way.run(script, tmp_path) == (0, "0.1\n", "")


def test_what_keeps_the_package_from_starting(plain: Way, tmp_path: Path) -> None:
    """A sentence each, and a script may go on."""
    old = tmp_path / "old"
    deaf = "import signal; assert signal.getsignal(signal.SIGINT) == signal.getsignal(signal.SIGTERM) == signal.SIG_IGN"
    old.write_text(f"#!{sys.executable}\n{deaf}\nprint('5 \\n0.0.1', end='', flush=True)")
    old.chmod(0o700)
    script = (
        "proc try_it {} {catch {package require hocket} text options; puts [dict get $options -errorcode]:$text}\n"
        f"set hocket::program no-such-hocket; try_it\nset hocket::program {{{old}}}; try_it\n"
        "set hocket::program false; try_it\n"
        "namespace eval torch {proc zeros {} {}}\nset hocket::program hocket; try_it\n"
    )
    code, out, err = plain.run("namespace eval hocket {}\n" + script, tmp_path)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        'HOCKET NoProgram:there is no program "no-such-hocket" on the PATH: '
        "install hocket, or set ::hocket::program to where it is",
        f"HOCKET OtherVersion:{old} is hocket 0.0.1, and this package is of {version('hocket')}",
        "HOCKET CompanionLost:hocket's companion did not start: exit code 1",
        "HOCKET NameTaken:torch::zeros is there already, of another package, whose tensors hocket does not know",
    ]


def test_python_without_tkinter_says_so(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['_tkinter'] = None; sys.argv[0] = 'hocket'; from hocket.cli import main; main()"
    code, out, err = ended(start([sys.executable, "-c", hidden, "tclsh", "script.tcl"], tmp_path, {}))
    assert (code, out) == (126, "")
    assert err.startswith("hocket tclsh: this Python has no tkinter")
    assert err.count("\n") == 1
