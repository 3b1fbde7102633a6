"""What a job serves to Prometheus, asked for as Prometheus does."""

from __future__ import annotations

import socket
from collections import defaultdict

import pytest
from launching import Hocket
from prometheus_client.parser import text_string_to_metric_families

from hocket.config.observed import metrics_address
from hocket.errors import RendezvousError
from ports import free_ports

JOB = """
import urllib.request
import hocket, numpy as np
group = hocket.init(20)
for _ in range(20): group.all_reduce(np.ones(2, "f4"), algorithm="ring")
part = group.subgroup([1])
if part: part.barrier()
if rank == 0: group.send(np.ones(3, "u1"), 1)
else: group.recv(0)
try: group.recv(rank, timeout=0.01)
except hocket.CollectiveTimeout: pass
text = urllib.request.urlopen(f"http://127.0.0.1:{PORT + rank}/metrics").read().decode()
for line in text.splitlines():
    if line.startswith("hocket_"): say(line)
group.barrier()
"""


def neighbours() -> int:
    """The first of two ports that nobody has."""
    while True:
        (port,) = free_ports(1)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port + 1)):
                return port


def test_every_rank_serves_what_it_counts(hocket: Hocket) -> None:
    port = neighbours()
    done = hocket.run("run", "-n", "2", "--metrics", str(port), hocket.script(JOB.replace("PORT", str(port))))
    assert done.returncode == 0, done
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = defaultdict(dict)
    for family in text_string_to_metric_families("\n".join(sorted(done.stdout.splitlines())) + "\n"):
        for sample in family.samples:
            found[sample.name][frozenset(sample.labels.items())] = sample.value

    def value(name: str, **labels: object) -> float:
        return found[name][frozenset((word, str(label)) for word, label in labels.items())]

    for rank in (0, 1):
        me = {"group": 0, "rank": rank}
        assert value("hocket_group_size", **me) == 2
        assert value("hocket_calls_total", **me, collective="all_reduce", algorithm="ring") == 20
        assert value("hocket_call_bytes_total", **me, collective="all_reduce", algorithm="ring") == 160
        times = [
            value("hocket_call_seconds_total", **me, collective="all_reduce", algorithm="ring", state=state)
            for state in ("waiting", "moving")
        ]
        assert min(times) >= 0 < sum(times)
        other = {**me, "peer": 1 - rank, "transport": "shm"}
        assert value("hocket_messages_total", **other, direction="sent") == (rank == 0)
        assert value("hocket_message_bytes_total", **other, direction="received") == 3 * (rank == 1)
        assert value("hocket_peer_bytes_total", **other, direction="sent") >= 160
        assert value("hocket_errors_total", **me, error="CollectiveTimeout") == 1
    assert value("hocket_group_size", group=1, rank=0) == 1  # that of rank 1 alone, which has another number there


def test_a_port_that_is_taken_is_said_so(hocket: Hocket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        done = hocket.run("run", "-n", "1", "--metrics", str(port), hocket.script("import hocket\nhocket.init()\n"))
    assert done.returncode == 1, done
    assert (
        f"metrics cannot be served at 127.0.0.1:{port}, as HOCKET_METRICS says: Address already in use" in done.stderr
    )


def test_without_a_client_it_is_said_what_to_install(hocket: Hocket) -> None:
    script = hocket.script("sys.modules['prometheus_client'] = None\nimport hocket\nhocket.init()\n")
    done = hocket.run("run", "-n", "1", "--metrics", str(neighbours()), script)
    assert done.returncode == 1, done
    assert "pip install 'hocket[metrics]'" in done.stderr, done


def test_the_variable_is_a_port_or_a_host_and_a_port(hocket: Hocket) -> None:
    place = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert metrics_address({}) is metrics_address({"HOCKET_METRICS": ""}) is None
    assert metrics_address({"HOCKET_METRICS": "9400"}) == ("127.0.0.1", 9400)
    assert metrics_address({"HOCKET_METRICS": "0.0.0.0:9400", **place}) == ("0.0.0.0", 9401)
    assert metrics_address({"HOCKET_METRICS": "[::]:9400", **place}) == ("::", 9401)
    for wrong in ("here", "0", "65536", "a:b", "9400:", "-1"):
        with pytest.raises(RendezvousError, match=r"it is a port, or host:port"):
            metrics_address({"HOCKET_METRICS": wrong})
    done = hocket.run("run", "-n", "2", "--metrics", "here", "true")
    assert done.returncode == 2
    assert "it is a port" in done.stderr
