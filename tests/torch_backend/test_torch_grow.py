"""torch.distributed takes in ranks that are new, or come again, in the processes that there are."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
import training
from test_torch_recover import alone, batch, caught_up, die, equipped, fail, learn
from torch.nn.parallel import DistributedDataParallel

import hocket
import hocket.torch
from hocket.torch import growth, recovery
from moments import Signs, held
from worlds import Died, World, raised, survivors

STEPS, TIMEOUT = 12, 60.0

Own = Callable[[int], World]


def enter(folder: str, size: int) -> int:
    """Torch.distributed begins among the first `size` processes. The number of this one; the others are to come."""
    torch.set_num_threads(1)
    me = int(os.environ["RANK"])
    os.environ.setdefault("HOCKET_RENDEZVOUS", f"file://{folder}/porch")
    os.environ.setdefault("HOCKET_SECRET", "of those that meet here")
    if me < size:
        place = {"store": dist.FileStore(f"{folder}/store", size), "rank": me, "world_size": size}
        dist.init_process_group("hocket", **place, timeout=timedelta(seconds=TIMEOUT))
    return me


def total() -> float:
    """The sum of ones over all ranks."""
    x = torch.ones(1001)
    dist.all_reduce(x)
    assert (x == x[0]).all()
    return x[0].item()


# ---- training --------------------------------------------------------------------------------------------------------


def trains(_: Any, signs: Signs, deaths: dict[int, int], size: int) -> list[torch.Tensor]:
    """`size` processes begin, of which some die in the backward pass of a step. One for each is there, and joins when
    that has happened. The last step is done by `size`."""
    me = enter(signs.folder, size)
    model, optimizer = equipped()
    model[2].weight.register_post_accumulate_grad_hook(lambda _: die() if deaths.get(step) == me else None)
    if me >= size:
        signs.wait(f"{me - size + 1} lost", 60)
        hocket.torch.join(TIMEOUT)
    step = 0
    while step < STEPS:
        try:
            step = caught_up(step, model, optimizer)
            network = DistributedDataParallel(model, bucket_cap_mb=1e-4)
            while step < STEPS:
                least = size if step == STEPS - 1 else 0
                if dist.get_world_size() < least or hocket.torch.pending():
                    hocket.torch.grow(least)
                    break
                learn(network, optimizer, batch(step)[dist.get_rank() :: dist.get_world_size()])
                step += 1
        except hocket.HocketError:
            history = hocket.torch.recover(TIMEOUT, allow_minority=True).history
            signs.give(f"{len(history)} lost")
    assert dist.get_world_size() == size
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    dist.barrier()
    dist.destroy_process_group()
    return weights


@pytest.mark.feature("Losses", "hocket.torch.join and grow: DDP goes on with ranks that are new, or were started again")
@pytest.mark.parametrize("deaths", [{3: 1}, {3: 0}, {2: 2, 5: 0}], ids=str)
def test_ddp_grows(own: Own, signs: Signs, deaths: dict[int, int]) -> None:
    seen = own(3 + len(deaths)).outcomes_alone(trains, signs, deaths, 3)
    assert all(isinstance(seen[rank], Died) for rank in deaths.values())
    left = survivors(seen)
    assert len(left) == 3
    assert all(torch.equal(*pair) for weights in left for pair in zip(weights, left[0], strict=True))
    training.close(left[0], alone())


# ---- what a grown group is -------------------------------------------------------------------------------------------


def grows(_: Any, signs: Signs) -> list[Any]:
    """From one to two, and to four, of which two come at once; in the end all but two are lost, and one of them."""
    me = enter(signs.folder, 1)
    seen = []
    if me == 0:
        assert hocket.torch.pending() == 0
        before = dist.group.WORLD
        assert hocket.torch.grow() is before
        late = dist.all_reduce(torch.ones(7), async_op=True)  # which comes before
        signs.give("1 may come")
        hocket.torch.grow(2)
        late.wait()
    elif me == 1:
        signs.wait("1 may come")
    else:
        signs.wait("2 may come")
    if me > 0:
        new = hocket.torch.join(50.0)
        assert new._group.timeout == TIMEOUT
        assert dist.get_backend() == "hocket"
    seen.append((dist.get_rank(), dist.get_world_size(), total()))
    if dist.get_world_size() == 2:
        signs.give("2 may come")
        hocket.torch.grow(4)
        seen.append((dist.get_rank(), dist.get_world_size(), total()))
    every: list[Any] = [None] * 4
    dist.all_gather_object(every, me)
    assert sorted(every) == [0, 1, 2, 3]
    assert every[:2] == [0, 1]
    part = dist.new_group([1, 3])  # in the store
    if dist.get_rank() in (1, 3):
        x = torch.ones(5)
        dist.all_reduce(x, group=part)
        assert x.tolist() == [2.0] * 5
    fail((2, 3))
    hocket.torch.grow()  # which recovers first
    seen.append((dist.get_rank(), dist.get_world_size(), total()))
    assert [loss.ranks for loss in dist.group.WORLD.history] in ([(2, 3)], [(2,), (1,)], [(3,), (2,)], [(2,), (2,)])
    dist.destroy_process_group()
    return seen


def test_from_one_to_many_and_back(own: Own, signs: Signs) -> None:
    first, second = survivors(own(4).outcomes_alone(grows, signs))
    assert first == [(0, 2, 2.0), (0, 4, 4.0), (0, 2, 2.0)]
    assert second == [(1, 2, 2.0), (1, 4, 4.0), (1, 2, 2.0)]


def too_few(_: Any, signs: Signs) -> list[Any]:
    enter(signs.folder, 2)
    before = dist.group.WORLD
    error = raised(hocket.CollectiveTimeout, hocket.torch.grow, 3, timeout=1)
    assert dist.group.WORLD is before
    return [str(error), total()]


def test_who_waits_in_vain_has_what_it_had(own: Own, signs: Signs) -> None:
    words = "of 3 ranks that were waited for there are 2, and 0 that wait to join, after 1 s"
    assert own(2).outcomes_alone(too_few, signs) == [[words, 2.0]] * 2


def wakes(_: Any, signs: Signs) -> float:
    """Rank 1 leaves by an error that is only its own, and joins anew, in the same process."""
    me = enter(signs.folder, 3)
    if me == 1:
        dist.group.WORLD.abort()
        dist.destroy_process_group()
        hocket.torch.join(TIMEOUT)
    else:
        raised(hocket.PeerLost, lambda: [total() for _ in iter(int, 1)])
        hocket.torch.grow(3)
    assert dist.get_rank() == [0, 2, 1][me]
    sum_ = total()
    dist.destroy_process_group()
    return sum_


def test_who_has_left_may_come_again(own: Own, signs: Signs) -> None:
    assert own(3).outcomes_alone(wakes, signs) == [3.0] * 3


def turns(_: Any, signs: Signs) -> list[tuple[int, int, int]]:
    """Again and again the same one leaves and joins. What the process holds after some."""
    me = enter(signs.folder, 2)
    after = []
    for turn in range(12):
        if me == 1:
            dist.destroy_process_group()
            hocket.torch.join(TIMEOUT)
        else:
            raised(hocket.PeerLost, lambda: [total() for _ in iter(int, 1)])
            hocket.torch.grow(2)
        assert total() == 2
        if turn in (5, 11):
            after.append(held())
        total()  # nobody leaves before that
    dist.destroy_process_group()
    return after


def test_again_and_again(own: Own, signs: Signs) -> None:
    for early, late in survivors(own(2).outcomes_alone(turns, signs)):
        assert late[:2] <= early[:2], (early, late)


# ---- what may go wrong -----------------------------------------------------------------------------------------------


def dies_on_the_way(_: Any, signs: Signs, where: str, victim: int) -> float | None:
    """Hocket's group has grown, and one dies before torch has begun over it: the others go on without it."""
    me = enter(signs.folder, 2)
    if me == victim:
        setattr(recovery if where in ("listen", "_begin") else recovery.dist, where, lambda *_, **__: die())
    if me == 2:
        hocket.torch.join(TIMEOUT)
    else:
        hocket.torch.grow(3)
    while dist.get_world_size() == 3:  # it had said what it had to say
        raised(hocket.PeerLost, lambda: [total() for _ in iter(int, 1)])
        hocket.torch.recover(TIMEOUT, allow_minority=True)
    sum_ = total()
    dist.barrier(dist.new_group([1, 0]))
    dist.destroy_process_group()
    return sum_


