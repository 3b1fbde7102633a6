"""Every collective of torch.distributed against its definition, computed from all ranks' data in one process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import SIZES, Ranks
from torch import Tensor
from torch.distributed import ReduceOp

pytestmark = pytest.mark.parametrize("size", SIZES)

SHAPES = [(), (1,), (7,), (3, 5), (0,), (2, 0, 3), (1000,), (70000,)]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
DTYPES = [torch.bool, *INTEGERS, *FLOATS, *COMPLEX]


def data(rank: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """Small whole numbers that depend on rank and place; a few ranks' sum and product is exact in every dtype."""
    numbers = (torch.arange(torch.Size(shape).numel()) * 7 + rank * 3) % 5
    if dtype.is_complex:
        return torch.complex(numbers.double(), (numbers.double() + rank) % 3).to(dtype).reshape(shape)
    return (numbers % 2 if dtype == torch.bool else numbers).to(dtype).reshape(shape)


def everyone(*args: Any) -> list[Tensor]:
    return [data(rank, *args) for rank in range(dist.get_world_size())]


def same(got: Tensor, expected: Tensor, what: object = "") -> None:
    assert got.dtype == expected.dtype, (what, got.dtype, expected.dtype)
    assert torch.equal(got, expected), f"{what}: {got} is not {expected}"


def fold(op: str, tensors: list[Tensor]) -> Tensor:
    """The reduction, one tensor after the other."""
    if op in ("SUM", "AVG") and tensors[0].dtype == torch.bool:
        return torch.stack(tensors).any(0)
    functions = {
        "SUM": torch.add,
        "AVG": torch.add,
        "PRODUCT": torch.mul,
        "MIN": torch.minimum,
        "MAX": torch.maximum,
        "BAND": torch.bitwise_and,
        "BOR": torch.bitwise_or,
        "BXOR": torch.bitwise_xor,
    }
    wide = {torch.float16: torch.float32, torch.bfloat16: torch.float32}.get(tensors[0].dtype, tensors[0].dtype)
    value = tensors[0].to(wide)
    for tensor in tensors[1:]:
        value = functions[op](value, tensor.to(wide))
    if op == "AVG" and value.dtype.is_complex:
        value = torch.view_as_complex(torch.view_as_real(value) / len(tensors))
    elif op == "AVG":
        value = torch.div(value, len(tensors), rounding_mode=None if value.dtype.is_floating_point else "trunc")
    return value.to(tensors[0].dtype)


def makes_sense(op: str, dtype: torch.dtype) -> bool:
    if dtype.is_complex:
        return op in ("SUM", "AVG")
    if op in ("BAND", "BOR", "BXOR"):
        return not dtype.is_floating_point
    return not (op == "AVG" and dtype == torch.bool)


OPS = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]


def all_reduce() -> None:
    rank = dist.get_rank()
    for dtype in DTYPES:
        for op in (op for op in OPS if makes_sense(op, dtype)):
            for shape in SHAPES if op == "SUM" else [(13,)]:
                tensor = data(rank, shape, dtype)
                assert dist.all_reduce(tensor, op=getattr(ReduceOp, op)) is None
                same(tensor, fold(op, everyone(shape, dtype)), (op, dtype, shape))


@pytest.mark.feature("Collectives", "all_reduce: SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, of every dtype")
def test_all_reduce(ranks: Ranks, size: int) -> None:
    ranks(size).run(all_reduce)


