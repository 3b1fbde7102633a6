"""What is given away is whole: the sources, and the wheel but for its core, which is not compiled for this.

`make wheel` builds one with it, and runs it.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from hocket import _core

ROOT = Path(__file__).resolve().parents[2]
BUILD = "import sys; from scikit_build_core.build import build_{0}; print(build_{0}(sys.argv[1]{1}))"


def test_the_sources_are_all_that_git_has(tmp_path: Path) -> None:
    with tarfile.open(built("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names == tracked() | {"PKG-INFO"}


def test_a_wheel_has_the_package_and_nothing_else(tmp_path: Path) -> None:
    with zipfile.ZipFile(built("wheel", tmp_path, ", {'wheel.cmake': 'false'}")) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == {name.removeprefix("src/") for name in tracked() if name.startswith("src/")}
    assert {"hocket/py.typed", "hocket/tcl/package/pkgIndex.tcl", "hocket/plans/draw/web/page.html"} <= names


def test_the_core_shows_nothing_but_its_beginning() -> None:
    """Whatever it is linked with: names that another extension has, too, would else be shared with that."""
    command = ["nm", "--dynamic", "--defined-only", "--format=posix", _core.__file__]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["PyInit__core"]


def built(what: str, folder: Path, settings: str = "") -> Path:
    """The archive that the build backend makes."""
    command = [sys.executable, "-c", BUILD.format(what, settings), str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


def tracked() -> set[str]:
    """The files of the repository: those that git has, or would take."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return {name for name in listed if (ROOT / name).is_file()}
