"""Sharded training, DTensor, checkpoints, pipelines and compiled collectives: each runs something small for real."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import SIZES, Ranks
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from training import alone, as_gloo, batch, close, loss, model, train

pytestmark = [
    pytest.mark.parametrize("size", SIZES),
    pytest.mark.filterwarnings("ignore"),
]


def whole(tensors: list[Tensor]) -> list[Tensor]:
    """DTensors put together."""
    return [tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor for tensor in tensors]


def fsdp2(clip: bool) -> list[Tensor]:
    from torch.distributed.fsdp import fully_shard

    network = model()
    for layer in network:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5, momentum=0.9)
    return whole(train(network, optimizer, clip=1.0 if clip else None))


@pytest.mark.feature("Training", "FSDP2 (fully_shard), clip_grad_norm_")
def test_fsdp2(ranks: Ranks, size: int) -> None:
    for learnt in ranks(size).run(fsdp2, False):
        close(learnt, alone(size))
    as_gloo(ranks, size, fsdp2, True)


def mixed() -> list[Tensor]:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    network = model()
    fully_shard(network, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    return whole(train(network))


@pytest.mark.feature("Training", "FSDP2 in bfloat16")
def test_fsdp2_in_bfloat16(ranks: Ranks, size: int) -> None:
    as_gloo(ranks, size, mixed)


def hsdp() -> list[Tensor]:
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("replicate", "shard"))
    network = model()
    fully_shard(network, mesh=mesh)
    return whole(train(network, clip=1.0))


@pytest.mark.feature("Training", "HSDP: FSDP2 over a mesh of two dimensions")
def test_hsdp(ranks: Ranks, size: int) -> None:
    if size == 4:
        as_gloo(ranks, size, hsdp)


def fsdp1(strategy: str) -> list[Tensor]:
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    network = FullyShardedDataParallel(
        model(),
        device_id=torch.device("cpu"),
        sharding_strategy=ShardingStrategy[strategy],
        use_orig_params=True,
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5, momentum=0.9)
    train(network, optimizer)
    with FullyShardedDataParallel.summon_full_params(network):
        return [parameter.detach().clone() for parameter in network.parameters()]


@pytest.mark.feature("Training", "FSDP1: FULL_SHARD, SHARD_GRAD_OP, NO_SHARD")
@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"])
def test_fsdp1(ranks: Ranks, size: int, strategy: str) -> None:
    for learnt in ranks(size).run(fsdp1, strategy):
        close(learnt, alone(size))


def dtensors() -> None:
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    size, rank = dist.get_world_size(), dist.get_rank()
    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(0)
    matrix, other = torch.randn(7, 6), torch.randn(6, 5)  # that do not divide evenly
    for placement in (Shard(0), Shard(1), Replicate()):
        tensor = distribute_tensor(matrix, mesh, [placement])
        close(tensor.full_tensor(), matrix)
        close((tensor @ distribute_tensor(other, mesh, [Replicate()])).full_tensor(), matrix @ other)
        close(tensor.sum().full_tensor(), matrix.sum())
        close(tensor.redistribute(mesh, [Replicate()]).to_local(), matrix)
    partial = DTensor.from_local(matrix * (rank + 1), mesh, [Partial()])
    close(partial.full_tensor(), matrix * (size * (size + 1) / 2))
    close(partial.redistribute(mesh, [Shard(0)]).full_tensor(), matrix * (size * (size + 1) / 2))


@pytest.mark.feature("Sharding", "DTensor: distribute, compute, redistribute")
def test_dtensor(ranks: Ranks, size: int) -> None:
    ranks(size).run(dtensors)


def tensor_parallel() -> list[Tensor]:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 4))
    parallelize_module(network, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5, foreach=False)
    for step in range(4):
        optimizer.zero_grad()
        loss(network(batch(step, 0))).backward()
        optimizer.step()
    return whole([parameter.detach() for parameter in network.parameters()])


@pytest.mark.feature("Sharding", "tensor parallel: column-wise and row-wise layers")
def test_tensor_parallel(ranks: Ranks, size: int) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 4))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    for step in range(4):
        optimizer.zero_grad()
        loss(network(batch(step, 0))).backward()
        optimizer.step()
    for learnt in ranks(size).run(tensor_parallel):
        close(learnt, [parameter.detach() for parameter in network.parameters()])


def functional() -> None:
    import torch.distributed._functional_collectives as fc

    size, rank, group = dist.get_world_size(), dist.get_rank(), dist.group.WORLD
    mine = torch.full((size, 2), float(rank + 1))
    total = size * (size + 1) / 2
    ranks = torch.arange(1.0, size + 1)
    close(fc.all_reduce(mine, "sum", group) + 0, torch.full((size, 2), total))
    close(fc.all_reduce(mine, "avg", group) + 0, torch.full((size, 2), total / size))
    close(fc.all_gather_tensor(mine, 0, group) + 0, ranks.repeat_interleave(2 * size).view(-1, 2))
    close(fc.all_gather_tensor(mine, 1, group) + 0, ranks.repeat_interleave(2).repeat(size, 1))
    close(fc.reduce_scatter_tensor(mine, "sum", 0, group) + 0, torch.full((1, 2), total))
    close(fc.broadcast(mine, 1, group) + 0, torch.full((size, 2), 2.0))
    close(fc.all_to_all_single(mine, None, None, group) + 0, ranks.repeat_interleave(2).view(-1, 2))
    several = fc.all_reduce_coalesced([mine, mine[:1]], "sum", group)
    close([t + 0 for t in several], [torch.full((size, 2), total), torch.full((1, 2), total)])
    close(fc.all_gather_into_tensor_coalesced([mine[:1]], group)[0] + 0, ranks.repeat_interleave(2).view(-1, 2))
    close(fc.reduce_scatter_tensor_coalesced([mine], "sum", [0], group)[0] + 0, torch.full((1, 2), total))
    functional = torch.ops._c10d_functional
    for name in (group.group_name, dist.new_group(backend="gloo").group_name):  # of other groups torch's own
        out = torch.empty(2 * size * size)
        given = functional.all_gather_into_tensor_out(mine.view(-1), size, name, out=out)
        gc.collect()  # the call's Work, which nobody in Python holds
        functional.wait_tensor(given)
        close(out, ranks.repeat_interleave(2 * size))
        out = torch.empty(2)
        functional.wait_tensor(
            functional.reduce_scatter_tensor_out(mine.view(-1) * (1 + rank), "max", size, name, out=out)
        )
        close(out, torch.full((2,), float(size * size)))
    leaf = mine.clone().requires_grad_()
    (fc.all_gather_tensor_autograd(leaf, 0, group) * 3).sum().backward()
    close(leaf.grad, torch.full((size, 2), 3.0 * size))
    leaf = mine.clone().requires_grad_()
    fc.reduce_scatter_tensor_autograd(leaf, "sum", 0, group).sum().backward()
    close(leaf.grad, torch.ones(size, 2))
    leaf = mine.clone().requires_grad_()
    fc.all_to_all_single_autograd(leaf, [1] * size, [1] * size, group).sum().backward()
    close(leaf.grad, torch.ones(size, 2))


@pytest.mark.feature("Sharding", "functional collectives, their coalesced, autograd and _out forms")
def test_functional(ranks: Ranks, size: int) -> None:
    ranks(size).run(functional)


def differentiable() -> None:
    from torch.distributed.nn import functional as nn_functional

    size, rank, world = dist.get_world_size(), dist.get_rank(), dist.group.WORLD
    leaf = torch.full((2,), float(rank + 1), requires_grad=True)
    nn_functional.all_reduce(leaf, group=world).sum().backward()
    close(leaf.grad, torch.full((2,), float(size)))
    leaf = torch.full((2,), float(rank + 1), requires_grad=True)
    torch.stack(nn_functional.all_gather(leaf, group=world)).sum().backward()
    close(leaf.grad, torch.full((2,), float(size)))
    leaf = torch.full((2,), float(rank + 1), requires_grad=True)
    nn_functional.broadcast(leaf, 0, group=world).sum().backward()
    close(leaf.grad, torch.full((2,), float(size) if rank == 0 else 0.0))
    leaf = torch.ones(size, 2, requires_grad=True)
    got = nn_functional.all_to_all_single(torch.empty(size, 2), leaf, group=world)
    (got * (rank + 1)).sum().backward()
    close(leaf.grad, torch.arange(1.0, size + 1).repeat_interleave(2).view(size, 2))


@pytest.mark.feature("Sharding", "torch.distributed.nn: differentiable collectives")
def test_differentiable(ranks: Ranks, size: int) -> None:
    ranks(size).run(differentiable)


def checkpoints(folder: str) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    def make() -> tuple[nn.Module, torch.optim.Optimizer]:
        network = model()
        fully_shard(network)
        return network, torch.optim.Adam(network.parameters(), lr=0.01)

    for kind in ("sync", "async"):
        network, optimizer = make()
        learnt = whole(train(network, optimizer))
        weights, state = get_state_dict(network, optimizer)
        if kind == "sync":
            dcp.save({"model": weights, "optim": state}, checkpoint_id=f"{folder}/{kind}")
        else:
            own = dist.new_group()  # a thread saves, beside the calls of training
            where = f"{folder}/{kind}"
            saved = dcp.async_save({"model": weights, "optim": state}, checkpoint_id=where, process_group=own)
            dist.all_reduce(torch.ones(100))  # training goes on meanwhile
            saved.result()
        network, optimizer = make()
        weights, state = get_state_dict(network, optimizer)
        dcp.load({"model": weights, "optim": state}, checkpoint_id=f"{folder}/{kind}")
        set_state_dict(network, optimizer, model_state_dict=weights, optim_state_dict=state)
        close(whole([parameter.detach() for parameter in network.parameters()]), learnt)
        dist.barrier()


@pytest.mark.feature("Checkpoints", "distributed checkpoint: save, async_save, load")
def test_checkpoints(ranks: Ranks, size: int, tmp_path: Path) -> None:
    ranks(size).run(checkpoints, str(tmp_path))


def pipeline(kind: str) -> tuple[list[float], list[Tensor]]:
    from torch.distributed import pipelining

    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(size)]
    stage = pipelining.PipelineStage(layers[rank], rank, size, torch.device("cpu"))
    schedule = getattr(pipelining, kind)(stage, n_microbatches=4, loss_fn=lambda output, target: loss(output - target))
    optimizer = torch.optim.SGD(layers[rank].parameters(), lr=0.1)
    found: list[float] = []
    for step in range(3):
        optimizer.zero_grad()
        torch.manual_seed(step)
        data, target = torch.randn(8, 8), torch.randn(8, 8)
        losses: list[Tensor] = []
        if rank == 0:
            schedule.step(data)
        elif rank == size - 1:
            schedule.step(target=target, losses=losses)
            found += [value.item() for value in losses]
        else:
            schedule.step()
        optimizer.step()
    return found, [parameter.detach() for parameter in layers[rank].parameters()]


@pytest.mark.feature("Sharding", "pipeline parallelism: GPipe and 1F1B")
@pytest.mark.parametrize("kind", ["ScheduleGPipe", "Schedule1F1B"])
def test_pipelines(ranks: Ranks, size: int, kind: str) -> None:
    as_gloo(ranks, size, pipeline, kind)


def compiled(backend: str) -> None:
    import torch.distributed._functional_collectives as fc

    torch._dynamo.reset()
    size = dist.get_world_size()

    @torch.compile(fullgraph=True, backend=backend)
    def functional(x: Tensor) -> Tensor:
        return fc.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    @torch.compile(fullgraph=True, backend=backend)
    def in_place(x: Tensor) -> Tensor:
        y = x * 2
        dist.all_reduce(y)
        return y + 1

    @torch.compile(fullgraph=True, backend=backend)
    def gathered(x: Tensor) -> Tensor:
        output = torch.empty(size * 4)
        dist.all_gather_into_tensor(output, x)
        return output * 2

    for _ in range(2):
        close(functional(torch.ones(4)), torch.full((4,), 2.0 * size + 1))
        close(in_place(torch.ones(4)), torch.full((4,), 2.0 * size + 1))
        close(gathered(torch.ones(4)), torch.full((4 * size,), 2.0))


@pytest.mark.feature("Compiling", "torch.compile(fullgraph=True) of collectives")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(ranks: Ranks, size: int, backend: str) -> None:
    ranks(size).run(compiled, backend)


def compiled_ddp() -> list[Tensor]:
    torch._dynamo.reset()
    network: Any = torch.compile(nn.parallel.DistributedDataParallel(model()), backend="aot_eager")
    return train(network)


@pytest.mark.feature("Compiling", "torch.compile of a DDP model")
def test_compiled_ddp(ranks: Ranks, size: int) -> None:
    for learnt in ranks(size).run(compiled_ddp):
        close(learnt, alone(size))