def refusals() -> None:
    for op, dtype in [("BAND", torch.float32), ("AVG", torch.bool), ("BXOR", torch.bfloat16)]:
        with pytest.raises(TypeError, match="does not exist for"):
            dist.all_reduce(torch.ones(3).to(dtype), op=getattr(ReduceOp, op))
    with pytest.raises(TypeError, match=r"dense tensors, .*; this is torch\.sparse_csr: give tensor\.to_dense\(\)"):
        dist.all_reduce(torch.eye(3).to_sparse_csr())
    with pytest.raises(TypeError, match=r"sparse tensors are summed, and not reduced by max"):
        dist.all_reduce(torch.eye(3).to_sparse(), op=ReduceOp.MAX)
    with pytest.raises(TypeError, match=r"dense tensors, .*; this is torch\.sparse_coo: give tensor\.to_dense\(\)"):
        dist.broadcast(torch.eye(3).to_sparse(), 0)
    with pytest.raises(TypeError, match=r"on the CPU only.*meta"):
        dist.all_reduce(torch.ones(3, device="meta"))
    with pytest.raises(TypeError, match=r"does not reduce torch\.float8"):
        dist.all_reduce(torch.ones(3).to(torch.float8_e5m2))
    with pytest.raises(ValueError, match="must have"):
        dist.all_gather_into_tensor(torch.ones(3), torch.ones(3))
    tensor = torch.ones(1)
    dist.all_reduce(tensor)  # nothing was sent: the group is as it was
    same(tensor, torch.tensor([float(dist.get_world_size())]))


@pytest.mark.feature("Errors", "other layouts, other devices and senseless operators are refused in one sentence")
def test_what_makes_no_sense_is_refused_before_anything_is_sent(ranks: Ranks, size: int) -> None:
    ranks(size).run(refusals)


def premultiplied() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for factor in (0.5, torch.tensor([3.0])):
        tensor = data(rank, (9,))
        dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(factor))
        same(tensor, fold("SUM", [t * factor for t in everyone((9,))]))
        output = torch.empty(2)
        dist.reduce_scatter_tensor(output, data(rank, (2 * size,)), op=dist._make_nccl_premul_sum(factor))
        same(output, fold("SUM", [t * factor for t in everyone((2 * size,))]).view(size, 2)[rank])


@pytest.mark.feature("Collectives", "PREMUL_SUM by a number or a tensor")
def test_premultiplied_sum(ranks: Ranks, size: int) -> None:
    ranks(size).run(premultiplied)


def odd_layouts() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    everything = everyone((4, 6))
    total = fold("SUM", everything)
    for view in (
        lambda t: t.t(),
        lambda t: t[:, ::2],
        lambda t: t[1:, 3:],
        lambda t: t.view(2, 2, 6).permute(2, 0, 1),
        lambda t: t.view(1, 2, 2, 6).to(memory_format=torch.channels_last),
    ):
        whole = data(rank, (4, 6))
        dist.all_reduce(view(whole))
        part = view(whole) if view(whole).data_ptr() >= whole.data_ptr() else whole
        gathered = [torch.empty_like(view(whole)) for _ in range(size)]
        dist.all_gather(gathered, view(data(rank, (4, 6))))
        for got, of in zip(gathered, everything, strict=True):
            same(got, view(of))
        joined = torch.zeros(size, *view(whole).shape).transpose(0, -1)
        dist.all_gather_into_tensor(joined, view(data(rank, (4, 6))).transpose(0, -1))
        assert part is not None
        if view(whole)._base is not None:
            same(view(whole), view(total))
        sent = view(data(rank, (4, 6)))
        dist.broadcast(sent, size - 1)
        same(sent, view(everything[-1]))
    row = torch.tensor([float(rank + 1)]).expand(5)  # as an input, an expanded tensor is like any other
    gathered = [torch.empty(5) for _ in range(size)]
    dist.all_gather(gathered, row)
    same(torch.stack(gathered), torch.arange(1.0, size + 1).repeat_interleave(5).view(size, 5))
    one = torch.tensor(1.0).expand(1)
    dist.all_reduce(one)
    same(one, torch.tensor([float(size)]))


@pytest.mark.feature("Tensors", "non-contiguous, channels-last and expanded tensors")
def test_tensors_of_any_layout(ranks: Ranks, size: int) -> None:
    ranks(size).run(odd_layouts)


