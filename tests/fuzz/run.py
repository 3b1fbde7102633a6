"""Runs the targets of this folder, coverage-guided, by libFuzzer, for some seconds each, and as many at a time as there
are cores. What a target finds lies in a file then, and the command that runs just that again is printed.

    python tests/fuzz/run.py --seconds 60 [--seed 7] [TARGET ...]

Inputs that led somewhere new are kept under build/fuzz/corpus: the next run begins with them.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import parsers

HERE = Path(__file__).parent.resolve()
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "fuzz"
NATIVE = sorted(path.stem.removeprefix("fuzz_") for path in HERE.glob("fuzz_*.cpp"))
PYTHON = list(parsers.TARGETS)

# Of one input: seconds, and megabytes in one piece (a mailbox keeps 64 of what nobody asked for) and all in all.
LIMITS = ["-timeout=10", "-malloc_limit_mb=80", "-rss_limit_mb=1024"]
LONGEST = {"link": 40_000}  # bytes of an input, where that is not the length of the longest seed
ENVIRONMENT = os.environ | {"UBSAN_OPTIONS": "print_stacktrace=1"}
TAIL = 60  # lines of a target that found something


def command(target: str) -> list[str]:
    """What runs it; options and files follow."""
    if target in NATIVE:
        return [str(BUILD / f"fuzz_{target}")]
    return [sys.executable, str(HERE / "parsers.py"), target]


def fuzz(target: str, seconds: int, seed: int) -> bool:
    """Whether nothing was found."""
    corpus, seeds, found = (BUILD / kind / target for kind in ("corpus", "seeds", "found"))
    shutil.rmtree(seeds, ignore_errors=True)
    for folder in (corpus, seeds, found):
        folder.mkdir(parents=True, exist_ok=True)
    if target in NATIVE:
        subprocess.run([*command(target), "--seeds", str(seeds)], check=True, env=ENVIRONMENT)
    else:
        parsers.write_seeds(target, seeds)
    options = [f"-max_total_time={seconds}", f"-seed={seed}", f"-artifact_prefix={found}/", *LIMITS]
    if target in LONGEST:
        options.append(f"-max_len={LONGEST[target]}")
    run = subprocess.run(
        [*command(target), *options, str(corpus), str(seeds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=ENVIRONMENT,
        text=True,
        errors="replace",
    )
    done = re.search(r"^Done (\d+) runs", run.stdout, re.M)
    if run.returncode == 0 and done:
        print(f"{target:12} {int(done[1]):8} inputs, nothing found", flush=True)
        return True
    artifact = re.search(r"Test unit written to (.*)", run.stdout)
    again = [*command(target), artifact[1]] if artifact else [*command(target), *options, str(seeds)]
    log = "\n".join(run.stdout.splitlines()[-TAIL:])
    print(f"{target} found something:\n{log}\n\nagain, just this input: {shlex.join(again)}\n", flush=True)
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(NATIVE + PYTHON)}; all, if none")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (60)")
    parser.add_argument("--seed", type=int, default=random.randrange(1, 1 << 31))
    given = parser.parse_args()
    if unknown := set(given.targets) - set(NATIVE + PYTHON):
        parser.error(f"there is no target {', '.join(sorted(unknown))}; there are {', '.join(NATIVE + PYTHON)}")
    print(f"seed {given.seed}", flush=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        fine = list(pool.map(lambda name: fuzz(name, given.seconds, given.seed), given.targets or NATIVE + PYTHON))
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
