"""The process that ranks are forked from: it imports what they need, once, and is otherwise as good as new.

```
launcher ── environment, streams ──▶ this process ── fork ──▶ one between ── fork ──▶ the rank
    ▲                                                          ends at once              │
    └───────────────────── its parent from then on: who adopts orphans ──────────────────┘
```

What a rank shares with the others, beyond memory that nobody writes, it had better not: descriptors of ours are closed,
and random numbers seeded anew. Threads do not come along, so nothing is forked where an import has left one. Otherwise
a rank is what `python train.py` is: its `__main__`, sys.argv, sys.path, exit code and traceback.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import struct
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

from ..config.children import become

_LENGTH = struct.Struct("=Q")
_AT_MOST = 3  # descriptors with a message


def tell(to: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """A message, and with it descriptors."""
    body = json.dumps(message).encode()
    socket.send_fds(to, [_LENGTH.pack(len(body))], descriptors)
    to.sendall(body)


def hear(of: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next message, and the descriptors that came with it. Raises EOFError where there are no more."""
    head, descriptors, _, _ = socket.recv_fds(of, _LENGTH.size, _AT_MOST, socket.MSG_WAITALL)
    if len(head) < _LENGTH.size:
        raise EOFError
    left, body = _LENGTH.unpack(head)[0], b""
    while len(body) < left:
        if not (more := of.recv(left - len(body))):
            raise EOFError
        body += more
    return json.loads(body), descriptors


def main() -> None:
    """The whole life: arguments are a socket to the launcher, the modules to import, and a program, which may be `-m`
    and a module. Returns in each rank, when that has run."""
    control, modules, *program = sys.argv[1:]
    with socket.socket(fileno=int(control)) as launcher:
        launcher.set_inheritable(False)
        _be_at_home(program)
        tell(launcher, {"error": _preload(modules.split(","))})
        order, streams = _serve(launcher)
    _begin(order, streams)
    _run(program)


def _preload(modules: Sequence[str]) -> str:
    """Import them; what went wrong, or ""."""
    try:
        for module in modules:
            import_module(module)
    except Exception as error:
        error.__traceback__ = _programs_part(error.__traceback__)
        missing = isinstance(error, ModuleNotFoundError) and error.name in modules
        return str(error) if missing else "".join(traceback.format_exception(error)).rstrip()
    gc.collect()
    gc.freeze()  # no collection of a rank's writes to what is shared
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    # Libraries that know how to be forked (OpenBLAS) have none now.
    left = len(list(Path("/proc/self/task").iterdir())) - 1
    return f"{left} threads were started by it, and a fork would lose them" if left else ""


def _serve(launcher: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork ranks as they are ordered, until the launcher is gone. Returns in a rank, with its order and streams."""
    while True:
        try:
            order, streams = hear(launcher)
        except (EOFError, ConnectionError):
            os._exit(0)
        here, there = os.pipe()
        said: dict[str, Any] = {"error": ""}
        try:
            if (between := os.fork()) == 0:
                _fork_again(there)
                os.close(here)
                os.close(there)
                return order, streams
            os.waitpid(between, 0)
        except OSError as error:
            said["error"] = str(error)
        os.close(there)
        pid = os.read(here, _LENGTH.size)
        os.close(here)
        for stream in streams:
            os.close(stream)
        if pid:
            said["pid"] = _LENGTH.unpack(pid)[0]
        elif not said["error"]:
            said["error"] = "a rank could not be forked"
        tell(launcher, said)


def _fork_again(pipe: int) -> None:
    """Returns in the rank. The one between writes its pid, if there is one, and ends."""
    try:
        if (pid := os.fork()) == 0:
            return
        os.write(pipe, _LENGTH.pack(pid))
    except OSError:
        pass
    os._exit(0)


def _begin(order: dict[str, Any], streams: Sequence[int]) -> None:
    """Become a rank."""
    if order["alone"]:
        os.setsid()
    else:
        os.setpgid(0, 0)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    become(order["environ"])
    if "numpy.random" in sys.modules:  # Python's own does so itself
        sys.modules["numpy.random"].seed()
    if "torch.random" in sys.modules:
        sys.modules["torch.random"].default_generator.seed()


def _be_at_home(program: Sequence[str]) -> None:
    """Find modules where the program will."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(Path.cwd() if program[0] == "-m" else Path(program[0]).resolve().parent)


def _run(program: Sequence[str]) -> None:
    """As Python itself would."""
    try:
        code, spec, sys.argv = _found(program)
        sys.modules["__main__"] = main = ModuleType("__main__")
        main.__spec__, main.__file__ = spec, code.co_filename
        main.__loader__ = spec.loader if spec else SourceFileLoader("__main__", code.co_filename)
        main.__package__ = spec.parent if spec else None
        main.__dict__.update(__builtins__=sys.modules["builtins"], __cached__=spec.cached if spec else None)
        exec(code, main.__dict__)
    except Exception as error:
        trace = _programs_part(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)


def _found(program: Sequence[str]) -> tuple[CodeType, ModuleSpec | None, list[str]]:
    """Its code, its spec where it is a module, and its sys.argv."""
    if program[0] != "-m":
        path = str(Path(program[0]).absolute())
        loader = SourceFileLoader("__main__", path)
        return loader.source_to_code(loader.get_data(path), path), None, list(program)
    name = program[1]
    missing = f"No module named {name}"
    try:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = find_spec(f"{name}.__main__")
            missing += f".__main__; {name!r} is a package and cannot be directly executed"
    except ImportError as error:
        why = f"{type(error).__name__}: {error}"
        sys.exit(f"{sys.executable}: Error while finding module specification for {name!r} ({why})")
    code = spec.loader.get_code(spec.name) if spec and isinstance(spec.loader, InspectLoader) else None
    if spec is None or code is None:
        sys.exit(f"{sys.executable}: {missing}")
    return code, spec, [code.co_filename, *program[2:]]


def _programs_part(trace: TracebackType | None) -> TracebackType | None:
    """Without the lines that run it."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith((__file__, "<frozen ")):
        trace = trace.tb_next
    return trace
