"""Hosts on one machine: namespaces of their own for network, names, IPC and /dev/shm, joined by a bridge.

    with hosts(2) as (a, b):
        a.start([sys.executable, "rank.py"], environ)      a process there
        a.address                                          where others reach it: 10.213.77.1
        b.cut()                                            its cable is pulled

They know each other by name, `host0` and so on, and the program AGENT, which each of them sees, runs a command on
another: `AGENT host1 date` is what `ssh host1 date` would be, for launchers that start their daemons so. Each host is
held by a process, and gone with it, also when who made it is killed: no namespace has a name that would keep it, and no
file lies anywhere but in them. That takes root; `reason()` says in one line what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

# Lives in its new namespaces until whoever started it closes the pipe, as its death does; and takes with it whatever
# runs there by then, which a launcher's daemon may have started.
HOLDER = """
import contextlib, ctypes, os, select, signal, socket, subprocess, sys
left, leave = os.pipe()
os.set_blocking(leave, False)
signal.set_wakeup_fd(leave)
signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGINT, signal.SIG_IGN)
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(1, int(signal.SIGTERM))  # PR_SET_PDEATHSIG
if libc.unshare(0x40000000 | 0x04000000 | 0x08000000 | 0x00020000):  # NEWNET, NEWUTS, NEWIPC, NEWNS
    sys.exit(f"unshare: {os.strerror(ctypes.get_errno())}")
socket.sethostname(sys.argv[1])
libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None)  # MS_REC | MS_PRIVATE
libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=1g")
with open("/dev/shm/hosts", "w") as names:
    names.write(sys.argv[2])
if libc.mount(b"/dev/shm/hosts", b"/etc/hosts", None, 0x1000, None):  # MS_BIND
    raise OSError(ctypes.get_errno(), "mount")
subprocess.check_call(["ip", "link", "set", "lo", "up"])
def net(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None
def end():
    others = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid()]
    here = [pid for pid in others if net(pid) == net("self")]
    for pid in here:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return here
print("ready", flush=True)
select.select([0, left], [], [])
while end():
    pass
"""

AGENT = "/dev/shm/agent"
# Options are ssh's, of which there are none here to heed; and as with ssh, the environment stays behind.
AGENT_TEXT = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
case "$1" in {cases} *) echo "no host is called $1" >&2; exit 1;; esac
shift
exec env -i PATH="$PATH" HOME="$HOME" nsenter -t $pid -n -u -i -m -- sh -c "$*"
"""
# A filter of packets (BPF): if a random number is at least so large it passes, else it is dropped.
_RANDOM, _PASS, _DROP = 0xFFFFF000 + 56, 0, 2
# What follows Ethernet's head and IPv4's are the ports: the class is 1:1 and their sum modulo 256.
_BY_PORTS = "7,40 0 0 34,7 0 0 0,40 0 0 36,12 0 0 0,84 0 0 255,4 0 0 65537,22 0 0 0"
MOST = 16
NAMES = "127.0.0.1 localhost\n" + "".join(f"10.213.77.{number + 1} host{number}\n" for number in range(MOST))


def reason() -> str:
    """Why hosts cannot be made here; empty where they can."""
    if os.geteuid() != 0:
        return "hosts are network namespaces, which only root can make"
    missing = [tool for tool in ("ip", "tc", "nsenter") if shutil.which(tool) is None]
    return f"{' and '.join(missing)} (iproute2, util-linux) not found" if missing else ""


