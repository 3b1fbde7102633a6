"""The file that keeps a profile: JSON, in the user's cache directory, one for each machine, by its *fingerprint*. Where
several machines share a home, each finds its own; what has no such file is as it was without one."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from .profile import Profile
from .topology import Host, this_host

FORMAT = 2  # of the file: another one where the model has other numbers, or a machine is told by something else
LONGEST = 1 << 16  # bytes of a file
REMEDY = "`hocket tune` makes a new one"


class Saved(NamedTuple):
    """What a file has: the profile, and who measured it when and on what, for people."""

    profile: Profile
    told: dict[str, Any]


def machine(host: Host | None = None) -> dict[str, Any]:
    """What a profile depends on, and what is the same whenever this machine is asked."""
    host = host or this_host()
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    model, family = (re.search(rf"^{of}\s*: (.*)", text, re.MULTILINE) for of in ("model name", "cpu family"))
    return {
        "processor": model[1] if model else os.uname().machine,
        "family": family[1] if family else "",
        "cores": host.cores,
        "l2": host.l2,
    }


def fingerprint(facts: dict[str, Any] | None = None) -> str:
    """The same for machines that look the same."""
    text = json.dumps(machine() if facts is None else facts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_of(place: Path, is_file: bool = False) -> Path:
    """Where this machine's profile is, or would be: that file, or one in that folder."""
    return place if is_file else place / f"profile-{fingerprint()}.json"


def save(path: Path, profile: Profile, told: dict[str, Any]) -> None:
    """Write it, at once or not at all. Raises OSError."""
    document = {
        "format": FORMAT,
        "fingerprint": fingerprint(),
        "machine": machine(),
        **told,
        **profile.plain(),
    }
    import tempfile  # which a rank that only reads does without

    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".profile-", delete=False) as file:
        try:
            json.dump(document, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def load(path: Path) -> Saved:
    """Read such a file. Raises FileNotFoundError, and ValueError, which says what to do, where it is none for this
    machine or this version of hocket."""
    try:
        with path.open("rb") as file:
            blob = file.read(LONGEST + 1)
        said = json.loads(blob) if len(blob) <= LONGEST else None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"the profile {path} cannot be read ({error.strerror}): {REMEDY}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the profile {path} is damaged: {REMEDY}") from error
    if not isinstance(said, dict) or "format" not in said:
        raise ValueError(f"the profile {path} is damaged: {REMEDY}")
    if said["format"] != FORMAT:
        raise ValueError(f"the profile {path} is of another version of hocket: {REMEDY}")
    if said.get("fingerprint") != fingerprint():
        raise ValueError(f"the profile {path} was measured on another machine, {said.get('machine')}: {REMEDY}")
    try:
        profile = Profile.of(said)
    except ValueError as error:
        raise ValueError(f"the profile {path} is damaged ({error}): {REMEDY}") from error
    return Saved(profile, {name: value for name, value in said.items() if name not in profile.plain()})


def found(place: Path | None, is_file: bool) -> tuple[Profile | None, str]:
    """The profile that is there, as for `file_of`; and, as a line for people, why there is none where there should."""
    if place is None:
        return None, ""
    path = file_of(place, is_file)
    try:
        return load(path).profile, ""
    except FileNotFoundError:
        return None, f"HOCKET_PROFILE names {path}, which is not there: {REMEDY}" if is_file else ""
    except ValueError as error:
        return None, str(error)
