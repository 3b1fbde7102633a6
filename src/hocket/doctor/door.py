"""Whether one host reaches another over TCP: a door that is open for a moment, and those who knock at it.

```
python -m hocket.doctor.door open 20                    prints where it listens, and a secret; is gone after 20 seconds
python -m hocket.doctor.door knock URL SECRET ...       prints of each door why it was not reached
```

Both ends prove by HMAC that they know the door's secret, which is drawn for it; then 64 KiB go one way, and a byte the
other. A door is good for nothing else, and is shut as soon as who asked for it no longer reads what it prints.
"""

from __future__ import annotations

import json
import secrets
import select
import socket
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Thread

from ..addresses import host_and_port, tcp_url
from ..config import job_sockets
from ..deadline import Deadline
from ..errors import HocketError, RendezvousError
from ..rendezvous.interfaces import own_address
from ..rendezvous.sockets import Address, listen, read, verify

PATIENCE = 3.0  # seconds for one knock
_LOOK = 0.2  # seconds after which a door looks whether anybody is interested
_NAME = b"door"
_LOAD = 1 << 16  # bytes: more than one packet of any size
_HEARD = b"\1"


def stand(seconds: float) -> None:
    """Open a door, print where, and answer whoever knocks. Raises RendezvousError where this host has no address."""
    address = own_address("", job_sockets().interface)
    if not address:
        raise RendezvousError("this host has no address by which others could come")
    secret, deadline = secrets.token_hex(16), Deadline(seconds)
    with listen(address) as listener:
        host, port, *_ = listener.getsockname()
        print(json.dumps({"url": tcp_url(host, port), "secret": secret}), flush=True)
        while deadline.left():
            if select.select([listener], [], [], _LOOK)[0]:
                Thread(target=_answer, args=(listener.accept()[0], secret), daemon=True).start()
            print(flush=True)  # raises BrokenPipeError once nobody reads


def _answer(caller: socket.socket, secret: str) -> None:
    deadline = Deadline(PATIENCE)
    with caller, suppress(OSError, HocketError, EOFError):
        verify(caller, secret.encode(), "host", _NAME, deadline)
        read(caller, _LOAD, deadline)
        caller.sendall(_HEARD)


def knock(url: str, secret: str) -> str:
    """Why nothing came through; empty where all did."""
    deadline, late = Deadline(PATIENCE), f"no answer within {PATIENCE:g} s"
    try:
        at = Address.of(url)
        with socket.socket(at.family, socket.SOCK_STREAM) as sock:
            sock.settimeout(PATIENCE)
            sock.connect(at.place)
            late = "it is connected, and then nothing comes"
            verify(sock, secret.encode(), "caller", _NAME, deadline)
            late = "long packets do not come through"
            sock.settimeout(max(deadline.left(), 0.001))
            sock.sendall(bytes(_LOAD))
            read(sock, len(_HEARD), deadline)
    except TimeoutError:
        return late
    except (OSError, HocketError, EOFError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def main(words: Sequence[str]) -> int:
    """What the program does; its exit code."""
    match words:
        case ["open", seconds]:
            with suppress(BrokenPipeError):
                stand(float(seconds))
        case ["knock", *doors]:
            pairs = list(zip(doors[::2], doors[1::2], strict=True))
            for url, _ in pairs:
                host_and_port(url)
            with ThreadPoolExecutor(max(len(pairs), 1)) as pool:
                print(json.dumps(list(pool.map(lambda pair: knock(*pair), pairs))), flush=True)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (HocketError, OSError, ValueError) as error:
        sys.exit(f"hocket doctor: {error}")