class Host:
    """One of them."""

    agent = AGENT

    def __init__(self, name: str, number: int, rate: str = "") -> None:
        self.name, self.address, self.rate = name, f"10.213.77.{number + 1}", rate
        self._started: list[subprocess.Popen[str]] = []
        self._holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, name, NAMES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "ready\n":
            self._holder.communicate()
            raise OSError("this machine lets its root make no namespaces; a container has to be privileged for that")

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
        around = [f"{name}={value}" for name, value in (environ or {}).items()]
        process: subprocess.Popen[str] = subprocess.Popen(self.within(["env", *around, *command]), **settings)
        self._started.append(process)
        return process

    def ip(self, *words: str) -> None:
        """A command of `ip` there."""
        self.told("ip", *words)

    def told(self, *command: str) -> None:
        """Run a command there to its end. Raises OSError, with what it said, where it fails."""
        done = subprocess.run(self.within(command), capture_output=True, text=True)
        if done.returncode:
            raise OSError(f"`{' '.join(command)}` failed on {self.name}: {done.stderr.strip()}")

    def shape(self, interface: str, rate: str) -> None:
        """Let no more out of an interface than `rate`, in tc's words, such as 1gbit: headers count. "1gbit/flow" is for
        each connection."""
        if rate.endswith("/flow"):
            self._shape_each(interface, rate.removesuffix("/flow"))
            return
        bucket = ("rate", rate, "burst", "128kb", "latency", "50ms")
        self.told("tc", "qdisc", "add", "dev", interface, "root", "tbf", *bucket)

    def _shape_each(self, interface: str, rate: str) -> None:
        """One class for each sum of two ports, modulo 256; two connections seldom share one."""
        self.told("tc", "qdisc", "add", "dev", interface, "root", "handle", "1:", "htb")
        classes = [
            f"class add dev {interface} parent 1: classid 1:{n:x} htb rate {rate} burst 128kb\n" for n in range(1, 257)
        ]
        self.told("sh", "-c", 'printf %s "$0" | tc -batch -', "".join(classes))
        self.told("tc", "filter", "add", "dev", interface, "parent", "1:", "bpf", "bytecode", _BY_PORTS)

    def learn(self, others: Sequence[Host]) -> None:
        """Put the program there that runs commands on the others."""
        cases = " ".join(f"{other.name}) pid={other.pid};;" for other in others)
        path = Path(f"/proc/{self.pid}/root{AGENT}")
        path.write_text(AGENT_TEXT.format(cases=cases))
        path.chmod(0o755)

    def cut(self) -> None:
        """Pull its cable."""
        self.ip("link", "set", "eth0", "down")

    def mend(self) -> None:
        """Undo `cut` and `lose`, whichever of them there was."""
        self.ip("link", "set", "eth0", "up")
        subprocess.run(self.within(["tc", "qdisc", "del", "dev", "eth0", "clsact"]), stderr=subprocess.DEVNULL)

    def lose(self, one_in: int) -> None:
        """Let one in so many of its packets get lost on their way out, by chance, or all (1); what comes in comes in.
        Raises OSError where the kernel has no classifier of type bpf."""
        told = f"4,32 0 0 {_RANDOM},53 0 1 {min(2**32 // one_in, 2**32 - 1)},6 0 0 {_PASS},6 0 0 {_DROP}"
        self.told("tc", "qdisc", "add", "dev", "eth0", "clsact")
        self.told("tc", "filter", "add", "dev", "eth0", "egress", "bpf", "da", "bytecode", told)

    def dropped(self) -> int:
        """How many packets `lose` has had dropped."""
        text = subprocess.check_output(self.within(["tc", "-s", "qdisc", "show", "dev", "eth0", "clsact"]), text=True)
        return int(text.partition("dropped ")[2].partition(",")[0])

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
        self._holder.communicate()
        for process in self._started:
            process.communicate()


@contextmanager
def hosts(count: int, *, rate: str = "", congestion: str = "") -> Iterator[list[Host]]:
    """So many, each of which reaches all others, over links that carry `rate` each way ("1gbit", or "1gbit/flow" for
    each connection; empty: whatever the processors manage). `congestion` is the congestion control of every socket
    there that does not choose its own. None at all is no hosts. Raises OSError for what the kernel has no means for."""
    if count == 0:
        yield []
        return
    with ExitStack() as stack:

        def made(name: str, number: int) -> Host:
            host = Host(name, number, rate)
            stack.callback(host.close)
            return host

        switch = made("switch", count)
        switch.ip("link", "add", "br0", "type", "bridge")
        switch.ip("link", "set", "br0", "up")
        all_hosts = [made(f"host{number}", number) for number in range(count)]
        for number, host in enumerate(all_hosts):
            port = f"port{number}"
            host.ip("link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", str(switch.pid))
            switch.ip("link", "set", port, "master", "br0", "up")
            host.ip("addr", "add", f"{host.address}/24", "dev", "eth0")
            host.ip("link", "set", "eth0", "up")
            if congestion:  # the sysctl is the whole machine's; a route may name another
                host.ip("route", "change", "10.213.77.0/24", "dev", "eth0", "congctl", congestion)
            for at, interface in ((host, "eth0"), (switch, port)) if rate else ():
                at.shape(interface, rate)
            host.learn(all_hosts)
        yield all_hosts
