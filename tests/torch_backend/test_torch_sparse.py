"""Sums of sparse tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import SIZES, Ranks

import hocket

SHAPE = (5, 4, 3)


def given(rank: int, dims: int, dtype: torch.dtype) -> torch.Tensor:
    """Rank r has 3r values in places that repeat, and that other ranks have, too; the last of its dimensions dense."""
    many = 3 * rank
    generator = torch.Generator().manual_seed(rank)
    places = torch.stack([torch.randint(length, (many,), generator=generator) for length in SHAPE[:dims]])
    values = torch.randint(1, 9, (many, *SHAPE[dims:]), generator=generator).to(dtype)
    return torch.sparse_coo_tensor(places, values, SHAPE)


def sums() -> list[bytes]:
    rank, size, bits = dist.get_rank(), dist.get_world_size(), []
    for dims in (1, 2, 3):
        for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.complex64):
            expected = sum(given(r, dims, dtype).to_dense() for r in range(size))
            for later in (False, True):
                tensor = given(rank, dims, dtype)
                work = dist.all_reduce(tensor, async_op=later)
                if later:
                    work.wait()
                assert tensor.is_coalesced()
                assert tensor.sparse_dim() == dims
                assert torch.equal(tensor.to_dense(), expected)
    tenths = given(rank, 2, torch.float32) / 10  # whose sums are rounded
    dist.all_reduce(tenths)
    bits.append(tenths.values().numpy().tobytes())
    empty = torch.sparse_coo_tensor(size=(4, 0, 2))
    dist.all_reduce(empty)
    assert empty.shape == (4, 0, 2)
    assert empty._nnz() == 0
    return bits


@pytest.mark.feature("Collectives", "all_reduce of sparse_coo tensors: SUM")
@pytest.mark.parametrize("size", SIZES)
def test_sparse(ranks: Ranks, size: int) -> None:
    first, *others = ranks(size).run(sums)
    assert all(bits == first for bits in others)


def differing() -> None:
    rank = dist.get_rank()
    with pytest.raises(
        hocket.MismatchError, match=r"sparse tensors of different shapes: \[3, 4\] \(2 sparse\) on rank 0"
    ):
        dist.all_reduce(torch.eye(4)[: 3 if rank == 0 else 4].to_sparse())
    tensor = torch.eye(2).to_sparse()  # nothing was changed, and the group is as it was
    dist.all_reduce(tensor)
    assert torch.equal(tensor.to_dense(), dist.get_world_size() * torch.eye(2))


@pytest.mark.parametrize("size", SIZES)
def test_shapes_that_differ(ranks: Ranks, size: int) -> None:
    ranks(size).run(differing)


def embeddings() -> list[torch.Tensor]:
    rank, size = dist.get_rank(), dist.get_world_size()

    def model() -> Any:
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.EmbeddingBag(20, 4, sparse=True, mode="sum"), torch.nn.Linear(4, 1))

    words = torch.arange(24).view(12, 2) * 7 % 20
    alone, ours = model(), torch.nn.parallel.DistributedDataParallel(model())
    for network, mine in (alone, words), (ours, words[rank * 12 // size : (rank + 1) * 12 // size]):
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            network(mine).square().mean().backward()
            optimizer.step()
    for mine, whole in zip(ours.module.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(mine, whole)
    return [parameter.detach() for parameter in ours.module.parameters()]


@pytest.mark.feature("Training", "DDP with sparse gradients")
@pytest.mark.parametrize("size", SIZES)
def test_embeddings(ranks: Ranks, size: int) -> None:
    first, *others = ranks(size).run(embeddings)
    assert all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))
