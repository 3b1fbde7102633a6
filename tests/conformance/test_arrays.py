"""Adopting users' arrays: views of every kind of array, copies of what is none, and errors for the rest."""

from __future__ import annotations

import array as buffers
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hocket.arrays.adopt import adopt, adopt_elements, like, overlap, same, writable
from hocket.arrays.ops import BFLOAT16, DTYPES


class Foreign:
    """An array of another library: only DLPack."""

    def __init__(self, array: np.ndarray, device: tuple[int, int] = (1, 0)) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **options: Any) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


class Standard(Foreign):
    """The same with the array API's way to its module."""

    def __array_namespace__(self) -> Any:
        class Space:
            @staticmethod
            def from_dlpack(x: np.ndarray) -> Standard:
                return Standard(np.from_dlpack(x))

        return Space


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (2, 0, 3), (2, 3)])
def test_a_numpy_array_is_itself(dtype: np.dtype, shape: tuple[int, ...]) -> None:
    x = np.ones(shape, dtype)
    assert adopt(x) is x
    assert writable(x) is x
    assert like(x, x) is x


def test_strides_are_kept() -> None:
    x = np.arange(24.0).reshape(4, 6)
    for view in (x[::2, ::-3], x.T, x[:0], np.broadcast_to(x, (2, 4, 6))):
        assert adopt(view) is view


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        (3, "int64", ()),
        (True, "bool", ()),
        (2.5, "float64", ()),
        (1j, "complex128", ()),
        ([1, 2], "int64", (2,)),
        (((1.0, 2), (3, 4)), "float64", (2, 2)),
        (np.float16(3), "float16", ()),
        (ml_dtypes.bfloat16(3), "bfloat16", ()),
        (range(4), "int64", (4,)),
        ([], "float64", (0,)),
    ],
)
def test_scalars_and_sequences_become_arrays(value: object, dtype: str, shape: tuple[int, ...]) -> None:
    x = adopt(value)
    assert (x.dtype.name, x.shape) == (dtype, shape)
    assert x.tolist() == (list(value) if isinstance(value, range) else np.asarray(value).tolist())
    assert like(value, x) is x
    with pytest.raises(TypeError, match="out must be an array to write into, not"):
        writable(value)


def test_what_has_the_buffer_protocol_is_viewed() -> None:
    x = buffers.array("f", [1, 2, 3])
    view = adopt(x)
    x[1] = 7
    assert view.tolist() == [1, 7, 3]


def test_a_subclass_is_viewed_as_a_plain_array() -> None:
    class Sub(np.ndarray): ...

    x = np.arange(3.0).view(Sub)
    assert type(adopt(x)) is type(writable(x)) is np.ndarray
    assert np.shares_memory(adopt(x), x)
    with pytest.raises(TypeError, match=r"masked array.*filled"):
        adopt(np.ma.array([1.0, 2.0], mask=[0, 1]))


def test_a_masked_array_with_fields_is_no_array_either() -> None:
    pairs = np.zeros(2, [("value", "f4"), ("place", "i4")])
    assert adopt_elements(pairs) is pairs
    with pytest.raises(TypeError, match=r"masked array.*filled"):
        adopt_elements(np.ma.array(pairs, mask=[0, 1]))


NAMES = r"these are: bool, int8, int16, .* float16, bfloat16, .* complex128"


@pytest.mark.parametrize(
    "x",
    [
        np.array([object()]),
        np.array(["a"]),
        np.array(["2020-01-01"], "M8[D]"),
        np.zeros(2, "i4,f4"),
        np.zeros(2, "longdouble"),
        np.zeros(2, ml_dtypes.float8_e4m3fn),
        np.datetime64("2020-01-01"),
    ],
    ids=lambda x: f"{type(x).__name__}-{getattr(x, 'dtype', '')}",
)
def test_an_unsupported_dtype_is_a_type_error_that_lists_the_supported(x: object) -> None:
    with pytest.raises(TypeError, match=NAMES):
        adopt(x)
    if getattr(getattr(x, "dtype", None), "names", None):
        assert writable(x) is x  # a result may have fields, that of an operator which knows them
        return
    with pytest.raises(TypeError):
        writable(x)


@pytest.mark.parametrize("x", ["text", b"bytes", None, {1, 2}, [2**70]], ids=lambda x: type(x).__name__)
def test_what_is_no_array_is_a_type_error_that_names_the_calls_of_objects(x: object) -> None:
    with pytest.raises(TypeError, match=rf"^{type(x).__name__} is no array of numbers: .* broadcast_object"):
        adopt(x)
    with pytest.raises(TypeError):
        writable(x)


def test_the_other_byte_order_is_a_type_error_that_says_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"-endian: give x.astype\('int16'\)"):
        adopt(np.zeros(2, np.dtype("int16").newbyteorder()))


@pytest.mark.parametrize("kind", [Foreign, Standard])
def test_dlpack_shares_memory_both_ways(kind: type[Foreign]) -> None:
    x = np.arange(6.0).reshape(2, 3).T
    seen = adopt(kind(x))
    assert same(seen, x)
    assert same(writable(kind(x)), x)
    back = like(kind(x), seen)
    assert (type(back) is Standard) == (kind is Standard)
    assert same(adopt(back), x)


def test_dlpack_on_another_device_is_a_type_error_that_names_it() -> None:
    for device, name in (((2, 3), "cuda:3"), ((10, 0), "rocm:0"), ((99, 1), "of DLPack type 99:1")):
        with pytest.raises(TypeError, match=f"Foreign is on device {name}"):
            adopt(Foreign(np.ones(2), device))
    assert adopt(Foreign(np.ones(2), (3, 0))).shape == (2,)  # pinned memory is the CPU's


