"""torch.distributed goes on with the ranks that are left, in the same processes."""

from __future__ import annotations

import gc
import os
import signal
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import training
from ranks import let_gloo_reach_all
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hocket
import hocket.torch
from hocket.torch import recovery
from moments import Signs, held, last
from worlds import Died, World, raised

STEPS, BATCH, SIZE = 12, 12, 4
ROUNDS = 12
LONG = 1000.0  # seconds: beyond the end of a test

Own = Callable[[], World]


@pytest.fixture
def own(transport: str) -> Iterator[Own]:
    """`own()` are ranks whose processes nobody uses afterwards."""
    made: list[World] = []

    def make() -> World:
        made.append(World(SIZE, transport))
        return made[-1]

    yield make
    for world in made:
        world.close()


def enter(store: Path, backend: str = "hocket", size: int = SIZE, timeout: float = LONG) -> int:
    """torch.distributed begins; the rank. Over TCP every rank counts as a host."""
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    place = {"store": dist.FileStore(str(store), size), "rank": rank, "world_size": size}
    dist.init_process_group(backend, **place, timeout=timedelta(seconds=timeout))
    return rank


def recover() -> hocket.torch.ProcessGroup:
    return hocket.torch.recover(timeout=60, allow_minority=True)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(victims: tuple[int, ...]) -> None:
    """The victims die, when all have begun torch.distributed, and the others notice."""
    x = torch.ones(1000)
    if dist.get_rank() in victims:
        dist.all_reduce(x)
        die()
    raised(hocket.PeerLost, lambda: [dist.all_reduce(x) for _ in iter(int, 1)])


# ---- training ----


def batch(step: int) -> torch.Tensor:
    return torch.randn(BATCH, 8, generator=torch.Generator().manual_seed(step))


def learn(network: nn.Module, optimizer: Any, mine: torch.Tensor) -> None:
    optimizer.zero_grad()
    training.loss(network(mine)).backward()
    optimizer.step()


def equipped() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = training.model()
    return model, torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)


def alone() -> list[torch.Tensor]:
    """What a single process learns."""
    model, optimizer = equipped()
    for step in range(STEPS):
        learn(model, optimizer, batch(step))
    return [parameter.detach() for parameter in model.parameters()]


def trained(_: Any, store: Path, deaths: dict[int, int]) -> tuple[list[list[int]], list[torch.Tensor]]:
    """In the backward pass of some steps a rank dies, by its first number. Whom the history names, and the weights."""
    first = enter(store)
    model, optimizer = equipped()
    layer, network, step = model[2], None, 0
    assert isinstance(layer, nn.Linear)
    layer.weight.register_post_accumulate_grad_hook(lambda _: die() if deaths.get(step) == first else None)
    while step < STEPS:
        try:
            if network is None:
                step = caught_up(step, model, optimizer)
                network = DistributedDataParallel(model, bucket_cap_mb=1e-4)  # 100 bytes: several buckets
            learn(network, optimizer, batch(step)[dist.get_rank() :: dist.get_world_size()])
            step += 1
        except hocket.HocketError:  # noqa: PERF203
            recover()
            network = None
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    dist.barrier()
    history = [list(loss.ranks) for loss in dist.group.WORLD.history]
    dist.destroy_process_group()
    return history, weights


def caught_up(step: int, model: nn.Module, optimizer: Any) -> int:
    """The step that the furthest is at, whose state all have then."""
    steps: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(steps, step)
    state = [model.state_dict(), optimizer.state_dict()]
    dist.broadcast_object_list(state, src=steps.index(max(steps)))
    model.load_state_dict(state[0])
    optimizer.load_state_dict(state[1])
    return max(steps)