LAZY = {
    "conjugated": (torch.complex64, torch.conj),
    "negated": (torch.float32, torch._neg_view),
    "both": (torch.complex64, lambda tensor: torch._neg_view(tensor.conj())),
    "a negated part": (torch.complex64, lambda tensor: tensor.conj().imag),
}


def done(call: Any, *args: Any) -> bool:
    """False where torch itself refuses a conjugated tensor, on every rank: nothing was sent then."""
    try:
        call(*args)
    except RuntimeError as error:
        if "unresolved conjugated tensors" not in str(error):
            raise
        return False
    return True


def lazy_tensors() -> None:
    """Whose values lie nowhere in memory: as inputs, and as outputs."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for name, (dtype, view) in LAZY.items():

        def mine(view: Any = view, dtype: Any = dtype) -> Tensor:
            return view(data(rank, (size, 3), dtype))

        def empty(*shape: int, view: Any = view, dtype: Any = dtype) -> Tensor:
            made = view(torch.zeros(shape, dtype=dtype))
            assert made.is_conj() or made.is_neg()
            return made

        every = [view(each).resolve_conj().resolve_neg().clone() for each in everyone((size, 3), dtype)]
        total, joined = fold("SUM", every), torch.cat(every)
        column, before, after = torch.stack([each[rank] for each in every]), (rank - 1) % size, (rank + 1) % size
        cases: list[tuple[Any, list[Any], Tensor | list[Tensor], Tensor]] = [
            (dist.all_reduce, [x := mine()], x, total),
            (dist.broadcast, [x := mine(), size - 1], x, every[-1]),
            (dist.all_gather, [parts := [empty(size, 3) for _ in range(size)], mine()], parts, joined),
            (dist.all_gather_into_tensor, [x := empty(size * size, 3), mine()], x, joined),
            (dist.reduce_scatter_tensor, [x := empty(1, 3), mine()], x, total[rank : rank + 1]),
            (dist.reduce_scatter, [x := empty(1, 3), list(mine().split(1))], x, total[rank : rank + 1]),
            (dist.all_to_all_single, [x := empty(size, 3), mine()], x, column),
            (dist.all_to_all, [parts := [empty(1, 3) for _ in range(size)], list(mine().split(1))], parts, column),
            (dist.scatter, [x := empty(1, 3), list(mine().split(1)) if rank == 0 else None], x, every[0][rank][None]),
        ]
        refused = [call.__name__ for call, args, _, _ in cases if not done(call, *args)]
        assert bool(refused) == (name in ("conjugated", "both")), (name, refused)
        for call, _, out, expected in cases:
            if call.__name__ not in refused:
                same(torch.cat(out) if isinstance(out, list) else out, expected, (name, call.__name__))
        if size > 1 and not refused:
            sent, x = dist.isend(mine(), after), empty(size, 3)
            dist.recv(x, before)
            same(x, every[before])
            sent.wait()


@pytest.mark.feature("Tensors", "lazily conjugated and negated tensors")
def test_tensors_whose_values_lie_nowhere(ranks: Ranks, size: int) -> None:
    ranks(size).run(lazy_tensors)


def with_gradients() -> None:
    leaf = torch.nn.Parameter(torch.ones(3) * dist.get_rank())
    dist.broadcast(leaf, 0)
    same(leaf.detach(), torch.zeros(3))
    leaf = torch.ones(3, requires_grad=True)
    loss = (leaf * leaf).sum()
    dist.all_reduce(leaf)  # outside of autograd, as with every backend
    loss.backward()
    with torch.inference_mode():
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
        assert tensor[0] == dist.get_world_size()


@pytest.mark.feature("Tensors", "parameters and inference tensors")
def test_autograd_is_left_alone(ranks: Ranks, size: int) -> None:
    ranks(size).run(with_gradients)


def movement() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in [*DTYPES, torch.float8_e4m3fn]:
        plain = torch.float32 if dtype == torch.float8_e4m3fn else dtype
        for shape in [(3, 2), (), (0,), (40000,)]:
            mine, all_ = data(rank, shape, plain).to(dtype), [t.to(dtype) for t in everyone(shape, plain)]
            for root in range(size):
                tensor = mine.clone()
                dist.broadcast(tensor, root)
                same(bits(tensor), bits(all_[root]), ("broadcast", dtype, shape))
                parts = [torch.empty_like(mine) for _ in range(size)] if rank == root else None
                dist.gather(mine, parts, dst=root)
                for got, of in zip(parts or [], all_, strict=False):
                    same(bits(got), bits(of), "gather")
                given = [data(root * 10 + r, shape, plain).to(dtype) for r in range(size)]
                output = torch.empty_like(mine)
                dist.scatter(output, given if rank == root else None, src=root)
                same(bits(output), bits(given[rank]), "scatter")
            parts = [torch.empty_like(mine) for _ in range(size)]
            dist.all_gather(parts, mine)
            same(bits(torch.stack(parts)), bits(torch.stack(all_)), "all_gather")


def bits(tensor: Tensor) -> Tensor:
    return tensor.view(torch.uint8) if tensor.dtype == torch.float8_e4m3fn else tensor


@pytest.mark.feature("Collectives", "broadcast, gather, scatter, all_gather from and to every root, of every dtype")
def test_movement(ranks: Ranks, size: int) -> None:
    ranks(size).run(movement)


def single_tensors() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in DTYPES:
        all_ = everyone((3, 2), dtype)
        for shape in [(3 * size, 2), (size, 3, 2), (6 * size,)]:  # joined, stacked, flat
            output = torch.empty(shape, dtype=dtype)
            dist.all_gather_into_tensor(output, data(rank, (3, 2), dtype))
            same(output, torch.cat(all_).reshape(shape), "all_gather_into_tensor")
            inputs = everyone(shape, dtype)
            for op in (op for op in ("SUM", "AVG", "MAX") if makes_sense(op, dtype)):
                output = torch.empty(3, 2, dtype=dtype)
                dist.reduce_scatter_tensor(output, inputs[rank], op=getattr(ReduceOp, op))
                same(output, fold(op, inputs).reshape(size, 3, 2)[rank], "reduce_scatter_tensor")


@pytest.mark.feature("Collectives", "all_gather_into_tensor and reduce_scatter_tensor, joined and stacked")
def test_single_tensors(ranks: Ranks, size: int) -> None:
    ranks(size).run(single_tensors)


def reduces() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for op in OPS:
        dtype = torch.int32
        for root in range(size):
            tensor = data(rank, (11,), dtype)
            dist.reduce(tensor, root, op=getattr(ReduceOp, op))
            if rank == root:
                same(tensor, fold(op, everyone((11,), dtype)), op)
        inputs = [[data(r * 10 + i, (4,), dtype) for i in range(size)] for r in range(size)]
        output = torch.empty(4, dtype=dtype)
        dist.reduce_scatter(output, inputs[rank], op=getattr(ReduceOp, op))
        same(output, fold(op, [given[rank] for given in inputs]), op)


@pytest.mark.feature("Collectives", "reduce to every root, reduce_scatter of lists")
def test_reduce_and_reduce_scatter(ranks: Ranks, size: int) -> None:
    ranks(size).run(reduces)


def uneven_lists() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [torch.empty(r + 1, 2) for r in range(size)]
    dist.all_gather(parts, data(rank, (rank + 1, 2)))
    for r, part in enumerate(parts):
        same(part, data(r, (r + 1, 2)), "all_gather")
    inputs = [[data(r * 10 + i, (i,)) for i in range(size)] for r in range(size)]
    output = torch.empty(rank)
    dist.reduce_scatter(output, inputs[rank])
    same(output, fold("SUM", [given[rank] for given in inputs]), "reduce_scatter")
    given = [data(r, (2 * r,)) for r in range(size)]
    output = torch.empty(2 * rank)
    dist.scatter(output, given if rank == 0 else None, src=0)
    same(output, given[rank], "scatter")


@pytest.mark.feature("Collectives", "all_gather, reduce_scatter and scatter of lists of uneven tensors")
def test_uneven_lists(ranks: Ranks, size: int) -> None:
    ranks(size).run(uneven_lists)


def all_to_all() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()

    def part(sender: int, receiver: int, rows: int, dtype: torch.dtype) -> Tensor:
        return data(10 * sender + receiver, (rows, 2), dtype)

    for dtype in (torch.float32, torch.int64, torch.bfloat16, torch.bool, torch.complex64):
        for rows in (lambda s, r: 2, lambda s, r: (s * 2 + r) % 4, lambda s, r: 3 * (s == 0)):
            inputs = [part(rank, r, rows(rank, r), dtype) for r in range(size)]
            expected = [part(s, rank, rows(s, rank), dtype) for s in range(size)]
            outputs = [torch.empty_like(t) for t in expected]
            dist.all_to_all(outputs, inputs)
            for got, of in zip(outputs, expected, strict=True):
                same(got, of, "all_to_all")
            output = torch.empty_like(torch.cat(expected))
            splits = [len(t) for t in expected], [len(t) for t in inputs]
            dist.all_to_all_single(output, torch.cat(inputs), *splits)
            same(output, torch.cat(expected), "all_to_all_single with splits")
        inputs = [part(rank, r, 2, dtype) for r in range(size)]
        output = torch.empty(2 * size, 2, dtype=dtype)
        dist.all_to_all_single(output, torch.cat(inputs))
        same(output, torch.cat([part(s, rank, 2, dtype) for s in range(size)]), "all_to_all_single")
    with pytest.raises(ValueError, match="give splits"):
        dist.all_to_all_single(torch.empty(size + 1), torch.empty(size + 1))
    with pytest.raises(ValueError, match="splits are one number"):
        dist.all_to_all_single(torch.empty(size), torch.empty(size), [1] * size, [2] * size)


@pytest.mark.feature("Collectives", "all_to_all and all_to_all_single, even and uneven")
def test_all_to_all(ranks: Ranks, size: int) -> None:
    ranks(size).run(all_to_all)


def coalesced() -> None:
    from torch.distributed.distributed_c10d import _coalescing_manager

    rank, size = dist.get_rank(), dist.get_world_size()
    shapes = [(3,), (2, 2), (0,)]
    for async_op in (False, True):
        tensors = [data(rank, shape) for shape in shapes]
        future = dist.all_reduce_coalesced(tensors, async_op=async_op)
        if async_op:
            assert [t.shape for t in future.wait()] == [t.shape for t in tensors]
        for tensor in tensors:
            same(tensor, fold("SUM", everyone(tuple(tensor.shape))))
        lists = [[torch.empty(shape) for shape in shapes] for _ in range(size)]
        future = dist.all_gather_coalesced(lists, [data(rank, shape) for shape in shapes], async_op=async_op)
        if async_op:
            future.wait()
        for r, row in enumerate(lists):
            for got, shape in zip(row, shapes, strict=True):
                same(got, data(r, shape))
        tensors = [data(rank, (4,)), data(rank, (5,))]
        with _coalescing_manager(async_ops=async_op) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        if async_op:
            manager.wait()
        same(tensors[1], fold("SUM", everyone((5,))))
        outputs = [torch.empty(2 * size), torch.empty(3 * size)]
        with _coalescing_manager(device=torch.device("cpu"), async_ops=async_op) as manager:
            for n, output in zip((2, 3), outputs, strict=True):
                dist.all_gather_into_tensor(output, data(rank, (n,)))
        if async_op:
            manager.wait()
        same(outputs[1], torch.cat(everyone((3,))))
        outputs = [torch.empty(2), torch.empty(3)]
        with _coalescing_manager(async_ops=async_op) as manager:
            for n, output in zip((2, 3), outputs, strict=True):
                dist.reduce_scatter_tensor(output, data(rank, (n * size,)))
        if async_op:
            manager.wait()
        same(outputs[1], fold("SUM", everyone((3 * size,))).view(size, 3)[rank])


@pytest.mark.feature("Collectives", "all_reduce_coalesced, all_gather_coalesced, the coalescing manager")
def test_coalesced(ranks: Ranks, size: int) -> None:
    ranks(size).run(coalesced)


def objects() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = {"rank": rank, "text": "x" * rank * 1000}
    all_ = [{"rank": r, "text": "x" * r * 1000} for r in range(size)]
    got: list[Any] = [None] * size
    dist.all_gather_object(got, mine)
    assert got == all_
    got = [None] * size
    dist.gather_object(mine, got if rank == 1 else None, dst=1)
    assert got == (all_ if rank == 1 else [None] * size)
    got = [mine, "two"] if rank == size - 1 else [None, None]
    dist.broadcast_object_list(got, src=size - 1)
    assert got == [all_[-1], "two"]
    got = [None]
    dist.scatter_object_list(got, all_ if rank == 0 else None, src=0)
    assert got == [mine]
    if rank == 0:
        dist.send_object_list([mine, 7], dst=1)
    elif rank == 1:
        got = [None, None]
        dist.recv_object_list(got, src=0)
        assert got == [all_[0], 7]


@pytest.mark.feature("Collectives", "object collectives, send_object_list and recv_object_list")
def test_objects(ranks: Ranks, size: int) -> None:
    ranks(size).run(objects)


def old_names() -> None:
    """The methods of a process group as they were called until torch 2.12, and as C++ and other libraries call them."""
    group, rank, size = dist.group.WORLD, dist.get_rank(), dist.get_world_size()
    output = torch.empty(3 * size)
    group._allgather_base(output, data(rank, (3,))).wait()
    same(output, torch.cat(everyone((3,))))
    output = torch.empty(3)
    group._reduce_scatter_base(output, data(rank, (3 * size,))).wait()
    same(output, fold("SUM", everyone((3 * size,))).view(size, 3)[rank])
    output = torch.empty(size)
    group.alltoall_base(output, torch.full((size,), float(rank)), [], []).wait()
    same(output, torch.arange(float(size)))
    group.allgather_into_tensor_coalesced([torch.empty(size)], [torch.ones(1)]).wait()
    group.reduce_scatter_tensor_coalesced([torch.empty(1)], [torch.ones(size)]).wait()
    tensor = data(rank, (3,))
    group.allreduce([tensor]).wait()
    same(tensor, fold("SUM", everyone((3,))))
    assert (group.rank(), group.size(), group.name()) == (rank, size, "hocket")


@pytest.mark.feature("Groups", "the methods of a process group, by their names before and since torch 2.13")
def test_old_names(ranks: Ranks, size: int) -> None:
    ranks(size).run(old_names)


def like_gloo() -> None:
    """Whatever gloo can do gives the same here, bit for bit where its order of summation is the same."""
    gloo = dist.new_group(backend="gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    numbers = torch.Generator().manual_seed(rank)
    for dtype in (torch.float32, torch.float64, torch.int64, torch.uint8, torch.float16, torch.bfloat16):
        for op in ("SUM", "PRODUCT", "MIN", "MAX"):
            tensor = (torch.rand(1001, generator=numbers) * 9 - 4.5).to(dtype)
            other = tensor.clone()
            dist.all_reduce(tensor, op=getattr(ReduceOp, op))
            dist.all_reduce(other, op=getattr(ReduceOp, op), group=gloo)
            if size == 2 or not dtype.is_floating_point or op in ("MIN", "MAX"):
                same(tensor, other, (op, dtype))
            else:
                few = {torch.float16: 1e-2, torch.bfloat16: 1e-1}.get(dtype, 1e-5)
                torch.testing.assert_close(tensor, other, rtol=few, atol=few)


@pytest.mark.feature("Collectives", "the same results as gloo")
def test_results_are_those_of_gloo(ranks: Ranks, size: int) -> None:
    ranks(size).run(like_gloo)
