"""Groups whose members the program names. Where torch has `reconfigure` (2.14 and newer) it is called through torch."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import hocket
import hocket.torch
from hocket.torch.reconfiguration import ErrorType, Reconfigurable
from moments import Signs, held, until
from worlds import World, raised, survivors

TIMEOUT = 60.0
IN_TORCH = hasattr(c10d, "_reconfigure")

Own = Callable[[int], World]


def begin() -> Any:
    """A group of this process that has no members yet."""
    torch.set_num_threads(1)
    if not IN_TORCH:
        return Reconfigurable(None, 0, 1, TIMEOUT)
    place = {"store": dist.HashStore(), "rank": 0, "world_size": 1, "timeout": timedelta(seconds=TIMEOUT)}
    dist.init_process_group("hocket", **place, enable_reconfigure=True)
    assert c10d._supports_reconfigure()
    return c10d._get_default_group()


def reconfigure(group: Any, uuid: int, handles: Iterable[str], timeout: float | None = None) -> Any:
    """What torch's function of that name does."""
    limit = None if timeout is None else timedelta(seconds=timeout)
    if IN_TORCH:
        return c10d._reconfigure(uuid, handles, group, limit)
    return group.reconfigure(SimpleNamespace(uuid=uuid, handles=handles, timeout=limit, hints={}))


def exchanged(group: Any, folder: str, uuid: int, members: list[int]) -> list[str]:
    """The handles of these processes, in this order."""
    me = int(os.environ["RANK"])
    draft = Path(folder, f".{uuid}.{me}")
    draft.write_text(json.dumps(group.get_reconfigure_handle()))
    draft.rename(Path(folder, f"{uuid}.{me}"))
    files = [Path(folder, f"{uuid}.{member}") for member in members]
    until(lambda: all(file.exists() for file in files), f"the handles of {members}", TIMEOUT)
    return [json.loads(file.read_text()) for file in files]


def formed(group: Any, folder: str, uuid: int, members: list[int]) -> None:
    """A group of these processes, in this order, which sums and sends as it should. All have come through its calls
    when one goes on, to another group or to its death."""
    reconfigure(group, uuid, exchanged(group, folder, uuid, members)).wait()
    works(group, members)
    through = Signs(folder)
    through.give(f"{uuid}.{os.environ['RANK']}.through")
    for member in members:
        through.wait(f"{uuid}.{member}.through", TIMEOUT)


def works(group: Any, members: list[int]) -> None:
    me = int(os.environ["RANK"])
    assert (group.rank(), group.size()) == (members.index(me), len(members))
    if IN_TORCH:
        assert (dist.get_rank(), dist.get_world_size()) == (members.index(me), len(members))
        assert dist.get_process_group_ranks(group) == list(range(len(members)))
    x = torch.full((1001,), float(me))
    group.allreduce([x]).wait()
    assert x.tolist() == [float(sum(members))] * 1001
    assert group.get_error() == ErrorType.SUCCESS  # before the last call, after which others may go on to another group
    parts = [[torch.zeros(2) for _ in members]]
    group.allgather(parts, [torch.full((2,), float(me))]).wait()
    assert [part[0].item() for part in parts[0]] == members


def through(_: Any, folder: str, groups: list[list[list[int]]]) -> None:
    """In each turn this process is in the group that names it."""
    group, me = begin(), int(os.environ["RANK"])
    for turn, parts in enumerate(groups):
        for place, members in enumerate(parts):
            if me in members:
                formed(group, folder, 10 * turn + place, members)
    group.shutdown()


@pytest.mark.feature("Losses", "reconfigure: the same members, fewer, more, others, two groups into one, one alone")
@pytest.mark.parametrize(
    "groups",
    [
        [[[0, 1, 2]], [[0, 1, 2]], [[0, 1, 2]]],  # nobody comes or goes
        [[[0, 1, 2, 3]], [[3, 1]], [[1]]],  # fewer, in another order; down to one
        [[[2]], [[2, 0]], [[0, 1, 2, 3]]],  # more
        [[[0, 1]], [[1, 2, 3]]],  # both at once
        [[[0, 1], [2, 3]], [[0, 1, 2, 3]], [[0, 2], [1, 3]]],  # two that were apart
    ],
    ids=["same", "fewer", "more", "others", "merged"],
)
def test_members_change(own: Own, tmp_path: Path, groups: list[list[list[int]]]) -> None:
    survivors(own(4).outcomes_alone(through, str(tmp_path), groups))


def unordered(_: Any, folder: str) -> int:
    group = begin()
    handles = exchanged(group, folder, 1, [0, 1, 2])
    reconfigure(group, 1, set(handles)).wait()
    x = torch.ones(3)
    group.allreduce([x]).wait()
    assert x.tolist() == [3.0] * 3
    group.shutdown()
    return group.rank()


def test_a_set_gives_all_of_them_a_rank(own: Own, tmp_path: Path) -> None:
    assert sorted(survivors(own(3).outcomes_alone(unordered, str(tmp_path)))) == [0, 1, 2]


