"""How it is written where somebody can be met: tcp://host:port and file:///folder. The one place that reads them."""

from __future__ import annotations

from pathlib import Path
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
