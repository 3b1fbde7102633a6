"""DistributedDataParallel and what belongs to it: each trains, and arrives where gloo or a single process arrives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import SIZES, Ranks
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP
from training import STEPS, alone, as_gloo, batch, close, loss, model, train

pytestmark = pytest.mark.parametrize("size", SIZES)


def ddp(options: dict[str, Any]) -> list[Tensor]:
    return train(DDP(model(), **options))


@pytest.mark.feature("Training", "DistributedDataParallel: buckets, gradient_as_bucket_view, static_graph")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bucket_cap_mb": 0.0001},
        {"gradient_as_bucket_view": True},
        {"static_graph": True},
        {"find_unused_parameters": True},
    ],
    ids=str,
)
def test_ddp_learns_what_one_process_learns(ranks: Ranks, size: int, options: dict[str, Any]) -> None:
    for learnt in ranks(size).run(ddp, options):
        close(learnt, alone(size))


class Branches(nn.Module):
    """Some parameters are used by some ranks only, some by none."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.left, self.right, self.idle = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        side = self.left if dist.get_rank() % 2 == 0 else self.right
        return side(self.trunk(x))


def unused() -> list[Tensor]:
    torch.manual_seed(0)
    return train(DDP(Branches(), find_unused_parameters=True))


@pytest.mark.feature("Training", "DDP with find_unused_parameters")
def test_unused_parameters(ranks: Ranks, size: int) -> None:
    as_gloo(ranks, size, unused)


def no_sync() -> list[Tensor]:
    network = DDP(model())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        with network.no_sync():
            loss(network(batch(step))).backward()
        loss(network(batch(step + 50))).backward()
        optimizer.step()
    return [parameter.detach() for parameter in network.parameters()]


@pytest.mark.feature("Training", "DDP.no_sync")
def test_no_sync(ranks: Ranks, size: int) -> None:
    as_gloo(ranks, size, no_sync)


def join() -> list[Tensor]:
    """Every rank has another number of batches."""
    from torch.distributed.algorithms.join import Join
    from torch.distributed.optim import ZeroRedundancyOptimizer

    network = DDP(model())
    optimizer = ZeroRedundancyOptimizer(network.parameters(), torch.optim.SGD, lr=0.1)
    with Join([network, optimizer]):
        for step in range(2 + dist.get_rank()):
            optimizer.zero_grad()
            loss(network(batch(step))).backward()
            optimizer.step()
    return [parameter.detach() for parameter in network.parameters()]


@pytest.mark.feature("Training", "uneven inputs with Join")
def test_join(ranks: Ranks, size: int) -> None:
    as_gloo(ranks, size, join)


def buffers() -> list[Tensor]:
    torch.manual_seed(dist.get_rank())  # rank 0's parameters and statistics are everyone's
    network = DDP(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)))
    train(network)
    network(batch(99))
    return list(network.state_dict().values())


@pytest.mark.feature("Training", "DDP's broadcast of parameters and buffers")
def test_buffers(ranks: Ranks, size: int) -> None:
    results = ranks(size).run(buffers)
    gloo = ranks(size, "gloo").run(buffers)
    for ours, theirs in zip(results, gloo, strict=True):
        close(ours, theirs)


def hooked(name: str, bucket: float = 25) -> list[Tensor]:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook

    network = DDP(model(), bucket_cap_mb=bucket)
    if name == "allreduce":
        network.register_comm_hook(None, default_hooks.allreduce_hook)
    elif name == "fp16":
        network.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif name == "fp16 around allreduce":
        network.register_comm_hook(None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook))
    elif name == "builtin":
        network._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    elif name == "PowerSGD":
        state = powersgd.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=1)
        network.register_comm_hook(state, powersgd.powerSGD_hook)
    elif name == "own":

        def hook(state, bucket):  # torch reads annotations, and does not take them as text
            work = dist.all_reduce(bucket.buffer(), async_op=True)
            return work.get_future().then(lambda future: future.value()[0] / dist.get_world_size())

        network.register_comm_hook(None, hook)
    else:
        alone, _ = dist.new_subgroups(1)
        network.register_comm_hook(PostLocalSGDState(None, alone, start_localSGD_iter=2), post_localSGD_hook)
    return train(network)


