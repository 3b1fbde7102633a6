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
import runpy
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Sequence
from errno import EAGAIN
from functools import partial
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from pkgutil import get_importer
from types import ModuleType, TracebackType
from typing import Any

from ..config.children import become
from . import NO_MORE

_LENGTH = struct.Struct("=Q")
_AT_MOST = 4  # descriptors with a message


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
        run = _at_home(program)
        order, descriptors = _serve(launcher, modules.split(","))
    *streams, permit = descriptors
    if not os.read(permit, 1):  # who would watch over this rank is gone, or wants it no longer
        os._exit(0)
    os.close(permit)
    _begin(order["environ"], streams)
    _run(run)


def _preload(modules: Sequence[str]) -> str:
    """Import them; what went wrong, or ""."""
    try:
        for module in modules:
            import_module(module)
    except Exception as error:
        error.__traceback__ = _without(error.__traceback__, __file__, "<frozen ")
        missing = isinstance(error, ModuleNotFoundError) and error.name in modules
        return str(error) if missing else "".join(traceback.format_exception(error)).rstrip()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()  # or each rank would say it
    gc.collect()
    gc.freeze()  # no collection of a rank's writes to what is shared
    try:
        if (pid := os.fork()) == 0:
            os._exit(0)
    except OSError:
        return NO_MORE
    os.waitpid(pid, 0)
    # Libraries that know how to be forked (OpenBLAS) have none now.
    left = len(list(Path("/proc/self/task").iterdir())) - 1
    return f"it has started {left} thread{'s'[: left - 1]}, which a fork would not have" if left else ""


def _serve(launcher: socket.socket, modules: Sequence[str]) -> tuple[dict[str, Any], list[int]]:
    """Import the modules, and fork ranks as they are ordered, until the launcher is gone. Returns in a rank, with its
    order and descriptors."""
    said: dict[str, Any] = {"error": _preload(modules)}
    while True:
        try:
            tell(launcher, said)
            order, descriptors = hear(launcher)
        except (EOFError, ConnectionError):
            os._exit(0)
        said = {"error": ""}
        try:
            here, there = os.pipe()
            if (between := os.fork()) == 0:
                _fork_again(there, alone=order["alone"])
                os.close(here)
                os.close(there)
                return order, descriptors
            os.close(there)
            os.waitpid(between, 0)
            pid = os.read(here, _LENGTH.size)
            os.close(here)
            said |= {"pid": _LENGTH.unpack(pid)[0]} if pid else {"error": NO_MORE}
        except OSError as error:
            said["error"] = NO_MORE if error.errno == EAGAIN else str(error)
        for descriptor in descriptors:
            os.close(descriptor)


def _fork_again(pipe: int, *, alone: bool) -> None:
    """Returns in the rank, which leads its group, and has told its pid. The one between ends."""
    try:
        if os.fork() == 0:
            if alone:
                os.setsid()
            else:
                os.setpgid(0, 0)
            os.write(pipe, _LENGTH.pack(os.getpid()))
            return
    except OSError:
        pass
    os._exit(0)


def _begin(environ: dict[str, str], streams: Sequence[int]) -> None:
    """Become a rank."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    become(environ)
    if "numpy.random" in sys.modules:  # Python's own does so itself
        sys.modules["numpy.random"].seed()
    if "torch.random" in sys.modules:
        sys.modules["torch.random"].default_generator.seed()


def _at_home(program: Sequence[str]) -> Callable[[], object]:
    """Find modules where the program will, and let them see its arguments, not ours. What runs it, as Python would."""
    sys.orig_argv = [sys.executable, *program]
    sys.argv = ["-m", *program[2:]] if program[0] == "-m" else list(program)
    as_main = runpy._run_module_as_main  # type: ignore[attr-defined]
    path = os.path.join(os.getcwd(), program[0])  # noqa: PTH109, PTH118
    is_safe, is_zip = getattr(sys.flags, "safe_path", False), False
    if program[0] == "-m":
        run, home = partial(as_main, program[1]), str(Path.cwd())
    elif is_zip := get_importer(path) is not None:
        run, home = partial(as_main, "__main__", alter_argv=False), path
    else:
        run, home = partial(_run_script, path), str(Path(path).resolve().parent)
    if not is_safe:
        del sys.path[0]  # ours
    if is_zip or not is_safe:
        sys.path.insert(0, home)
    return run


def _run(program: Callable[[], object]) -> None:
    """In a `__main__` of its own, and with none of our lines in tracebacks."""
    ours = vars(sys.modules["__main__"])
    sys.modules["__main__"] = main = ModuleType("__main__")
    vars(main).update({name: value for name, value in ours.items() if name != "main"})
    try:
        program()
    except SystemExit:
        raise
    except BaseException:
        _hide_our_lines()
        raise


def _run_script(path: str) -> None:
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        print(f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        sys.exit(2)
    main = vars(sys.modules["__main__"])
    main.update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
    exec(compile(text, path, "exec", dont_inherit=True), main)


def _hide_our_lines() -> None:
    """From what shows the error that ends this process."""
    hook = getattr(sys, "excepthook", None)

    def hooked(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sys.last_traceback = trace = _without(trace, "<string>", __file__)
        assert hook is not None
        hook(kind, error.with_traceback(trace), trace)

    if hook is not None:
        sys.excepthook = hooked


def _without(trace: TracebackType | None, *files: str) -> TracebackType | None:
    """What comes after the lines of these files."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(files):
        trace = trace.tb_next
    return trace