@pytest.mark.feature("Losses", "hocket.torch.recover: DDP goes on with the ranks that are left, down to one")
@pytest.mark.parametrize("deaths", [{5: 1}, {5: 0}, {3: 3, 4: 0}, {2: 1, 6: 3, 7: 0}], ids=str)
def test_ddp_goes_on(own: Own, deaths: dict[int, int], tmp_path: Path) -> None:
    outcomes = own().outcomes(trained, tmp_path / "store", deaths)
    assert all(isinstance(outcomes[rank], Died) for rank in deaths.values())
    left = [outcome for rank, outcome in enumerate(outcomes) if rank not in deaths.values()]
    expected, members = [], list(range(SIZE))
    for rank in deaths.values():
        expected.append([members.index(rank)])
        members.remove(rank)
    for history, weights in left:
        assert history == expected
        assert all(torch.equal(*pair) for pair in zip(weights, left[0][1], strict=True))
    training.close(left[0][1], alone())


def behind(_: Any, store: Path) -> list[float]:
    """Rank 1 completed the step that failed elsewhere."""
    rank = enter(store)
    model, optimizer = equipped()
    for _ in range(2 if rank == 1 else 1):
        learn(model, optimizer, batch(0))
    fail((3,))
    recover()
    step = caught_up(2 if rank == 1 else 1, model, optimizer)
    learn(DistributedDataParallel(model), optimizer, batch(1))
    dist.destroy_process_group()
    return [float(step), *model[0].weight.detach().flatten().tolist()]


def test_all_take_it_from_the_furthest(own: Own, tmp_path: Path) -> None:
    model, optimizer = equipped()
    for step in (0, 0, 1):
        learn(model, optimizer, batch(step))
    outcomes = own().outcomes(behind, tmp_path / "store")[:3]
    assert outcomes[0] == outcomes[1] == outcomes[2]
    training.close(torch.tensor(outcomes[0]), torch.cat([torch.tensor([2.0]), model[0].weight.detach().flatten()]))


# ---- what there is after it ----


def all_of_it(_: Any, store: Path) -> None:
    rank = enter(store, timeout=77.0)
    odd = dist.new_group([1, 3])
    dist.barrier(dist.new_group(backend="gloo"))
    fail((2,))
    new = recover()
    size, mine = 3, [0, 1, 3].index(rank)
    assert new is dist.group.WORLD
    assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (mine, size, "hocket")
    assert new._group.timeout == 77.0
    assert [loss.ranks for loss in new.history] == [(2,)]
    x = torch.full((1001,), float(rank))
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    assert x.tolist() == [4.0] * 1001
    every: list[Any] = [None] * size
    dist.all_gather_object(every, rank)
    assert every == [0, 1, 3]
    got = torch.zeros(1)
    after, before = (mine + 1) % size, (mine - 1) % size
    dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, torch.tensor([float(mine)]), after), dist.P2POp(dist.irecv, got, before)]
    )[-1].wait()
    assert got.item() == before
    if rank in (1, 3):
        raised(ValueError, dist.all_reduce, x, group=odd)  # which is gone
    for backend in ("hocket", "gloo"):  # through the store
        part = dist.new_group([0, 2], backend=backend)
        if mine != 1:
            y = torch.ones(3)
            dist.all_reduce(y, group=part)
            assert y.tolist() == [2.0] * 3
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.feature("Losses", "after it all else works as ever: new_group, messages, objects, other backends")
def test_all_else_works_afterwards(own: Own, tmp_path: Path) -> None:
    outcomes = own().outcomes(all_of_it, tmp_path / "store")
    assert [outcome for rank, outcome in enumerate(outcomes) if rank != 2] == [None] * 3


def in_flight(_: Any, store: Path) -> list[str]:
    """What nobody will ever answer, in groups whose ranks are all alive, and in another thread."""
    rank = enter(store)
    pairs = [dist.new_group([0, 1]), dist.new_group([0, 1]), dist.new_group([0, 1])]
    errors: list[BaseException] = []
    waiting: list[Any] = []
    if rank in (0, 1):
        waiting.append(dist.irecv(torch.zeros(1), 1 - rank, group=pairs[0]).get_future())
    if rank == 0:
        waiting.append(dist.all_reduce(torch.ones(1), group=pairs[1], async_op=True))
        call = lambda: errors.append(raised(hocket.HocketError, dist.all_reduce, torch.ones(1), group=pairs[2]))  # noqa: E731
        thread = threading.Thread(target=call)
        thread.start()
    fail((2,))
    recover()
    errors += [raised(RuntimeError, each.wait) for each in waiting]
    if rank == 0:
        thread.join()
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == 3
    dist.destroy_process_group()
    return [str(error) for error in errors]


