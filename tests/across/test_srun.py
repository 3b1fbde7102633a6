"""srun across hosts: ranks of a cluster of Slurm's own, where that is installed, of hosts that are namespaces."""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from jobs import MEETING, met

from hosts import Host, hosts, reason
from moments import until

NEEDED = ("munged", "slurmctld", "slurmd", "sinfo", "srun", "sbatch")
HERE = all(shutil.which(program) for program in NEEDED)
pytestmark = [
    pytest.mark.skipif(bool(reason()), reason=reason() or "-"),
    pytest.mark.skipif(not HERE, reason="there is no Slurm here: apt install slurm-wlm munge"),
]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "launchers.md"
# Nothing of it lies anywhere but in the folder, and a node has as many CPUs as jobs ask for.
CONFIGURATION = """
ClusterName=test
SlurmctldHost={first.name}({first.address})
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Cluster(NamedTuple):
    folder: Path
    first: Host

    def run(self, *command: str, **environ: str) -> tuple[int, str, str]:
        """The code, output and errors of a command on the first host."""
        around = {"SLURM_CONF": str(self.folder / "slurm.conf"), **environ}
        around["PATH"] = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        process = self.first.start(command, around)
        out, err = process.communicate(timeout=90)
        return process.returncode, out, err


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("slurm")
    with hosts(2) as made:
        nodes = [f"NodeName={host.name} NodeAddr={host.address} CPUs=32 State=UNKNOWN\n" for host in made]
        (folder / "slurm.conf").write_text(CONFIGURATION.format(first=made[0], folder=folder) + "".join(nodes))
        (folder / "state").mkdir()
        (folder / "munge.key").write_bytes(secrets.token_bytes(64))
        (folder / "munge.key").chmod(0o400)
        files = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "log", "pid", "seed")]

        def daemon(host: Host, *command: str) -> None:
            around = {"SLURM_CONF": f"{folder}/slurm.conf"}
            with (folder / f"{command[0]}.{host.name}").open("w") as log:
                host.start(["setsid", *command], around, stdout=log, stderr=subprocess.STDOUT)

        daemon(made[0], "munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *files)
        until((folder / "munge.socket").exists, "munge", 20)
        daemon(made[0], "slurmctld", "-D")
        for host in made:
            daemon(host, "slurmd", "-D", "-N", host.name)
        cluster = Cluster(folder, made[0])
        until(lambda: cluster.run("sinfo", "-h", "-o", "%D %T")[1] == "2 idle\n", "two idle nodes", 60)
        yield cluster


@pytest.mark.parametrize("place", ["tcp://host0:4711", "file://{folder}/meeting"])
def test_ranks_of_srun_meet_across_hosts(cluster: Cluster, place: str) -> None:
    given = {"HOCKET_SECRET": secrets.token_hex(8), "HOCKET_RENDEZVOUS": place.format(folder=cluster.folder)}
    code, out, err = cluster.run("srun", "-N2", "--ntasks-per-node=2", "python", "-c", MEETING, **given)
    assert code == 0, err
    assert met(out) == [[0, 0, 1, 1]] * 4, out


def test_on_one_host_nothing_has_to_be_given(cluster: Cluster) -> None:
    code, out, err = cluster.run("srun", "-N1", "-n3", "python", "-c", MEETING)
    assert code == 0, err
    assert met(out) == [[0, 0, 0]] * 3, out


def test_srun_that_was_given_nothing_is_told_what(cluster: Cluster) -> None:
    """By rank 0 under the name of its own host."""
    code, _, err = cluster.run("srun", "-N2", "--ntasks-per-node=2", "python", "-c", MEETING)
    assert code != 0
    assert "srun started this step on 2 hosts" in err
    assert "export HOCKET_SECRET=$(openssl rand -hex 16) HOCKET_RENDEZVOUS=tcp://host0:4711 before it is started" in err


def test_the_script_of_the_page(cluster: Cluster) -> None:
    (script,) = re.findall(r"```sh\n(#!/bin/bash\n#SBATCH .*?)```", PAGE.read_text(), re.DOTALL)
    (cluster.folder / "script.sh").write_text(script)
    (cluster.folder / "train.py").write_text(MEETING)
    code, _, err = cluster.run(
        "sbatch", "--wait", f"--chdir={cluster.folder}", "--output=said", f"{cluster.folder}/script.sh"
    )
    assert code == 0, err
    said = (cluster.folder / "said").read_text()
    assert met(said) == [[0] * 4 + [1] * 4] * 8, said
