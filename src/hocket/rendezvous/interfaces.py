"""This host's network interfaces: at which of its addresses ranks of other hosts find it.

Without a wish it is the address by which the way goes to where the ranks meet. HOCKET_SOCKET_IFNAME wishes in NCCL's
forms: `eth` is any interface whose name begins so, `=eth0` that one, `^docker,br` any that does not begin so, and
`^=eth0` any but that one and the loopback; several, between commas, are tried in their order.
"""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..addresses import tcp_url
from ..errors import RendezvousError
from .sockets import Address

_SIOCGIFADDR = 0x8915
_V6 = Path("/proc/net/if_inet6")
_SOMEWHERE = "tcp://192.0.2.1:1", "tcp://[2001:db8::1]:1"  # in no network: the way there is that to all others
_GLOBAL = "00"  # of an address in that table: not of one link only, which would need the link's name beside it


class Interface(NamedTuple):
    """One address of an interface that is up."""

    name: str
    address: str

    @property
    def is_v6(self) -> bool:
        """Whether it is one of IPv6."""
        return ":" in self.address

    @property
    def is_loopback(self) -> bool:
        """Whether it leads to this host only."""
        return ipaddress.ip_address(self.address).is_loopback


def interfaces() -> list[Interface]:
    """All addresses of this host by which others may reach it, in the order of the kernel's numbers of interfaces."""
    return [Interface(name, address) for _, name in socket.if_nameindex() for address in _addresses(name)]


def own_address(towards: str, wish: str = "", variable: str = "HOCKET_SOCKET_IFNAME") -> str:
    """The address at which ranks of other hosts find this one, as a tcp:// URL with port 0: the one that is wished for,
    else the one by which the route to `towards` goes; of the same family as that. Where the ranks meet at no address,
    the route is that to the rest of the world, or any address will do, of IPv4 first; and it is empty where there is
    none."""
    at = Address.of(towards) if towards.startswith("tcp://") else None
    if wish:
        v6 = None if at is None else at.family == socket.AF_INET6
        return tcp_url(fitting(wish, interfaces(), v6, variable), 0)
    if at is not None:
        return _on_the_way(at)
    for somewhere in _SOMEWHERE:
        with suppress(OSError):
            return _on_the_way(Address.of(somewhere))
    found = sorted((each for each in interfaces() if not each.is_loopback), key=lambda each: each.is_v6)
    return tcp_url(found[0].address, 0) if found else ""


def _on_the_way(at: Address) -> str:
    with socket.socket(at.family, socket.SOCK_DGRAM) as probe:  # which sends nothing
        probe.connect(at.place)
        return tcp_url(probe.getsockname()[0], 0)


def fitting(wish: str, found: list[Interface], v6: bool | None, variable: str = "HOCKET_SOCKET_IFNAME") -> str:
    """The first address that fits the wish, of IPv6, of IPv4, or of either, IPv4 first. Raises RendezvousError, which
    tells what there is."""
    excluded, text = wish.startswith("^"), wish.removeprefix("^")
    exact, names = text.startswith("="), [name for name in text.removeprefix("=").split(",") if name]

    def fits(name: str, interface: Interface) -> bool:
        return interface.name == name if exact else interface.name.startswith(name)

    right = [each for each in sorted(found, key=lambda each: each.is_v6) if v6 is None or each.is_v6 == v6]
    if excluded:
        right = [each for each in right if not each.is_loopback and not any(fits(name, each) for name in names)]
    else:
        right = [each for name in names for each in right if fits(name, each)]
    if right:
        return right[0].address
    kind = "" if v6 is None else f" of {'IPv6' if v6 else 'IPv4'}"
    there = ", ".join(f"{name} ({address})" for name, address in found) or "none"
    raise RendezvousError(f'{variable} is "{wish}", and no interface with an address{kind} fits: there are {there}')


def _addresses(name: str) -> Iterator[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, suppress(OSError):  # it has no address of IPv4
        answer = fcntl.ioctl(sock, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        yield socket.inet_ntoa(answer[20:24])
    with suppress(FileNotFoundError):  # a kernel without IPv6
        for line in _V6.read_text().splitlines():
            address, _, _, scope, _, device = line.split()
            if device == name and scope == _GLOBAL:
                yield str(ipaddress.IPv6Address(bytes.fromhex(address)))