def test_what_is_in_flight_is_not_waited_for(own: Own, tmp_path: Path) -> None:
    outcomes = own().outcomes(in_flight, tmp_path / "store")
    assert [len(outcomes[rank]) for rank in (0, 1, 3)] == [3, 1, 0], outcomes


def beside(_: Any, store: Path) -> None:
    rank = enter(store, "cpu:hocket,cuda:gloo")
    fail((1,))
    new = recover()
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x.tolist() == [3.0] * 3
    other = new._get_backend(torch.device("cuda"))
    assert isinstance(other, dist.ProcessGroupGloo)
    assert (other.rank(), other.size()) == ([0, 2, 3].index(rank), 3)
    y = torch.ones(2)
    other.allreduce([y]).wait()
    assert y.tolist() == [3.0] * 2
    dist.destroy_process_group()


def test_the_backend_beside_hocket_is_made_anew(own: Own, tmp_path: Path) -> None:
    outcomes = own().outcomes(beside, tmp_path / "store")
    assert [outcome for rank, outcome in enumerate(outcomes) if rank != 1] == [None] * 3


# ---- what may go wrong in it ----


def in_the_middle(_: Any, store: Path, victim: int, where: str) -> int:
    """The victim dies in recover(), behind the formation of the new group."""
    rank = enter(store)
    fail((3,))
    if rank == victim:
        setattr(recovery if where == "listen" else recovery.dist, where, lambda *_, **__: die())
    recover()
    if dist.get_world_size() == 3:  # it had said what it had to say
        fail(())
        recover()
    x = torch.ones(1)
    dist.all_reduce(x)
    part = dist.new_group([0, 1])
    dist.all_reduce(x, group=part)
    dist.destroy_process_group()
    return int(x.item())


@pytest.mark.parametrize(
    ("victim", "where"),
    [(0, "listen"), (0, "TCPStore"), (1, "TCPStore"), (0, "destroy_process_group"), (1, "destroy_process_group")],
)
def test_another_death_in_the_middle_of_it(own: Own, victim: int, where: str, tmp_path: Path) -> None:
    outcomes = own().outcomes(in_the_middle, tmp_path / "store", victim, where)
    assert [outcome for rank, outcome in enumerate(outcomes) if rank not in (victim, 3)] == [4, 4]


def wakes(_: Any, store: Path, signs: Signs) -> float | None:
    """Rank 1 is stopped in the middle of calls, and wakes when the others have gone on."""
    rank = enter(store)
    x = torch.ones(1000)
    dist.barrier()
    if rank == 1:
        signs.give("ready")
    raised(hocket.HocketError, lambda: [dist.all_reduce(x) for _ in iter(int, 1)])
    if rank == 1:
        with pytest.raises(hocket.HocketError, match=r"went on without rank 1|are no majority"):
            hocket.torch.recover(timeout=60)
        dist.destroy_process_group()
        return None
    recover()
    if dist.get_rank() == 0:
        signs.give("recovered")
    signs.wait("awake")
    y = torch.ones(1)
    dist.all_reduce(y)
    dist.destroy_process_group()
    return y.item()


def test_who_wakes_up_late_stays_out(own: Own, tmp_path: Path) -> None:
    world, signs = own(), Signs(str(tmp_path))
    world.start(wakes, tmp_path / "store", signs)
    signs.wait("ready", 60)
    world.signal(1, signal.SIGSTOP)
    signs.wait("recovered", 60)
    world.signal(1, signal.SIGCONT)
    signs.give("awake")
    assert world.finish() == [3.0, None, 3.0, 3.0]


