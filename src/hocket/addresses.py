"""How it is written where somebody can be met. The one place that reads it.

```
tcp://first:4711          a port of a host, v4 or v6 ([::1])
rdma://first:4711         the same, of a rank that is then talked to through UCX
file:///shared/job        a folder that all hosts see
ipc://job7                a Unix socket of that name, of this user, on this host
@hocket-1000-job7         the same, as the kernel's abstract namespace has it (`ss -x`)
```
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from .errors import RendezvousError


def host_and_port(text: str) -> tuple[str, int, str]:
    """The parts of "tcp://host:port#name"; the name may be missing. Raises RendezvousError for another form."""
    try:
        parts = urlsplit(text)
        if parts.scheme == "tcp" and parts.hostname and parts.port is not None and not (parts.path or parts.query):
            return parts.hostname, parts.port, parts.fragment
    except ValueError:
        pass
    raise RendezvousError(f'"{text}" is no address: it looks like tcp://host:4711, or file:///folder/all/hosts/see')


def shared_folder(text: str) -> Path | None:
    """The folder of "file:///shared/path"; None for another form."""
    path = text.removeprefix("file://")
    return Path(unquote(path)) if path != text and path.startswith("/") and path != "/" else None


def tcp_url(host: str, port: int, name: str = "") -> str:
    """The address of who listens there."""
    host = f"[{host}]" if ":" in host else host
    return f"tcp://{host}:{port}" + (f"#{name}" if name else "")


class Peer(NamedTuple):
    """Where one rank can be reached: by a Unix socket, "@hocket-1000-job7", and by TCP, "tcp://host:port"; one of the
    two may be empty. `ways` are what others may talk over with it once they are there, "ucx" and "tcp"; `spare` is by
    what address they go on where the way over `far` breaks."""

    near: str = ""
    far: str = ""
    ways: tuple[str, ...] = ("tcp",)
    spare: str = ""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Those that it has, the nearest first."""
        return tuple(filter(None, self[:2]))

    @property
    def all(self) -> tuple[str, ...]:
        """Those, and the spare one."""
        return (*self.addresses, *filter(None, [self.spare]))


def peers(urls: Sequence[str | Sequence[str]]) -> tuple[Peer, ...]:
    """The ranks' places, of a URL for each, or of several to fall back to: ipc://, rdma:// and tcp://, one of each, the
    last two of one host and port; and another tcp://, over which what goes by these goes on where they break.

    Raises TypeError for what is no such list, and ValueError for a URL that cannot be meant, or is there twice.
    """
    if isinstance(urls, (str, bytes)) or not isinstance(urls, Sequence):
        raise TypeError(f"peers is a list of URLs, one for each rank, not {urls!r:.80}")
    if not urls:
        raise ValueError("peers is empty: it has a URL for each rank")
    found = tuple(_peer(rank, each) for rank, each in enumerate(urls))
    seen: dict[str, int] = {}
    for rank, peer in enumerate(found):
        for address in peer.all:
            if address in seen:
                raise ValueError(f"ranks {seen[address]} and {rank} of peers have one URL: each listens at its own")
            seen[address] = rank
    return found


def _peer(rank: int, given: str | Sequence[str]) -> Peer:
    urls = [given] if isinstance(given, str) else given
    if not isinstance(urls, Sequence) or not urls or not all(isinstance(url, str) for url in urls):
        raise TypeError(f"rank {rank} of peers is a URL, or a list of URLs to fall back to, not {given!r:.80}")
    found = [_reached(rank, url) for url in urls]
    spare = found.pop()[1] if len(found) > 1 and found[-1][0] == "tcp" and "tcp" in dict(found[:-1]) else ""
    parts = dict(found)
    if len(parts) < len(found):
        raise ValueError(
            f"rank {rank} of peers has {len(urls)} URLs: one ipc://, rdma:// and tcp:// each are enough, "
            "and a last tcp:// for when these break"
        )
    far = {parts[way] for way in ("ucx", "tcp") if way in parts}
    if len(far) > 1:
        raise ValueError(
            f"rank {rank} of peers has {urls}: its rdma:// and tcp:// are one host and port, where it listens for both"
        )
    ways = tuple(way for way in ("ucx", "tcp") if way in parts)
    return Peer(parts.get("near", ""), "".join(far), ways or ("tcp",), spare)


def _reached(rank: int, url: str) -> tuple[str, str]:
    """How, and where."""
    if name := re.fullmatch(r"ipc://([A-Za-z0-9_.-]{1,64})", url):
        return "near", f"@hocket-{os.geteuid()}-{name[1]}"
    try:
        host, port, name_of_it = host_and_port(f"tcp{plain}" if (plain := url.removeprefix("rdma")) != url else url)
    except RendezvousError:
        host, port, name_of_it = "", 0, ""
    if not host or not port or name_of_it:
        what = "it looks like tcp://host:4711, rdma://host:4711, or ipc://name (letters, digits, _ . -)"
        raise ValueError(f'"{url}" does not tell how rank {rank} of peers can be reached: {what}')
    if host in ("0.0.0.0", "::"):
        raise ValueError(f'"{url}" is every interface: rank {rank} of peers needs an address by which others reach it')
    return ("tcp" if url.startswith("tcp") else "ucx"), tcp_url(host, port)