def test_what_cannot_be_written_is_a_value_error() -> None:
    x = np.arange(6.0)
    x.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        writable(x)
    y = np.arange(6.0)
    for shape, strides in (((3, 6), (0, 8)), ((4, 3), (8, 8)), ((5, 2), (8, 8)), ((2,), (4,))):
        with pytest.raises(ValueError, match="several elements in one place"):
            writable(np.lib.stride_tricks.as_strided(y, shape, strides))


def test_what_can_be_written_may_have_any_other_strides() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    for view in (x, x.T, x[::-1], x[:, ::2, ::-2], x[:, 1:2], x.swapaxes(0, 1), x[0, 0], x[:0], x[..., None]):
        assert writable(view) is view


def test_overlap_is_exact_for_slices() -> None:
    x = np.arange(12.0)
    assert overlap(x, x)
    assert overlap(x[:7], x[6:])
    assert not overlap(x[:6], x[6:])
    assert not overlap(x[::2], x[1::2])
    assert overlap(x[::2], x[::3])
    assert not overlap(x[:0], x)
    assert not overlap(x, x.copy())
    assert overlap(x.view(np.int8)[3:4], x)


def test_overlap_is_true_where_telling_would_take_long() -> None:
    big = np.zeros(2**26, np.int8)
    tile = np.lib.stride_tricks.as_strided
    a = tile(big, (7, 11, 13, 17, 19), (1009, 5003, 20011, 70001, 300007))
    b = tile(big[1:], (7, 11, 13, 17, 19), (2003, 4001, 30011, 60013, 500009))
    assert overlap(a, b)


def test_same_is_memory_dtype_and_layout() -> None:
    x = np.arange(12.0)
    assert same(x, x)
    assert same(x, x[:])
    assert same(x[2:5], x[2:5])
    for other in (x.copy(), x[::-1], x.view(np.int64), x.reshape(3, 4), x[:11], x[::2]):
        assert not same(x, other)
    assert not same(x[:4], x[4:8])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3)])
def test_a_tensor_is_viewed_and_comes_back_as_a_tensor(torch: Any, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    x = torch.ones(shape, dtype=getattr(torch, dtype.name))
    for view in (adopt(x), writable(x)):
        assert (view.dtype, view.shape) == (dtype, shape)
        view[...] = 0
        assert not x.any()
        back = like(x, view)
        assert type(back) is torch.Tensor
        assert (back.dtype, back.shape, back.data_ptr()) == (x.dtype, x.shape, x.data_ptr())
        x.fill_(1)


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_a_strided_tensor_is_viewed_with_its_strides(torch: Any, name: str) -> None:
    x = torch.arange(24, dtype=getattr(torch, name)).reshape(4, 6)
    for view in (x.T, x[::2, 1:], x[:, 3]):
        seen = writable(view)
        np.testing.assert_array_equal(seen.astype(float), view.double().numpy())
        assert seen.strides == tuple(s * x.element_size() for s in view.stride())
        assert same(seen, adopt(view))


def test_a_tensor_that_requires_grad_is_read_detached(torch: Any) -> None:
    x = torch.ones(3, requires_grad=True)
    assert adopt(x).tolist() == [1, 1, 1]
    assert like(x, adopt(x)).requires_grad is False
    with pytest.raises(ValueError, match=r"requires grad.*detach\(\).*no_grad"):
        writable(x)
    with torch.no_grad():
        writable(x)[...] = 2
    assert x.tolist() == [2, 2, 2]
    assert writable(x.detach()).tolist() == [2, 2, 2]
    assert adopt(torch.nn.Parameter(torch.zeros(2))).tolist() == [0, 0]


def test_writing_what_backward_needs_is_noticed_by_autograd(torch: Any) -> None:
    x = torch.ones(3, requires_grad=True) * 2
    y = (x * x).sum()
    with torch.no_grad():
        writable(x)[...] = 0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
    with torch.inference_mode():
        assert writable(torch.ones(3)).shape == (3,)


def test_a_lazy_tensor_is_read_as_its_values_and_not_written(torch: Any) -> None:
    x = torch.tensor([1 + 2j, 3 - 1j])
    assert adopt(x.conj()).tolist() == [1 - 2j, 3 + 1j]
    assert adopt(x.conj().imag).tolist() == [-2, 1]
    for lazy in (x.conj(), x.conj().imag):
        with pytest.raises(ValueError, match="lazily conjugated"):
            writable(lazy)


def test_an_expanded_tensor_is_read_and_not_written(torch: Any) -> None:
    x = torch.ones(1).expand(4)
    assert adopt(x).tolist() == [1, 1, 1, 1]
    with pytest.raises(ValueError, match="several elements in one place"):
        writable(x)


def test_a_tensor_elsewhere_or_of_another_kind_is_a_type_error(torch: Any) -> None:
    with pytest.raises(TypeError, match=r"on device meta: .* x.cpu\(\)"):
        adopt(torch.ones(3, device="meta"))
    with pytest.raises(TypeError, match=r"torch.sparse_coo.*dense ones are, of bool, .*complex128"):
        adopt(torch.eye(3).to_sparse())
    with pytest.raises(TypeError, match=r"torch.float8_e4m3fn.*dense ones are"):
        writable(torch.ones(3).to(torch.float8_e4m3fn))


def test_bfloat16_of_numpy_becomes_a_tensor_of_bfloat16(torch: Any) -> None:
    result = np.array([1.5, -2], BFLOAT16)
    assert like(torch.ones(1), result).dtype == torch.bfloat16
    assert like(torch.ones(1), result).tolist() == [1.5, -2]