def loses(_: Any, folder: str) -> int:
    """One is killed in the middle of a call; the others go on, and one takes its place."""
    group, me = begin(), int(os.environ["RANK"])
    if me < 3:
        formed(group, folder, 1, [0, 1, 2])
        if me == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        raised(hocket.PeerLost, lambda: [group.allreduce([torch.ones(9)]).wait() for _ in iter(int, 1)])
        assert group.get_error() == ErrorType.REMOTE_ERROR
    formed(group, folder, 2, [0, 3, 2])
    group.shutdown()
    return group.rank()


def test_a_loss(own: Own, tmp_path: Path) -> None:
    assert survivors(own(4).outcomes_alone(loses, str(tmp_path))) == [0, 2, 1]


def aborts(_: Any, folder: str) -> None:
    """Revoked, not torn down; also with calls in flight, which fail."""
    group, me = begin(), int(os.environ["RANK"])
    formed(group, folder, 1, [0, 1])
    opts = c10d.AllreduceOptions()
    opts.asyncOp = True
    late = [group.allreduce([torch.ones(5)], opts) for _ in range(3)] if me == 0 else []
    if me == 0:
        group.abort()
        assert group.get_error() == ErrorType.COMM_ERROR
    else:  # a mismatch, if the first of those is made before the abort
        lost = (hocket.PeerLost, hocket.MismatchError)
        raised(lost, lambda: [group.allreduce([torch.ones(6)]).wait() for _ in iter(int, 1)])
    for work in late:
        raised(hocket.HocketError, work.wait)
    formed(group, folder, 2, [1, 0])
    late = [group.allreduce([torch.ones(5)], opts)] if me == 0 else []
    formed(group, folder, 3, [0, 1])  # without an abort before it
    for work in late:
        raised(hocket.HocketError, work.wait)
    group.shutdown()


def test_after_abort_it_is_formed_anew(own: Own, tmp_path: Path) -> None:
    survivors(own(2).outcomes_alone(aborts, str(tmp_path)))


def early(_: Any, folder: str) -> list[str]:
    """What makes no sense is said, and harms nothing."""
    group, me = begin(), int(os.environ["RANK"])
    said = [raised(hocket.HocketError, lambda: group.allreduce([torch.ones(2)]).wait())]
    first = group.get_reconfigure_handle()
    assert group.get_reconfigure_handle() == first
    handles = exchanged(group, folder, 1, [0, 1])
    strange = "hocket:bm9uc2Vuc2U=", "gloo:3:1:host:17", "hocket:§"
    wrongs = [], [handles[1 - me]], [*handles, first], *([first, text] for text in strange)
    said += [raised(ValueError, reconfigure, group, 1, wrong) for wrong in wrongs]
    reconfigure(group, 1, handles).wait()
    works(group, [0, 1])
    said.append(raised(ValueError, reconfigure, group, 2, handles))  # they were good for one
    works(group, [0, 1])
    assert group.get_reconfigure_handle() != first
    group.shutdown()
    return [str(error) for error in said]


def test_what_makes_no_sense_harms_nothing(own: Own, tmp_path: Path) -> None:
    for said in survivors(own(2).outcomes_alone(early, str(tmp_path))):
        words = ["no members yet", *["none of these handles"] * 2, "given twice", *["none of this job's"] * 3]
        assert all(word in text for word, text in zip([*words, "after each reconfigure"], said, strict=True)), said


def absent(_: Any, folder: str) -> str:
    """One gives its handle and does not come: the others are told who, at the deadline, and go on without it."""
    group, me = begin(), int(os.environ["RANK"])
    handles = exchanged(group, folder, 1, [0, 1, 2])
    if me == 1:
        formed(group, folder, 3, [1])
        group.shutdown()
        return ""
    error = raised(hocket.RendezvousError, reconfigure(group, 1, handles, 1.5).wait)
    assert group.get_error() == ErrorType.COMM_ERROR
    assert "latest reconfigure() failed" in str(raised(hocket.HocketError, lambda: group.barrier().wait()))
    formed(group, folder, 2, [0, 2])
    group.shutdown()
    return str(error)


def test_who_does_not_come_is_named(own: Own, tmp_path: Path) -> None:
    first, _, third = survivors(own(3).outcomes_alone(absent, str(tmp_path)))
    assert "rank 1" in first
    assert "rank 1" in third


def dead(_: Any, folder: str) -> str:
    """One gives its handle and dies: that is known long before the deadline."""
    group, me = begin(), int(os.environ["RANK"])
    handles = exchanged(group, folder, 1, [0, 1])
    if me == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    error = raised(hocket.RendezvousError, reconfigure(group, 1, handles, 1000).wait)
    group.shutdown()
    return str(error)


def test_who_died_is_not_waited_for(own: Own, tmp_path: Path) -> None:
    assert "rank 0" in survivors(own(2).outcomes_alone(dead, str(tmp_path)))[0]


def often(_: Any, folder: str) -> list[tuple[int, int, int]]:
    group, after = begin(), []
    for turn in range(40):
        formed(group, folder, turn, [0, 1] if turn % 2 else [1, 0])
        if turn in (20, 39):
            after.append(held())
    group.shutdown()
    return after


def test_again_and_again(own: Own, tmp_path: Path) -> None:
    for early, late in survivors(own(2).outcomes_alone(often, str(tmp_path))):
        assert late[:2] <= early[:2], (early, late)