def cannot_hold(_: Any, store: Path) -> str | float:
    """Rank 0 cannot hold the store, and says why; the others go on without it."""
    rank = enter(store)
    fail((3,))
    if rank == 0:
        recovery.listen = lambda address: socket.socket(fileno=os.open("/no such file", os.O_RDONLY))
        error = raised(OSError, recover)
        assert not dist.group.WORLD.history
        dist.destroy_process_group()
        return str(error)
    recover()
    x = torch.ones(1)
    dist.all_reduce(x)
    dist.destroy_process_group()
    return x.item()


def test_who_cannot_hold_the_store_leaves(own: Own, tmp_path: Path) -> None:
    why, *others, _ = own().outcomes(cannot_hold, tmp_path / "store")
    assert "No such file" in why
    assert others == [2.0, 2.0]


def nothing_to_recover_from(_: Any, store: Path) -> None:
    rank = enter(store)
    with pytest.raises(hocket.HocketError, match="nothing has ended this group"):
        recover()
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == SIZE
    gloo = dist.new_group(backend="gloo")
    dist.barrier(gloo)  # gloo on another rank fails where this one leaves before it has connected to all
    dist.destroy_process_group()
    del gloo
    with pytest.raises(ValueError, match="has not been initialized"):
        recover()
    let_gloo_reach_all()
    dist.init_process_group("gloo", store=dist.FileStore(f"{store}.gloo", SIZE), rank=rank, world_size=SIZE)
    with pytest.raises(TypeError, match=r"a default group of hocket's, and this one is of gloo"):
        recover()
    dist.barrier()
    dist.destroy_process_group()


def test_a_good_group_and_one_of_others_are_left_as_they_are(own: Own, tmp_path: Path) -> None:
    own().run(nothing_to_recover_from, tmp_path / "store")


def often(_: Any, store: Path) -> list[tuple[int, int, int]]:
    """Mismatches in the middle of a backward, in which nobody is lost. What the process holds after some."""
    rank = enter(store)
    after, wrappers, model = [], [], training.model()
    layer = model[0]
    assert isinstance(layer, nn.Linear)
    for turn in range(ROUNDS):
        network = DistributedDataParallel(model)
        wrappers.append(weakref.ref(network))
        last(dist.group.WORLD._group, turn % SIZE)  # whose error could end what others are in
        odd = torch.ones(3 if rank == turn % SIZE else 4)
        hook = layer.weight.register_post_accumulate_grad_hook(lambda _, odd=odd: dist.all_reduce(odd))
        try:
            training.loss(network(batch(turn))).backward()
        except hocket.MismatchError:
            recover()
        hook.remove()
        del network
        if turn in (ROUNDS // 2, ROUNDS - 1):
            after.append(held())
    assert [wrapper() for wrapper in wrappers] == [None] * ROUNDS
    assert len(dist.group.WORLD.history) == ROUNDS
    dist.destroy_process_group()
    return after


def test_again_and_again(own: Own, tmp_path: Path) -> None:
    for early, late in own().run(often, tmp_path / "store"):
        assert max(late) <= max(early) + 2, (early, late)


def destroyed(_: Any, store: Path) -> None:
    """Also without recover(), what an error held is let go of with the group."""
    rank = enter(store)
    network = DistributedDataParallel(training.model())
    if rank == 0:
        training.train(network, steps=1)  # when it is through, all others have come to it, and have made theirs
        dist.group.WORLD.abort()
    else:
        with pytest.raises(hocket.PeerLost):
            training.train(network)
    dist.destroy_process_group()
    wrapper = weakref.ref(network)
    del network
    gc.collect()
    assert wrapper() is None


def test_a_group_that_is_gone_holds_nothing(own: Own, tmp_path: Path) -> None:
    own().run(destroyed, tmp_path / "store")
