"""The program of every rank: `python start.py LIBRARY[:BACKEND] ADDRESS [RANK SIZE]`.

Started as a file, for the environments of the other libraries have no hocket: this folder is imported as a package of
its own there, and needs nothing but NumPy and the library.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    sys.path[:1] = []  # this folder itself
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    package = Path(__file__).resolve().parent.name
    script, address, *place = sys.argv[1:]
    library, *backend = script.split(":")
    module = import_module(f"{package}.with_{library}")
    loop = import_module(f"{package}.loop")
    before = loop.memory()
    with module.started(*backend, *map(int, place), address=address) as it:
        loop.serve(it, address, before)
