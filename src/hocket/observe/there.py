"""Python on other hosts: by ssh, or by whatever else runs a command on them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Container, Sequence

from ..errors import HocketError

PATIENCE = 40.0  # seconds for a host to answer
SSH = f"ssh -o BatchMode=yes {{host}} {sys.executable}"


def command(host: str, by: str, words: Sequence[str]) -> list[str]:
    """The command line that runs Python with these words there; `by` runs Python on a `{host}`. Raises HocketError."""
    try:
        return [*(word.replace("{host}", host) for word in shlex.split(by)), *words]
    except ValueError as error:
        raise HocketError(str(error)) from None


def printed(host: str, by: str, words: Sequence[str], *, fine: Container[int] = (0,)) -> bytes:
    """What it prints there. Raises HocketError where it does not end in time, with a code that is fine, or printed
    nothing; it tells the last line of stderr."""
    try:
        done = subprocess.run(command(host, by, words), stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise HocketError(f"no answer within {PATIENCE:g} s") from None
    except (OSError, ValueError) as error:
        raise HocketError(str(error)) from None
    if done.returncode not in fine or not done.stdout:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise HocketError(f"exit code {done.returncode}{f': {said[-1]}' if said else ''}")
    return done.stdout
