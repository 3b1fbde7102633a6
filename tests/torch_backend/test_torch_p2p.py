"""Messages from one rank to another."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import SIZES, Ranks

import hocket

pytestmark = pytest.mark.parametrize("size", SIZES)


def message(source: int, tag: int, *shape: int) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape) + 1000 * source + tag


def ring() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % size, (rank - 1) % size
    for shape in [(), (0,), (3, 4), (300_000,)]:
        got = torch.empty(shape)
        work = dist.isend(message(rank, 7, *shape), after, tag=7)
        assert dist.recv(got, before, tag=7) == before
        work.wait()
        assert torch.equal(got, message(before, 7, *shape))
    for dtype in (torch.bool, torch.bfloat16, torch.complex64, torch.float8_e4m3fn):
        got = torch.empty(3, dtype=dtype)
        works = [dist.irecv(got, before), dist.isend(torch.ones(3).to(dtype), after)]
        for work in works:
            work.wait()
        assert torch.equal(
            got.float() if not dtype.is_complex else got,
            torch.ones(3).to(got.float().dtype if not dtype.is_complex else dtype),
        )
    columns = torch.zeros(4, 6)
    work = dist.isend(message(rank, 0, 6, 4).t()[:, ::2], after)
    dist.recv(columns[:, ::2], before)
    work.wait()
    assert torch.equal(columns[:, ::2], message(before, 0, 6, 4).t()[:, ::2])
    assert columns[:, 1::2].eq(0).all()


def tags() -> None:
    """Messages are received by tag, whatever the order in which they were sent; of one tag in that order."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        for peer in range(1, size):
            works = [dist.isend(message(0, tag, 5), peer, tag=tag) for tag in (3, 1, 2, 1)]
            for work in works:
                work.wait()
    else:
        for tag in (1, 2, 1, 3):
            got = torch.empty(5)
            dist.recv(got, 0, tag=tag)
            assert torch.equal(got, message(0, tag, 5))


def any_source() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        seen = set()
        for i in range(size - 1):
            got = torch.empty(2)
            if i % 2 == 0:
                source = dist.recv(got)
            else:
                work = dist.irecv(got)
                work.wait()
                source = work._source_rank()
            assert torch.equal(got, message(source, 0, 2))
            seen.add(source)
        assert seen == set(range(1, size))
    else:
        dist.send(message(rank, 0, 2), 0)


def batch() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % size, (rank - 1) % size
    big = 400_000  # more than any buffer holds: sending first, everywhere, must not deadlock
    for order in (1, -1):
        got = [torch.empty(big), torch.empty(big)]
        ops = [
            dist.P2POp(dist.isend, message(rank, 1, big), after),
            dist.P2POp(dist.isend, message(rank, 2, big), before, tag=5),
            dist.P2POp(dist.irecv, got[0], before),
            dist.P2POp(dist.irecv, got[1], after, tag=5),
        ]
        for work in dist.batch_isend_irecv(ops[::order]):
            work.wait()
        assert torch.equal(got[0], message(before, 1, big))
        assert torch.equal(got[1], message(after, 2, big))


def futures() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    got = torch.empty(4)
    receive = dist.irecv(got, (rank - 1) % size).get_future().then(lambda f: f.value()[0].sum().item())
    dist.isend(message(rank, 0, 4), (rank + 1) % size).get_future().wait()
    assert receive.wait() == message((rank - 1) % size, 0, 4).sum().item()
    work = dist.irecv(got, (rank - 1) % size)
    assert not work.is_completed()
    dist.barrier()
    dist.isend(message(rank, 9, 4), (rank + 1) % size).wait()
    while not work.is_completed():
        pass
    assert torch.equal(got, message((rank - 1) % size, 9, 4))


def beside_collectives() -> None:
    """A long message and collectives at the same time."""
    rank, size = dist.get_rank(), dist.get_world_size()
    got = torch.empty(500_000)
    works = [dist.irecv(got, (rank - 1) % size), dist.isend(message(rank, 0, 500_000), (rank + 1) % size)]
    for _ in range(5):
        tensor = torch.ones(10_000)
        dist.all_reduce(tensor)
        assert tensor[0] == size
    for work in works:
        work.wait()
    assert torch.equal(got, message((rank - 1) % size, 0, 500_000))


@pytest.mark.feature("Messages", "send, recv, isend, irecv with tags, recv from any rank, batch_isend_irecv")
@pytest.mark.parametrize(
    "function", [ring, tags, any_source, batch, futures, beside_collectives], ids=lambda f: f.__name__
)
def test_messages(ranks: Ranks, size: int, function: Any) -> None:
    ranks(size).run(function)


def other_shape() -> None:
    if dist.get_rank() == 0:
        dist.send(torch.ones(4), 1)
    elif dist.get_rank() == 1:
        with pytest.raises(hocket.MismatchError, match=r"float32\[4\]"):
            dist.recv(torch.ones(5), 0)


@pytest.mark.feature("Errors", "a message that is not what the receiver expects")
def test_a_message_of_another_shape_is_an_error(ranks: Ranks, size: int) -> None:
    ranks(size).run(other_shape)
