"""Hosts on one machine: namespaces of their own for network, names, IPC and /dev/shm, joined by a bridge.

    with hosts(2) as (a, b):
        a.start([sys.executable, "rank.py"], environ)      a process there
        a.address                                          where others reach it: 10.213.77.1
        b.cut()                                            its cable is pulled

    python tests/hosts.py 2 hocket run --node-rank {host} --rendezvous tcp://{first}:4711 ...      one command on each

They know each other by name, `host0` and so on. Each is held by a process, and gone with it, also when who made it is
killed: no namespace has a name that would keep it. That takes root; `reason()` says in one line what is missing.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

# Lives in its new namespaces until whoever started it closes the pipe, as its death does.
HOLDER = """
import ctypes, os, socket, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(1, 9)  # PR_SET_PDEATHSIG
if libc.unshare(0x40000000 | 0x04000000 | 0x08000000 | 0x00020000):  # NEWNET, NEWUTS, NEWIPC, NEWNS
    raise OSError(ctypes.get_errno(), "unshare")
socket.sethostname(sys.argv[1])
libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None)  # MS_REC | MS_PRIVATE
libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=1g")
with open("/dev/shm/hosts", "w") as names:
    names.write(sys.argv[2])
if libc.mount(b"/dev/shm/hosts", b"/etc/hosts", None, 0x1000, None):  # MS_BIND
    raise OSError(ctypes.get_errno(), "mount")
subprocess.check_call(["ip", "link", "set", "lo", "up"])
print("ready", flush=True)
sys.stdin.read()
"""

NAMES = "127.0.0.1 localhost\n" + "".join(f"10.213.77.{number + 1} host{number}\n" for number in range(16))


def reason() -> str:
    """Why hosts cannot be made here; empty where they can."""
    if os.geteuid() != 0:
        return "hosts are network namespaces, which only root can make"
    missing = [tool for tool in ("ip", "nsenter") if shutil.which(tool) is None]
    return f"{' and '.join(missing)} (iproute2, util-linux) not found" if missing else ""


class Host:
    """One of them."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.address = name, f"10.213.77.{number + 1}"
        self._started: list[subprocess.Popen[str]] = []
        self._holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, name, NAMES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "ready\n", f"no namespaces for {name}"

    @property
    def pid(self) -> int:
        """That of the process which holds the namespaces."""
        return self._holder.pid

    def within(self, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` there."""
        return ["nsenter", "-t", str(self.pid), "-n", "-u", "-i", "-m", "--", *command]

    def start(
        self, command: Sequence[str], environ: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """A process there, its output in pipes."""
        pipe = subprocess.PIPE
        settings: dict[str, Any] = {
            "stdout": pipe,
            "stderr": pipe,
            "stdin": subprocess.DEVNULL,
            "text": True,
            **options,
        }
        process: subprocess.Popen[str] = subprocess.Popen(
            self.within(command), env={**os.environ, **(environ or {})}, **{**settings, **options}
        )
        self._started.append(process)
        return process

    def ip(self, *words: str) -> None:
        """A command of `ip` there."""
        subprocess.check_call(self.within(["ip", *words]))

    def cut(self) -> None:
        """Pull its cable."""
        self.ip("link", "set", "eth0", "down")

    def listening(self) -> list[str]:
        """The addresses at which somebody listens there, v4 and v6: as the kernel writes them, port last."""
        text = subprocess.check_output(self.within(["cat", "/proc/net/tcp", "/proc/net/tcp6"]), text=True)
        rows = [line.split() for line in text.splitlines() if ":" in line]
        return [row[1] for row in rows if row[3] == "0A"]

    def received(self, interface: str) -> int:
        """The bytes that have come in by an interface."""
        text = subprocess.check_output(self.within(["cat", "/proc/net/dev"]), text=True)
        (row,) = (line.split() for line in text.splitlines() if f"{interface}:" in line)
        return int(row[1])

    def close(self) -> None:
        """End all that runs there, and the host."""
        for process in self._started:
            process.kill()
            process.communicate()
        self._holder.communicate()


@contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """So many, each of which reaches all others."""
    with ExitStack() as stack:

        def made(name: str, number: int) -> Host:
            host = Host(name, number)
            stack.callback(host.close)
            return host

        switch = made("switch", count)
        switch.ip("link", "add", "br0", "type", "bridge")
        switch.ip("link", "set", "br0", "up")
        all_hosts = [made(f"host{number}", number) for number in range(count)]
        for number, host in enumerate(all_hosts):
            host.ip("link", "add", "eth0", "type", "veth", "peer", "name", f"port{number}", "netns", str(switch.pid))
            switch.ip("link", "set", f"port{number}", "master", "br0", "up")
            host.ip("addr", "add", f"{host.address}/24", "dev", "eth0")
            host.ip("link", "set", "eth0", "up")
        yield all_hosts


def main() -> int:
    """The command on each of so many hosts: `{host}` is its number there, `{first}` the address of the first."""
    count, command = int(sys.argv[1]), sys.argv[2:]
    if why := reason():
        sys.exit(why)
    environ = {"HOCKET_SECRET": os.environ.get("HOCKET_SECRET") or secrets.token_hex(16)}
    with hosts(count) as made:
        words = {"first": made[0].address}
        running = [
            host.start([word.format(host=number, **words) for word in command], environ, stdout=None, stderr=None)
            for number, host in enumerate(made)
        ]
        return max(process.wait() for process in running)


if __name__ == "__main__":
    sys.exit(main())
