"""mpirun across hosts: ranks that it starts meet where they are told to, and else say what it has to be given.

Each MPI that is installed as `make bench` does it. Hosts are namespaces; mpirun's ssh is a program that enters them.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator

import pytest
from jobs import MEETING, met

from hocket.bench.peers import LIBRARIES
from hosts import Host, hosts, reason

pytestmark = pytest.mark.skipif(bool(reason()), reason=reason() or "-")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
WAYS = {
    "openmpi": "-n 4 --host host0:2,host1:2 --mca plm_ssh_agent {agent} --bind-to none",
    "mpich": "-n 4 -hosts host0,host1 -ppn 2 -launcher ssh -launcher-exec {agent}",
}
REMEDY = "export HOCKET_SECRET=$(openssl rand -hex 16)"


@pytest.fixture(scope="module")
def two() -> Iterator[list[Host]]:
    with hosts(2) as made:
        yield made


def mpirun(on: Host, key: str, *options: str, **environ: str) -> tuple[int, str, str]:
    """The code, output and errors of four ranks that an MPI starts from there, two on each host."""
    place = LIBRARIES[key].place()
    if place is None:
        pytest.skip(LIBRARIES[key].advice())
    words = [*WAYS[key].format(agent=on.agent).split(), *options, sys.executable, "-c", MEETING]
    process = on.start([str(place / "bin" / "mpirun"), *words], {**AS_ROOT, **environ})
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_the_agent_is_to_these_hosts_what_ssh_is(two: list[Host]) -> None:
    """It runs a command line there, in a shell, and takes no variables along."""
    process = two[0].start([two[0].agent, "-x", "host1", "hostname;", "echo [$MINE]"], {"MINE": "x"})
    assert process.communicate(timeout=20) == ("host1\n[]\n", "")
    process = two[0].start([two[0].agent, "host9", "hostname"])
    assert process.communicate(timeout=20) == ("", "no host is called host9\n")


MAKER = """
from hocket.bench.hosts import hosts
with hosts(1) as (host,):
    host.start([host.agent, "host0", "setsid sleep 1000 & echo started"], stdout=None).wait()
    input()
"""


def test_what_a_launcher_left_behind_is_gone_with_who_made_the_hosts() -> None:
    """Who made them is killed; a daemon there goes on holding the pipe for as long as it lives."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", MAKER], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.kill()
        process.communicate(timeout=20)


@pytest.mark.parametrize("key", WAYS)
def test_ranks_of_mpirun_meet_across_hosts(two: list[Host], key: str) -> None:
    """Also where mpirun itself runs on another host than rank 0."""
    given = {"HOCKET_SECRET": secrets.token_hex(8), "HOCKET_RENDEZVOUS": "tcp://host0:4711"}
    passed = [word for name in given for word in ("-x", name)] if key == "openmpi" else []
    for on in two:
        code, out, err = mpirun(on, key, *passed, **given)
        assert code == 0, err
        assert met(out) == [[0, 0, 1, 1]] * 4, out


def test_open_mpi_was_not_told_what_to_pass_on(two: list[Host]) -> None:
    """The ranks beside mpirun have the variables, the others say what is missing; nobody waits for anybody."""
    given = {"HOCKET_SECRET": "x", "HOCKET_RENDEZVOUS": "tcp://host0:4712"}
    code, _, err = mpirun(two[0], "openmpi", "-x", "HOCKET_SECRET", **given)
    assert code != 0
    assert "mpirun -x HOCKET_SECRET -x HOCKET_RENDEZVOUS=tcp://HOST:4711 ..., HOST being that of rank 0" in err


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("openmpi", "-x HOCKET_RENDEZVOUS=tcp://host0:4711"),
        ("mpich", "HOCKET_RENDEZVOUS=tcp://host0:4711 before it is started"),
    ],
)
def test_mpirun_that_was_given_nothing_is_told_what(two: list[Host], key: str, remedy: str) -> None:
    """By rank 0 under the name of its own host."""
    code, _, err = mpirun(two[0], key)
    assert code != 0
    assert REMEDY in err
    assert remedy in err
