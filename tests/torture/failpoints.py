"""hocket with the named steps of csrc/wait/failpoint.h: an extension in the place of the usual one. Imported first.

Run by itself it builds it, beside the usual one and out of most of its objects.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def folder() -> Path:
    """Where the usual extension is built for this Python."""
    major, minor = sys.version_info[:2]
    found = sorted((ROOT / "build").glob(f"cp{major}{minor}-*/build.ninja"))
    if not found:
        raise RuntimeError("hocket is not built here: make .venv/hocket")
    return found[0].parent


def build() -> None:
    """Bring it up to date; one process at a time."""
    with (folder() / "failpoints.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        beside = str(Path(sys.executable).parent)  # where cmake and ninja are
        environ = {**os.environ, "PATH": f"{beside}{os.pathsep}{os.environ['PATH']}"}
        command = ["cmake", "--build", str(folder()), "--target", "failpoints"]
        built = subprocess.run(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if built.returncode:
        raise RuntimeError(f"the extension with failpoints cannot be built:\n{built.stdout}")


def load() -> ctypes.CDLL:
    """Have hocket use it in this process, and in those that are forked from it."""
    if "hocket._core" in sys.modules:
        raise RuntimeError("hocket was imported before it could be given another extension")
    path = folder() / "failpoints" / "_core.so"
    spec = importlib.util.spec_from_file_location("hocket._core", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["hocket._core"] = module
    spec.loader.exec_module(module)
    library = ctypes.CDLL(str(path))
    library.hocket_arm.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_double]
    library.hocket_arm.restype = None
    return library


def arm(step: str, visit: int, signal: int = 0, seconds: float = -1.0) -> None:
    """At that visit of the step, counted from 1 and from now on, this process gets the signal; without one it exits, or
    is late by so many `seconds`. Only the last order holds."""
    _library.hocket_arm(step.encode(), visit, signal, seconds)


def disarm() -> None:
    """Whatever this process was to do, it does no more."""
    _library.hocket_arm(b"", 0, 0, 0.0)


if __name__ == "__main__":
    build()
else:
    _library = load()