HOOKS = ["allreduce", "fp16", "fp16 around allreduce", "builtin", "own", "PowerSGD", "post-local SGD"]


@pytest.mark.feature("Training", "DDP communication hooks: built-in, fp16, PowerSGD, post-local SGD, one's own")
def test_hooks(ranks: Ranks, size: int) -> None:
    got = [ranks(size).run(hooked, name) for name in HOOKS]
    gloo = [ranks(size, "gloo").run(hooked, name) for name in HOOKS]
    for name, ours, theirs in zip(HOOKS, got, gloo, strict=True):
        few = 1e-2 if "fp16" in name else 1e-4
        torch.testing.assert_close(ours, theirs, rtol=few, atol=few, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.feature("Training", "PowerSGD over several buckets, which gloo mixes up")
def test_hooks_over_several_buckets(ranks: Ranks, size: int) -> None:
    for name in HOOKS[:-1]:
        results = ranks(size).run(hooked, name, 0.0001)
        for learnt in results:
            torch.testing.assert_close(learnt, results[0], rtol=0, atol=0)


def zero() -> list[Tensor]:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    network = DDP(model())
    optimizer = ZeroRedundancyOptimizer(network.parameters(), torch.optim.SGD, lr=0.5, momentum=0.9)
    learnt = train(network, optimizer)
    optimizer.consolidate_state_dict(to=0)
    if dist.get_rank() == 0:
        assert len(optimizer.state_dict()["state"]) == len(learnt)
    return learnt


@pytest.mark.feature("Training", "ZeroRedundancyOptimizer, its state consolidated")
def test_zero(ranks: Ranks, size: int) -> None:
    for learnt in ranks(size).run(zero):
        close(learnt, alone(size))


def averaging() -> list[Tensor]:
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

    network = model()
    averager = PeriodicModelAverager(period=2, warmup_steps=1)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for step in range(5):
        optimizer.zero_grad()
        loss(network(batch(step))).backward()
        optimizer.step()
        averager.average_parameters(network.parameters())
    return [parameter.detach() for parameter in network.parameters()]


@pytest.mark.feature("Training", "periodic model averaging")
def test_averaging(ranks: Ranks, size: int) -> None:
    as_gloo(ranks, size, averaging)


def different() -> None:
    DDP(nn.Linear(8, 8 if dist.get_rank() == 0 else 9))


@pytest.mark.feature("Errors", "DDP over models that differ between ranks")
def test_models_that_differ(ranks: Ranks, size: int) -> None:
    words = [str(outcome) for outcome in ranks(size).outcomes(different)]
    assert "appears not to match sizes of the same param" in words[1]
    assert "appears not to match sizes of the same param" in words[0]  # by way of rank 1's last words


def breaks_down() -> str:
    """One rank's loop raises; the others are in the middle of a backward, or of the one before."""
    network = DDP(model())
    try:
        train(network, steps=2)
        if dist.get_rank() == 1:
            raise ZeroDivisionError("the loss is nothing")
        train(network, steps=2)
    except RuntimeError as error:
        return str(error)
    return "nothing"


@pytest.mark.feature("Errors", "an exception in one rank's loop ends DDP on the others, and is named there")
def test_an_exception_in_one_ranks_loop(ranks: Ranks, size: int) -> None:
    outcomes = ranks(size).outcomes(breaks_down)
    assert isinstance(outcomes[1], ZeroDivisionError)
    for words in (outcome for rank, outcome in enumerate(outcomes) if rank != 1):
        assert "rank 1" in words
        assert "ZeroDivisionError: the loss is nothing" in words
