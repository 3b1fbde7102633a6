"""The commands on tensors of one rank: to make them, to look at them, to calculate with them, to free them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import values
from .errors import invalid
from .handles import Array, Handles
from .parameters import (
    FLOAT32,
    Device,
    Dtype,
    MaybeInteger,
    MaybeShape,
    Number,
    Operand,
    Shape,
    Tensor,
    TensorName,
    Word,
)


class Printed(str):
    """What a command prints, by Tcl's own `puts`, so that it comes in its place in the script's output."""


def tensor_create(
    handles: Handles, data: Word, shape: MaybeShape = None, dtype: Dtype = FLOAT32, device: Device = "cpu"
) -> Array:
    """A tensor of these numbers: a list, or lists in lists, one level for each dimension; the shape goes before what
    the data look like (a list of one number is to Tcl that number)."""
    return values.array(data, dtype, shape)


def zeros(handles: Handles, shape: Shape, dtype: Dtype = FLOAT32, device: Device = "cpu") -> Array:
    """A tensor of zeros."""
    return np.zeros(shape, dtype)


def ones(handles: Handles, shape: Shape, dtype: Dtype = FLOAT32, device: Device = "cpu") -> Array:
    """A tensor of ones."""
    return np.ones(shape, dtype)


def full(handles: Handles, shape: Shape, value: Word, dtype: Dtype = FLOAT32, device: Device = "cpu") -> Array:
    """A tensor that holds this value everywhere."""
    return np.full(shape, values.array(value, dtype, ()), dtype)


def empty(handles: Handles, shape: Shape, dtype: Dtype = FLOAT32, device: Device = "cpu") -> Array:
    """A tensor whose values are undefined."""
    return np.empty(shape, dtype)


def arange(
    handles: Handles,
    end: Number,
    start: Number = 0,
    step: Number = 1,
    dtype: Dtype = FLOAT32,
    device: Device = "cpu",
) -> Array:
    """The numbers from start to before end, by steps."""
    if step == 0:
        raise invalid("a step of zero leads nowhere")
    numbers = np.arange(start, end, step)
    if dtype.kind in "iu" and numbers.size:
        limits = np.iinfo(dtype)
        if not limits.min <= min(numbers[0], numbers[-1]) <= max(numbers[0], numbers[-1]) <= limits.max:
            raise invalid(f"the numbers from {start} to {end} do not fit into {dtype.name}")
    return numbers.astype(dtype)


def randn(
    handles: Handles,
    shape: Shape,
    dtype: Dtype = FLOAT32,
    device: Device = "cpu",
    *,
    seed: MaybeInteger = None,
) -> Array:
    """Random numbers of the standard normal distribution; the same for the same seed, other ones each time without."""
    if dtype.kind in "biu":
        raise invalid(f"random numbers of the normal distribution are no {dtype.name}")
    random = handles.random if seed is None else np.random.default_rng(seed)
    return np.asarray(random.standard_normal(shape)).astype(dtype)


def tensor_shape(handles: Handles, tensor: Tensor) -> str:
    """The list of its lengths."""
    return " ".join(map(str, tensor.shape))


def tensor_dtype(handles: Handles, tensor: Tensor) -> str:
    """The name of its dtype."""
    return tensor.dtype.name


def tensor_data(handles: Handles, tensor: Tensor) -> str:
    """Its elements as a flat list."""
    return values.text(tensor)


def tensor_item(handles: Handles, tensor: Tensor) -> str:
    """Its only element."""
    if tensor.size != 1:
        raise invalid(f"a tensor with {tensor.size} elements is no single number")
    return values.text(tensor)


def tensor_print(handles: Handles, tensor: Tensor) -> Printed:
    """Print it, with its shape and dtype."""
    return Printed(values.printed(tensor))


def tensor_add(handles: Handles, tensor: Tensor, other: Operand) -> Array:
    """The sum, element by element, with another tensor or a number; shapes and dtypes go together as NumPy's do."""
    return _calculated(np.add, tensor, other)


def tensor_sub(handles: Handles, tensor: Tensor, other: Operand) -> Array:
    """The difference, likewise."""
    return _calculated(np.subtract, tensor, other)


def tensor_mul(handles: Handles, tensor: Tensor, other: Operand) -> Array:
    """The product, likewise."""
    return _calculated(np.multiply, tensor, other)


def tensor_div(handles: Handles, tensor: Tensor, other: Operand) -> Array:
    """The quotient, likewise; of integers a floating-point number, and of zero Inf or NaN."""
    return _calculated(np.true_divide, tensor, other)


def _calculated(function: Callable[..., Any], tensor: Array, other: Array | float) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(function(tensor, other))


def tensor_list(handles: Handles) -> str:
    """The handles of all tensors, the oldest first."""
    return " ".join(handles.tensors.names())


def tensor_free(handles: Handles, *tensor: TensorName) -> None:
    """Forget these tensors. Nothing else does: to Python a handle in a variable is not to be seen."""
    for name in tensor:
        handles.tensors.drop(name)