@pytest.mark.parametrize(
    ("where", "victim"), [("listen", 0), ("TCPStore", 1), ("TCPStore", 2), ("_begin", 0), ("_begin", 2)]
)
def test_a_death_on_the_way(own: Own, signs: Signs, where: str, victim: int, transport: str) -> None:
    assert survivors(own(3).outcomes_alone(dies_on_the_way, signs, where, victim)) == [2.0, 2.0]


def nobody_can(_: Any, signs: Signs) -> list[str]:
    enter(signs.folder, 2)
    for name in ("HOCKET_RENDEZVOUS", "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "HOCKET_SECRET"):
        os.environ.pop(name, None)
    errors = [raised(hocket.RendezvousError, hocket.torch.pending), raised(hocket.RendezvousError, hocket.torch.grow)]
    errors.append(raised(ValueError, hocket.torch.join))
    assert total() == 2
    dist.destroy_process_group()
    errors.append(raised(ValueError, hocket.torch.pending))
    return [str(error) for error in errors]


def test_it_is_said_why_nobody_can_join(own: Own, signs: Signs) -> None:
    for pending, grow, join, ended in survivors(own(2).outcomes_alone(nobody_can, signs)):
        assert pending == grow == growth._NOWHERE
        assert "destroy_process_group() ends it" in join
        assert "has not been initialized" in ended


def another_secret(_: Any, signs: Signs) -> str:
    me = enter(signs.folder, 1)
    if me == 1:
        error = raised(hocket.RendezvousError, hocket.torch.join, TIMEOUT, secret="of others")
        assert not dist.is_initialized()
        signs.give("refused")
        return str(error)
    while not signs.given("refused"):
        assert hocket.torch.grow() is dist.group.WORLD
    assert total() == 1
    dist.destroy_process_group()
    return ""


def test_another_jobs_rank_is_not_let_in(own: Own, signs: Signs, transport: str) -> None:
    _, why = survivors(own(2).outcomes_alone(another_secret, signs))
    assert "secret" in why
