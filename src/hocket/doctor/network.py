"""By what address and name ranks of other hosts find this one. On one host nothing of it is used."""

from __future__ import annotations

import ipaddress
import socket
from typing import NamedTuple

from ..addresses import host_and_port
from ..config import SocketOptions, job_sockets
from ..errors import RendezvousError
from ..rendezvous.interfaces import Interface, interfaces, own_address
from .findings import Check, Finding, Here, none, note, ok, problem, warning

_CONTAINERS = ("docker", "br-", "virbr", "cni", "veth", "lxc", "lxd", "podman")
_SLOW = 1000  # Mbit/s


class Way(NamedTuple):
    """By which address others find this host, or why by none; towards what; what other addresses there are; the one to
    fall back to, where one is wished for; and how many hosts there are."""

    address: str
    error: str
    towards: str
    found: tuple[Interface, ...]
    fallback: str
    nodes: int


def read_way(here: Here) -> Way:
    """As a rank chooses it."""
    options, towards, found = options_of(here), _towards(here), tuple(interfaces())
    try:
        address = _host(own_address(towards, options.interface))
        wished = bool(options.fallback)
        fallback = _host(own_address(towards, options.fallback, "HOCKET_FALLBACK_IFNAME")) if wished else ""
    except (RendezvousError, OSError) as error:
        return Way("", str(error), towards, found, "", here.nodes)
    return Way(address, "", towards, found, fallback, here.nodes)


def _towards(here: Here) -> str:
    towards = here.variables.get("HOCKET_RENDEZVOUS", "")
    return towards if towards.startswith("tcp://") else ""


def options_of(here: Here) -> SocketOptions:
    """What is wished for; nothing, where that makes no sense."""
    try:
        return job_sockets(here.variables)
    except RendezvousError:  # which `settings` tells
        return SocketOptions()


def _host(url: str) -> str:
    return host_and_port(url)[0] if url else ""


def judge_way(facts: Way) -> list[Finding]:
    """None, or one that leads nowhere."""
    found = [each for each in facts.found if not each.is_loopback]
    there = ", ".join(f"{name} ({address})" for name, address in found) or "none"
    choose = "HOCKET_SOCKET_IFNAME=eth0, or whichever of the interfaces leads to the other hosts"
    if facts.error:
        why = "ranks of other hosts must know where to find this one"
        return problem("interface", facts.error, why, f"{choose}: {there}")
    name = next((each.name for each in facts.found if each.address == facts.address), "")
    at = f"{facts.address} ({name})" if name else facts.address
    if not facts.address or (ipaddress.ip_address(facts.address).is_loopback and facts.nodes > 1):
        made = problem if facts.nodes > 1 else note
        what = "this host has no address but its own loopback" if not found else f"others would find this host at {at}"
        if facts.towards:
            what = f"the way to {facts.towards} goes by {at or 'no interface'}"
        return made("interface", what, "no rank of another host comes to that", choose if found else "connect it")
    if name.startswith(_CONTAINERS):
        return warning(
            "interface",
            f"ranks of other hosts are told to come to {at}, which looks like a bridge of containers",
            "such an address leads nowhere from other hosts, or each host has the same",
            f"{choose}: {there}",
        )
    if facts.fallback == facts.address:
        return warning(
            "interface",
            f"HOCKET_FALLBACK_IFNAME means {at}, which is the first way, too",
            "a link goes on over the second way when the first has broken; these break together",
            f"name an interface of another network: {there}",
        )
    return ok("interface", f"others come to {at}")


class Speed(NamedTuple):
    """Of the interface by which others come, as its driver tells; 0 Mbit/s where it does not."""

    name: str
    mbits: int


def read_speed(here: Here) -> Speed:
    """From sysfs, which of a virtual interface knows nothing."""
    way = read_way(here)
    name = next((each.name for each in way.found if each.address == way.address), "")
    return Speed(name, speed_of(here, name))


def speed_of(here: Here, name: str) -> int:
    """In Mbit/s; 0 where nobody knows."""
    try:
        return max(0, int(here.maybe(f"sys/class/net/{name}/speed") or 0)) if name else 0
    except OSError:  # EINVAL: its driver does not know
        return 0


def judge_speed(facts: Speed) -> list[Finding]:
    """Slower than any machine's today."""
    if facts.mbits >= _SLOW or not facts.mbits:
        return ok("speed", f"{facts.mbits} Mbit/s") if facts.mbits else none("speed", "nobody tells how fast it is")
    return warning(
        "speed",
        f"{facts.name} runs at {facts.mbits} Mbit/s",
        "long calls between hosts take as long as their bytes do on the slowest wire",
        f"ethtool {facts.name} tells what was negotiated: often a cable, or a port of the switch",
    )


class Name(NamedTuple):
    """This host's, the addresses to which it leads here, why to none, and how many hosts there are."""

    name: str
    addresses: tuple[str, ...]
    error: str
    nodes: int


def read_name(here: Here) -> Name:
    """As the resolver answers."""
    name = socket.gethostname()
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)
    except OSError as error:
        return Name(name, (), error.strerror or str(error), here.nodes)
    return Name(name, tuple(dict.fromkeys(str(place[0]) for *_, place in found)), "", here.nodes)


def judge_name(facts: Name) -> list[Finding]:
    """One that leads back here only, or nowhere."""
    made = warning if facts.nodes > 1 else note
    remedy = "name rank 0's host by its address (HOCKET_RENDEZVOUS, MASTER_ADDR), or mend /etc/hosts or the DNS"
    if facts.error:
        why = "who is to meet at that name, as launchers tell ranks to, finds nobody"
        return made("host name", f"{facts.name} leads to no address here: {facts.error}", why, remedy)
    first = facts.addresses[0]
    if ipaddress.ip_address(first.partition("%")[0]).is_loopback:
        why = "a rank 0 that is told to listen at that name does so where no other host comes"
        return made("host name", f"{facts.name} leads to {first} on this host", why, remedy)
    return ok("host name", f"{facts.name} is {first}")


class Meeting(NamedTuple):
    """Where the ranks are to meet, and why that leads nowhere, empty where it leads somewhere."""

    address: str
    error: str


def read_meeting(here: Here) -> Meeting:
    """HOCKET_RENDEZVOUS, if it names a host."""
    towards, error = _towards(here), ""
    if towards:
        try:
            host, port, _ = host_and_port(towards)
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (RendezvousError, OSError, ValueError) as wrong:  # of what cannot be a name, too
            error = str(getattr(wrong, "strerror", "") or wrong)
    return Meeting(towards, error)


def judge_meeting(facts: Meeting) -> list[Finding]:
    """A host that nobody knows."""
    if not facts.error:
        at = facts.address
        return ok("meeting point", f"they meet at {at}") if at else none("meeting point", "no meeting point is set")
    return problem(
        "meeting point",
        f"HOCKET_RENDEZVOUS is {facts.address}, and that leads nowhere: {facts.error}",
        "ranks of several hosts meet there",
        "an address of rank 0's host instead of a name, or mend /etc/hosts or the DNS",
    )


CHECKS = (
    Check("interface", read_way, judge_way),
    Check("speed", read_speed, judge_speed),
    Check("host name", read_name, judge_name),
    Check("meeting point", read_meeting, judge_meeting),
)
