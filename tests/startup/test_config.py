"""The launchers' variables: what each says, and what is said about those that are wrong."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from launching import SOURCE

from hocket.config import Config, Given, seen
from hocket.config.children import Node, child_environ
from hocket.errors import RendezvousError

TORCHRUN = {
    "RANK": "2",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "2",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "job",
    "TORCHELASTIC_RESTART_COUNT": "0",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "PMIX_NAMESPACE": "prterun-host-77@1",
}
RANKS = ("RANK", "LOCAL_RANK", *(f"OMPI_COMM_WORLD_{w}RANK" for w in ("", "LOCAL_")), "PMI_RANK", "MPI_LOCALRANKID")
RANKS += ("SLURM_PROCID", "SLURM_LOCALID")
MPICH = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "2", "MPI_LOCALNRANKS": "4"}
SRUN = {
    "SLURM_PROCID": "2",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_LOCALID": "2",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_JOB_ID": "12",
    "SLURM_STEP_ID": "0",
}
HOCKET = child_environ(2, 4, "@hocket-abc", b"key", 29501, environ={})
LAUNCHERS = {
    "torchrun": TORCHRUN,
    "mpirun (Open MPI)": OPEN_MPI,
    "mpirun (MPICH)": MPICH,
    "srun": SRUN,
    "hocket run": HOCKET,
}


def test_no_variables_are_a_world_of_one() -> None:
    assert Config.from_env({}) == Config(rank=0, size=1, local_rank=0, local_size=1, launcher="none", timeout=30.0)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_launcher_is_understood(launcher: str) -> None:
    config = Config.from_env(LAUNCHERS[launcher])
    assert (config.rank, config.size, config.local_rank, config.local_size) == (2, 4, 2, 4)
    assert config.launcher == launcher
    assert config.address.startswith("@hocket-")
    assert config.secret
    assert repr(config.secret) not in repr(config)
    assert not config.hosts_store


@pytest.mark.parametrize("launcher", ["torchrun", "mpirun (Open MPI)", "mpirun (MPICH)", "srun"])
def test_rank_0_holds_the_store_of_other_launchers(launcher: str) -> None:
    environ = {name: "0" if name in RANKS else value for name, value in LAUNCHERS[launcher].items()}
    assert Config.from_env(environ).hosts_store


def test_the_launcher_holds_the_store_of_its_own_job() -> None:
    environ = child_environ(0, 4, "@hocket-abc", b"key", 29501, environ={})
    config = Config.from_env(environ)
    assert not config.hosts_store
    assert (config.address, config.secret) == ("@hocket-abc", b"key")


def test_the_inner_launcher_wins() -> None:
    assert Config.from_env({**SRUN, **OPEN_MPI}).launcher == "mpirun (Open MPI)"
    assert Config.from_env({**SRUN, **MPICH}).launcher == "mpirun (MPICH)"
    assert Config.from_env({**OPEN_MPI, **TORCHRUN}).launcher == "torchrun"
    assert Config.from_env({**OPEN_MPI, **HOCKET}).launcher == "hocket run"


def test_a_batch_script_of_slurm_is_a_world_of_one() -> None:
    assert Config.from_env({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "12"}).launcher == "none"


@pytest.mark.parametrize(
    ("launcher", "changed"),
    [
        ("torchrun", {"MASTER_PORT": "29501"}),
        ("torchrun", {"TORCHELASTIC_RUN_ID": "other"}),
        ("torchrun", {"TORCHELASTIC_RESTART_COUNT": "1"}),
        ("mpirun (Open MPI)", {"PMIX_NAMESPACE": "prterun-host-77@2"}),
        ("srun", {"SLURM_JOB_ID": "13"}),
        ("srun", {"SLURM_STEP_ID": "1"}),
    ],
)
def test_other_jobs_meet_elsewhere(launcher: str, changed: dict[str, str]) -> None:
    ours, theirs = (Config.from_env({**LAUNCHERS[launcher], **change}) for change in ({}, changed))
    assert ours.address != theirs.address
    assert ours.secret != theirs.secret
    assert ours == Config.from_env(LAUNCHERS[launcher])


def test_older_open_mpi_has_another_job_id() -> None:
    environ = {name: value for name, value in OPEN_MPI.items() if name != "PMIX_NAMESPACE"}
    assert Config.from_env({**environ, "OMPI_MCA_ess_base_jobid": "99"}).launcher == "mpirun (Open MPI)"
    with pytest.raises(RendezvousError, match="none of PMIX_NAMESPACE, OMPI_MCA_ess_base_jobid"):
        Config.from_env(environ)


WRONG = [
    ({"HOCKET_RESTARTS": "-1"}, 'HOCKET_RESTARTS is "-1", which is no whole number of at least 0'),
    ({"HOCKET_MIN_RANKS": "0"}, 'HOCKET_MIN_RANKS is "0", which is no whole number of at least 1'),
    ({"WORLD_SIZE": "4"}, "RANK is not set"),
    ({"RANK": "0"}, "WORLD_SIZE is not set"),
    ({"RANK": "0", "WORLD_SIZE": ""}, "WORLD_SIZE is empty"),
    ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}, "MASTER_PORT is not set"),
    ({**TORCHRUN, "RANK": "4"}, 'RANK is "4", which is no whole number from 0 to 3'),
    ({**TORCHRUN, "RANK": "-1"}, 'RANK is "-1"'),
    ({**TORCHRUN, "RANK": "one"}, 'RANK is "one"'),
    ({**TORCHRUN, "RANK": "²"}, 'RANK is "²"'),
    ({**TORCHRUN, "RANK": "1" * 5000}, 'RANK is "111'),
    ({**TORCHRUN, "WORLD_SIZE": "0"}, 'WORLD_SIZE is "0", which is no whole number of at least 1'),
    ({**TORCHRUN, "LOCAL_RANK": "4"}, 'LOCAL_RANK is "4"'),
    ({**TORCHRUN, "LOCAL_WORLD_SIZE": "8"}, 'LOCAL_WORLD_SIZE is "8"'),
    ({"OMPI_COMM_WORLD_RANK": "0"}, "OMPI_COMM_WORLD_SIZE is not set"),
    ({"PMI_SIZE": "2"}, "PMI_RANK is not set"),
    ({name: SRUN[name] for name in SRUN if name != "SLURM_JOB_ID"}, "SLURM_JOB_ID is not set"),
    ({"HOCKET_ADDRESS": "@hocket-abc", "RANK": "0", "WORLD_SIZE": "2"}, "HOCKET_SECRET is not set"),
    ({"HOCKET_ADDRESS": "@hocket-abc", "HOCKET_SECRET": "00"}, "WORLD_SIZE is not set"),
    ({**HOCKET, "HOCKET_SECRET": "xyz"}, "HOCKET_SECRET is not hexadecimal"),
    ({**HOCKET, "HOCKET_ADDRESS": "/tmp/socket"}, 'HOCKET_ADDRESS is "/tmp/socket"'),
    ({"HOCKET_TIMEOUT": "soon"}, 'HOCKET_TIMEOUT is "soon", which is no number of seconds above zero'),
    ({"HOCKET_TIMEOUT": "0"}, 'HOCKET_TIMEOUT is "0"'),
    ({"HOCKET_TIMEOUT": "inf"}, 'HOCKET_TIMEOUT is "inf"'),
    ({"HOCKET_PROTOCOL": "fast"}, 'HOCKET_PROTOCOL is "fast"; it is lent (the default), staged, or offered'),
    ({"HOCKET_TIMEOUT": "nan"}, 'HOCKET_TIMEOUT is "nan"'),
]


def test_what_the_system_takes_for_text_is_text() -> None:
    """Bytes that are not UTF-8, as they are in os.environ, tell jobs apart as all others do."""
    places = {
        Config.from_env({**TORCHRUN, "TORCHELASTIC_RUN_ID": os.fsdecode(name)}).address for name in (b"\xe9", b"\xe8")
    }
    assert len(places) == 2


@pytest.mark.parametrize(("environ", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_variables_are_named(environ: dict[str, str], message: str) -> None:
    with pytest.raises(RendezvousError, match=re.escape(message)):
        Config.from_env(environ)


@pytest.mark.parametrize(
    ("environ", "variable", "remedy"),
    [
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "0"}, "LOCAL_WORLD_SIZE", ", the same on all of them: "),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "3"}, "OMPI_COMM_WORLD_LOCAL_SIZE", " -x HOCKET_RENDEZVOUS=HERE "),
        ({**MPICH, "MPI_LOCALNRANKS": "3"}, "MPI_LOCALNRANKS", " HOCKET_RENDEZVOUS=HERE before it is started"),
        ({**SRUN, "SLURM_STEP_NUM_NODES": "2"}, "SLURM_STEP_NUM_NODES", " HOCKET_RENDEZVOUS=HERE before it is started"),
    ],
)
def test_several_hosts_are_refused(environ: dict[str, str], variable: str, remedy: str) -> None:
    """The sentence says what to add, and where rank 0 says it, under the name of its own host."""
    first = {name: "0" if name in RANKS else value for name, value in environ.items()}
    for around, host in ((environ, "HOST"), (first, socket.gethostname())):
        with pytest.raises(RendezvousError) as raised:
            Config.from_env(around)
        text = str(raised.value)
        assert f"({variable}): the ranks of several hosts need a HOCKET_SECRET" in text
        assert "export HOCKET_SECRET=$(openssl rand -hex 16)" in text
        assert remedy.replace("HERE", f"tcp://{host}:4711") in text
        assert text.endswith("HOST being that of rank 0") == (host == "HOST" and "HERE" in remedy)
    across = {**environ, "HOCKET_RENDEZVOUS": "tcp://first:4711"}
    with pytest.raises(RendezvousError, match="give them all one secret"):
        Config.from_env(across)
    found = Config.from_env({**across, "HOCKET_SECRET": "a text"})
    assert (found.rank, found.size, found.address) == (2, 4, "tcp://first:4711")
    assert found.secret != Config.from_env({**across, "HOCKET_SECRET": "another"}).secret
    with pytest.raises(RendezvousError, match="is no address: it looks like tcp://host:4711"):
        Config.from_env({**across, "HOCKET_SECRET": "a text", "HOCKET_RENDEZVOUS": "first"})


def test_what_is_given_to_init_counts_more_than_the_environment() -> None:
    found = Config.at("tcp://[::1]:5000", Given(1, 3, "x"), {"RANK": "0", "WORLD_SIZE": "9"})
    assert (found.rank, found.size, found.address) == (1, 3, "tcp://[::1]:5000")
    for address, half in ((None, Given(1)), ("tcp://a:1", Given(size=3)), (None, Given(1, 3))):
        with pytest.raises(ValueError, match="together"):
            Config.at(address, half, {})


def test_tcp_on_one_host_needs_a_secret_too() -> None:
    """What tells one job from another, and is its secret otherwise, can be guessed; and there is no user id."""
    tcp = {**TORCHRUN, "HOCKET_TRANSPORT": "tcp"}
    with pytest.raises(RendezvousError, match="needs a HOCKET_SECRET"):
        Config.from_env(tcp)
    found = Config.from_env({**tcp, "HOCKET_SECRET": "a text"})
    assert (found.alone, found.secret != Config.from_env(TORCHRUN).secret) == (True, True)
    assert Config.from_env({**HOCKET, "HOCKET_TRANSPORT": "tcp"}).alone
    with pytest.raises(RendezvousError, match='HOCKET_TRANSPORT is "udp"'):
        Config.from_env({"HOCKET_TRANSPORT": "udp"})


def test_timeout() -> None:
    assert Config.from_env({"HOCKET_TIMEOUT": "2.5"}).timeout == 2.5


def test_threads_are_one_per_rank_unless_set() -> None:
    assert child_environ(0, 2, "@a", b"", 1, environ={})["OMP_NUM_THREADS"] == "1"
    assert child_environ(0, 2, "@a", b"", 1, environ={"OMP_NUM_THREADS": "3"})["OMP_NUM_THREADS"] == "3"
    assert "OMP_NUM_THREADS" not in child_environ(0, 1, "@a", b"", 1, environ={})


@pytest.mark.parametrize(
    ("around", "address", "port"),
    [
        ({}, "127.0.0.1", "29501"),
        ({"MASTER_PORT": "29400"}, "127.0.0.1", "29400"),
        ({"MASTER_ADDR": "::1", "MASTER_PORT": "29400"}, "::1", "29400"),
        (TORCHRUN, "127.0.0.1", "29501"),  # of a job around this one
        ({**HOCKET, "MASTER_PORT": "29400"}, "127.0.0.1", "29501"),
    ],
)
def test_torch_meets_where_the_user_says_or_at_a_port_of_the_jobs_own(
    around: dict[str, str], address: str, port: str
) -> None:
    environ = child_environ(1, 2, "@a", b"", 29501, environ=around)
    assert (environ["MASTER_ADDR"], environ["MASTER_PORT"]) == (address, port)


def test_who_was_started_again_knows_how_often() -> None:
    place = (1, 2, "@a", b"key", 29501)
    config = Config.from_env(child_environ(*place, environ={}))
    assert (config.restarts, config.min_ranks) == (0, 1)
    again = child_environ(*place, environ={}, restarts=3, min_ranks=2)
    config = Config.from_env(again)
    assert (config.restarts, config.min_ranks) == (3, 2)
    assert seen(again).keys() >= {"HOCKET_RESTARTS", "HOCKET_MIN_RANKS"}
    node = Node(1, 3, "tcp://first:4711")
    assert child_environ(*place, environ={}, node=node, min_ranks=2)["HOCKET_MIN_RANKS"] == "6"


def test_a_job_in_a_rank_that_was_started_again_is_a_new_one() -> None:
    around = child_environ(1, 2, "@a", b"", 29501, environ={}, restarts=3, min_ranks=2)
    inner = child_environ(0, 2, "@b", b"", 29502, environ=around)
    assert not inner.keys() & {"HOCKET_RESTARTS", "HOCKET_MIN_RANKS"}


def test_what_is_seen_holds_no_secret() -> None:
    found = seen({**HOCKET, "HOME": "/root"})
    assert found["HOCKET_ADDRESS"] == "@hocket-abc"
    assert found["HOCKET_SECRET"] == "(set)"
    assert "HOME" not in found


def test_mpich_ranks_find_their_launcher_through_wrapper_scripts() -> None:
    """Hydra gives no job id: two ranks of one parent agree, also where a shell stands between; another job does not."""
    report = "from hocket.config import Config; print(Config.from_env().address, flush=True)"
    launcher = (
        "import os, subprocess, sys\n"
        "for rank, command in enumerate(([sys.executable, '-c', REPORT], ['sh', '-c', '\"$@\"; true', 'sh',"
        " sys.executable, '-c', REPORT])):\n"
        "    subprocess.run(command, env={**os.environ, 'PMI_RANK': str(rank), 'PMI_SIZE': '2'}, check=True)\n"
    ).replace("REPORT", repr(report))
    environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
    jobs = [subprocess.run([sys.executable, "-c", launcher], env=environ, capture_output=True, text=True) for _ in "ab"]
    addresses = [job.stdout.split() for job in jobs]
    assert all(len(ranks) == 2 and ranks[0] == ranks[1] for ranks in addresses), jobs
    assert addresses[0] != addresses[1]


def test_a_folder_where_the_ranks_meet() -> None:
    given = {"RANK": "0", "WORLD_SIZE": "2", "HOCKET_RENDEZVOUS": "file:///shared/my%20job", "HOCKET_SECRET": "x"}
    config = Config.from_env(given)
    assert config.folder == Path("/shared/my job")
    assert config.is_far
    assert not config.hosts_store
    for wrong in ("file://shared/job", "file:relative", "file:///", "/shared/job", "tcp://[fd00", "file://[fd00"):
        with pytest.raises(RendezvousError, match="looks like tcp://host:4711, or file:///folder/all/hosts/see"):
            Config.from_env({**given, "HOCKET_RENDEZVOUS": wrong})


def test_torchrun_on_several_hosts_needs_nothing_but_a_secret() -> None:
    """The ranks meet where torch's do, at the next port; on one host they meet as ever."""
    some = {**TORCHRUN, "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "fd00::1"}
    config = Config.from_env({**some, "HOCKET_SECRET": "x"})
    assert (config.address, config.is_far) == ("tcp://[fd00::1]:29501", True)
    assert (config.rank, config.size, config.local_rank, config.local_size) == (2, 4, 0, 2)
    assert config.launcher == "torchrun"
    other = Config.from_env({**some, "HOCKET_SECRET": "x", "HOCKET_RENDEZVOUS": "tcp://a:1"})
    assert (other.address, other.secret) == ("tcp://a:1", config.secret)
    assert not Config.from_env({**TORCHRUN, "HOCKET_SECRET": "x"}).is_far
    with pytest.raises(RendezvousError, match=r"MASTER_PORT is \"65535\", which is no whole number from 1 to 65534"):
        Config.from_env({**some, "HOCKET_SECRET": "x", "MASTER_PORT": "65535"})
    with pytest.raises(RendezvousError, match="need a HOCKET_SECRET, the same on all of them"):
        Config.from_env(some)
