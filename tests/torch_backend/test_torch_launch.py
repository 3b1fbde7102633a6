"""Whole programs: under torchrun, started over after a rank was killed, ending with an error, ending without a word."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from unittest import mock

import pytest
from ranks import Ranks

from hocket.words import named
from ports import free_ports

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_ddp.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
BEGIN = """
import os, signal, sys
import hocket, hocket.torch, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("hocket")
rank, size = dist.get_rank(), dist.get_world_size()
tensor = torch.ones(3)
"""


def environ(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **more}


def write(folder: Path, text: str) -> Path:
    path = folder / "program.py"
    path.write_text(BEGIN + textwrap.dedent(text))
    return path


def torchrun(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*TORCHRUN, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=environ(), check=False)


def hocket_run(size: int, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "hocket", "run", "-n", str(size), *map(str, arguments)]
    return subprocess.Popen(command, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def launch(program: Path, size: int) -> list[subprocess.Popen[str]]:
    """Ranks without a launcher, which would end the others before they can say anything."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0]), "WORLD_SIZE": str(size)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, str(program)]
    return [subprocess.Popen(command, env=environ(**place, RANK=str(rank)), **pipes) for rank in range(size)]


def ends(ranks: list[subprocess.Popen[str]], seconds: float = 60.0) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each rank. Kills those that do not end in time."""
    try:
        end = time.monotonic() + seconds
        return [(*rank.communicate(timeout=max(0.1, end - time.monotonic())), rank.returncode)[::-1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


@pytest.mark.feature("Launchers", "torchrun --standalone")
def test_the_example_under_torchrun() -> None:
    """Over hocket only: over gloo a process now and then aborts at its end, which is not ours to test."""
    done = torchrun("--nproc-per-node", 2, EXAMPLE, "--epochs", 2)
    assert done.returncode == 0, done.stderr
    assert "hocket, ranks: 2" in done.stdout
    assert "bit-identical" in done.stdout


@pytest.mark.feature("Launchers", "hocket run")
def test_the_example_under_hocket_run() -> None:
    ((code, errors, output),) = ends([hocket_run(2, EXAMPLE, "--epochs", 1)])
    assert code == 0, errors
    assert "hocket, ranks: 2" in output


def test_jobs_under_hocket_run_have_ports_of_their_own(tmp_path: Path) -> None:
    program = write(
        tmp_path,
        """
        dist.all_reduce(tensor)
        print(f"{os.environ['LOCAL_RANK']} of {int(tensor[0])}")
        dist.destroy_process_group()
        """,
    )
    for size, (code, errors, output) in zip((2, 3), ends([hocket_run(size, program) for size in (2, 3)]), strict=True):
        assert code == 0, errors
        assert sorted(output.splitlines()) == [f"{rank} of {size}" for rank in range(size)]


@pytest.mark.feature("Launchers", "torchrun --max-restarts: starts over after a rank was killed")
def test_starting_over(tmp_path: Path) -> None:
    program = write(
        tmp_path,
        """
        for step in range(20):
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
            if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and rank == 1 and step == 10:
                os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()
        print(f"rank {rank} done at attempt {os.environ['TORCHELASTIC_RESTART_COUNT']}")
        dist.destroy_process_group()
        """,
    )
    done = torchrun("--nproc-per-node", 3, "--max-restarts", 1, program)
    assert done.returncode == 0, done.stderr
    for rank in range(3):  # whose lines may run into one another
        assert f"rank {rank} done at attempt 1" in done.stdout


@pytest.mark.feature("Errors", "a killed rank is named on the others")
def test_a_killed_rank_is_named(tmp_path: Path) -> None:
    program = write(
        tmp_path,
        """
        if rank == 1:
            dist.all_reduce(tensor)
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            while True:  # it may be known already in the first of them
                dist.all_reduce(tensor)
        except hocket.PeerLost as error:
            print(error)
        """,
    )
    done = ends(launch(program, 3))
    assert done[1][0] == -signal.SIGKILL
    for code, _, output in (done[0], done[2]):
        assert code == 0
        assert "rank 1 (pid" in output


@pytest.mark.feature("Errors", "an uncaught exception of one rank ends the others, whose errors name it")
def test_an_exception_reaches_the_others(tmp_path: Path) -> None:
    program = write(
        tmp_path,
        """
        network = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3))
        for step in range(10):
            if rank == 1 and step == 5:
                raise KeyError("no such sample")
            network(tensor).sum().backward()
        """,
    )
    for rank, (code, errors, _) in enumerate(ends(launch(program, 3))):
        assert code == 1
        assert "KeyError: 'no such sample'" in errors
        assert rank == 1 or "rank 1" in errors


@pytest.mark.feature("Errors", "calls that differ: MismatchError on every rank, with each rank's line")
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize(
    ("call", "other"),
    [
        ("dist.all_reduce(torch.ones(2))", "dist.all_reduce(torch.ones(3))"),
        ("dist.all_reduce(tensor)", "dist.all_reduce(tensor.double())"),
        ("dist.all_reduce(tensor)", "dist.all_reduce(tensor, op=dist.ReduceOp.MAX)"),
        ("dist.all_reduce(tensor)", "dist.broadcast(tensor, 0)"),
        ("dist.broadcast(tensor, 0)", "dist.broadcast(tensor, 1)"),
        ("dist.barrier()", "dist.all_gather([tensor] * size, tensor)"),
        ("dist.all_reduce(tensor, async_op=True).wait()", "dist.barrier()"),
    ],
)
def test_mismatches(ranks: Ranks, size: int, call: str, other: str) -> None:
    for rank, words in enumerate(ranks(size).run(mismatched, call, other)):
        line = r"^  (ranks? [\d, -]+) (?:is|are) in .* at \S*test_torch_launch.py:1\b"
        places = re.findall(line, words, re.MULTILINE)
        assert sorted(places) == sorted([named(range(size - 1)), f"rank {size - 1}"]), (rank, words)
    ranks(size).ranks.forget()


def mismatched(call: str, other: str) -> str:
    import torch
    import torch.distributed as dist

    import hocket
    from hocket.calls import session
    from worlds import raised

    rank, size, tensor = dist.get_rank(), dist.get_world_size(), torch.ones(3)
    names = {"torch": torch, "dist": dist, "size": size, "tensor": tensor}
    chosen = compile(other if rank == size - 1 else call, __file__, "eval")
    with mock.patch.object(session, "PATIENCE", 20.0):  # all ranks come to their calls, however busy the machine is
        return str(raised(hocket.MismatchError, eval, chosen, names))


@pytest.mark.feature("Groups", "programs may end without destroy_process_group, with calls and futures in flight")
def test_ending_without_a_word(tmp_path: Path) -> None:
    program = write(
        tmp_path,
        """
        group = dist.new_group()
        works = [dist.all_reduce(tensor, async_op=True) for _ in range(5)]
        future = dist.irecv(torch.empty(1), (rank - 1) % size, group=group).get_future()
        dist.isend(torch.ones(1), (rank + 1) % size, group=group)
        dist.barrier(group)
        print("end of rank", rank)
        """,
    )
    for _ in range(3):
        for rank, (code, errors, output) in enumerate(ends(launch(program, 2))):
            assert (code, output) == (0, f"end of rank {rank}\n"), errors
            assert "terminate" not in errors


@pytest.mark.feature("Groups", "programs may end while an engine thread is in torch's code")
def test_ending_while_an_engine_is_in_torch(tmp_path: Path) -> None:
    """Where Python ended that thread in it, the process would abort."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import threading
            import torch, hocket.torch
            from hocket.calls.executor import Executor

            begun = threading.Event()

            def job():
                begun.set()
                for _ in range(30_000):  # each gives Python's lock back, to be freed, and takes it again
                    torch.ones(1)
                print("done", flush=True)

            executor = Executor()
            work = executor.put(job, "a job")
            begun.wait()
            """
        )
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, env=environ())
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_importing_registers_and_leaves_the_default_alone() -> None:
    show = "print(dist.Backend.HOCKET, dist.Backend.default_device_backend_map['cpu'])"
    code = f"import hocket.torch, torch.distributed as dist; {show}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["hocket", "gloo"]
