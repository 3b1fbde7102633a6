"""The kernels on processors that are not here: tests/native/test_reduce, in emulation. Each time the kernels that fit
the processor must be chosen, and all results, as counted in a digest, must be the same bits.

python tests/portable.py BUILD-WITH-G++ BUILD-WITH-CLANG BUILD-FOR-AARCH64
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import NamedTuple


class Run(NamedTuple):
    """On which processor, which kernels it has, the emulator, and the number of the build."""

    processor: str
    kernels: str
    emulator: str
    build: int


RUNS = (
    Run("this one, g++", "", "", 0),
    Run("this one, clang", "", "", 1),
    Run("x86-64 without AVX and F16C, g++", "SSE2", "qemu-x86_64 -cpu Nehalem", 0),
    Run("x86-64 without AVX and F16C, clang", "SSE2", "qemu-x86_64 -cpu Nehalem", 1),
    Run("x86-64 with AVX2, without F16C", "SSE2", "qemu-x86_64 -cpu Haswell,-f16c", 0),
    Run("x86-64 with AVX2 and F16C", "SSE2 AVX2", "qemu-x86_64 -cpu Haswell", 0),
    Run("aarch64", "NEON", "qemu-aarch64 -cpu cortex-a72 -L /usr/aarch64-linux-gnu", 2),
)


def main() -> int:
    """A line for each; 1 where a test fails, or two differ."""
    builds = sys.argv[1:]
    digests, good = set(), True
    for run in RUNS:
        command = [*run.emulator.split(), f"{builds[run.build]}/test_reduce"]
        done = subprocess.run(command, capture_output=True, text=True)
        told = re.search(r"^(.+) digest (\w+), ", done.stdout, re.MULTILINE)
        kernels, digest = told.groups() if told else ("none", "none")
        right = done.returncode == 0 and run.kernels in ("", kernels)
        digests.add(digest)
        good = good and right
        print(f"{run.processor:<36}{kernels:<20}{digest}  {'passed' if right else 'FAILED'}", flush=True)
        if not right:
            print(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    if len(digests) > 1:
        print("The digests differ, and with them the bits of some results.")
    return not good or len(digests) > 1


if __name__ == "__main__":
    sys.exit(main())
