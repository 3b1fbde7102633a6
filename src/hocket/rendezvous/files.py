"""The store in a folder that all hosts see: a note is a file, which appears whole, and once.

Network file systems tell nobody that a file has appeared, and may remember that one was not there. So who waits looks
again and again, and lists the folder each time, which has the system ask anew.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from ..deadline import Deadline
from .store import Absent, Taken

_SHORTEST, _LONGEST = 0.001, 0.05  # seconds between two looks


class FileStore:
    """A `store.Store` in `folder`, which is made where it is not there. It belongs to one job."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def set(self, key: str, value: bytes, timeout: float = 0.0) -> None:
        """Leave `value` under `key`. Raises Taken where another value is there already. Nothing is waited for."""
        note, draft = self._file(key), self._folder / f".{os.urandom(8).hex()}"
        try:
            draft.write_bytes(value)
            os.link(draft, note)  # not a rename, which would take the place of one that is there
        except FileExistsError:
            if (held := note.read_bytes()) != value:
                hint = f"Or an earlier job has left its notes in {self._folder}: remove it, and give each job a new one"
                raise Taken(key, held, hint) from None
        finally:
            draft.unlink(missing_ok=True)

    def get(self, key: str, timeout: float) -> bytes:
        """The value under `key`, as soon as it is there. Raises Absent after `timeout` seconds without."""
        deadline, pause = Deadline(timeout), _SHORTEST
        while True:
            with suppress(FileNotFoundError):
                list(self._folder.iterdir())
                return self._file(key).read_bytes()
            if not deadline.left():
                raise Absent(f'nobody wrote "{key}" in {self._folder} within {timeout:g} s')
            time.sleep(min(pause, deadline.left()))
            pause = min(2 * pause, _LONGEST)

    def clear(self, prefix: str) -> None:
        """Remove the notes whose keys begin so. The folder stays: others may be about to write there."""
        for note in self._folder.iterdir():
            if note.name.startswith(self._file(prefix).name):
                note.unlink(missing_ok=True)

    def _file(self, key: str) -> Path:
        return self._folder / key.replace("/", ".")
