"""Users' arrays as NumPy sees them, and back: views wherever possible, copies never unless said.

`adopt` reads, `writable` writes, `like` gives a result back as the kind of array that came in. NumPy arrays are taken,
and anything on the CPU that speaks DLPack; torch tensors by way of torch's own methods, because bfloat16, lazily
conjugated and grad-requiring tensors have no way through DLPack. torch is never imported here: where there is a tensor,
it already is.
"""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np

from .ops import BFLOAT16, DTYPES, dtype_code

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

# DLPack's device types: those whose memory the CPU may simply read, and the names of the commonest others.
_HOST = (1, 3, 11, 13)  # cpu, pinned for cuda, pinned for rocm, cuda managed
_DEVICES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 14: "oneapi", 15: "webgpu", 16: "hexagon"}


def adopt_elements(x: Any) -> Array:
    """As `adopt`, and an array of NumPy's may have fields, of any dtypes without references."""
    if isinstance(x, np.ndarray) and x.dtype.fields is not None and not _is_masked(x):
        if x.dtype.hasobject:
            raise TypeError(f"dtype {x.dtype} has objects in it, which another process could not read")
        return np.asarray(x)
    return adopt(x)


def adopt(x: Any) -> Array:
    """`x` as an ndarray of one of the supported dtypes, for reading; of any shape and strides.

    A view of the same memory for NumPy arrays and for DLPack objects on the CPU, torch tensors among them (one that
    requires grad is read detached, as torch.distributed does). A copy for Python scalars and sequences, and for lazily
    conjugated or negated tensors, whose values lie nowhere in memory. Raises TypeError for any other device, dtype or
    kind of object.
    """
    if type(x) is np.ndarray:
        if x.dtype not in DTYPES:
            dtype_code(x.dtype)
        return x
    if _is_tensor(x):
        array = _from_tensor(x)
    elif _is_masked(x):
        raise TypeError("a masked array has elements without a value: give x.filled(...) instead")
    elif hasattr(x, "__dlpack__") and not isinstance(x, (np.ndarray, np.generic)):
        array = _from_dlpack(x)
    else:
        array = np.asarray(x)
    try:
        dtype_code(array.dtype)
    except TypeError as error:
        words = f"{type(x).__name__}: {error}"
        if array.dtype.kind in "OSU":
            words = f"{type(x).__name__} is no array of numbers: for objects there are broadcast_object, "
            words += "all_gather_object, send_object and the like"
        raise TypeError(words) from None
    return array


def writable(x: Any) -> Array:
    """`x`, given as `out=`, as an ndarray that shares its memory and may be written.

    Raises TypeError when `x` is no array, has an unsupported dtype or lies on another device, and ValueError when it
    cannot be written: read-only, several elements in one place (an expanded tensor), lazily conjugated, or a tensor
    that requires grad outside of `torch.no_grad()`. For autograd, a tensor counts as changed from here on.
    """
    if type(x) is not np.ndarray:
        if _is_tensor(x):
            return _writable_tensor(x)
        if isinstance(x, np.generic) or not (isinstance(x, np.ndarray) or hasattr(x, "__dlpack__")):
            raise TypeError(f"out must be an array to write into, not {type(x).__name__}")
    array = adopt_elements(x)
    if not array.flags.writeable:
        raise ValueError("out is read-only")
    return _distinct(array)


def like(x: Any, array: Array) -> Any:
    """`array` as the same kind of object as `x`, sharing memory: a torch tensor if `x` is one, an array of the library
    that `x` belongs to if it speaks DLPack, else `array` itself."""
    if type(x) is np.ndarray:
        return array
    if _is_tensor(x):
        torch = sys.modules["torch"]
        if array.dtype == BFLOAT16:
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)
    if hasattr(x, "__dlpack__") and not isinstance(x, (np.ndarray, np.generic)):
        root: Any = sys.modules.get(type(x).__module__.partition(".")[0])
        space = x.__array_namespace__() if hasattr(x, "__array_namespace__") else root
        return space.from_dlpack(array) if hasattr(space, "from_dlpack") else array
    return array


def is_number(x: Any) -> bool:
    """Whether it is a number by itself, Python's or NumPy's, and no array."""
    return isinstance(x, (bool, int, float, complex, np.generic))


def number_like(x: Any, array: Array) -> Any:
    """The one element of `array` as the same kind of number as `x`: Python's, or NumPy's."""
    return array[()] if isinstance(x, np.generic) else array.item()


def overlap(a: Array, b: Array) -> bool:
    """Whether writing one may change the other. Never False by mistake; True by mistake only for strides so intertwined
    that telling would take long."""
    try:
        return np.shares_memory(a, b, max_work=10_000)  # type: ignore[arg-type]  # NumPy's stubs know only the two extremes
    except np.exceptions.TooHardError:
        return True


def same(a: Array, b: Array) -> bool:
    """Whether both are the same elements: memory, dtype, shape and strides."""
    if a is b:
        return True
    if a.dtype != b.dtype or a.shape != b.shape or a.strides != b.strides:
        return False
    return bool(a.__array_interface__["data"][0] == b.__array_interface__["data"][0])


def _distinct(array: Array) -> Array:
    """`array`, if each element has a place of its own; told from strides that each step over all smaller ones."""
    if array.flags.forc or array.size < 2:
        return array
    reach = array.itemsize
    for stride, length in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
        if stride < reach:
            raise ValueError("out has several elements in one place (expanded, or overlapping windows)")
        reach += stride * (length - 1)
    return array


def _is_a(x: Any, kind: str, module: str) -> bool:
    """Who has one has imported that module, which takes long, and which others do without."""
    known = getattr(sys.modules.get(module), kind, None)
    return known is not None and isinstance(x, known)


def _is_masked(x: Any) -> bool:
    return _is_a(x, "MaskedArray", "numpy.ma")


def _is_tensor(x: Any) -> bool:
    return _is_a(x, "Tensor", "torch")


def _from_tensor(x: Any) -> Array:
    torch = sys.modules["torch"]
    if x.device.type != "cpu":
        raise TypeError(f"the tensor is on device {x.device}: only the CPU's memory is supported, give x.cpu()")
    if x.requires_grad:
        x = x.detach()
    if x.is_conj() or x.is_neg():
        x = x.resolve_conj().resolve_neg()
    try:
        if x.dtype == torch.bfloat16:
            return x.view(torch.int16).numpy().view(BFLOAT16)  # type: ignore[no-any-return]
        return x.numpy()  # type: ignore[no-any-return]
    except (TypeError, RuntimeError) as error:  # sparse, quantised, float8: those without a NumPy view
        names = ", ".join(dtype.name for dtype in DTYPES)
        raise TypeError(
            f"a tensor of {x.dtype}, {x.layout} is not supported ({error}); dense ones are, of {names}"
        ) from None


def _writable_tensor(x: Any) -> Array:
    torch = sys.modules["torch"]
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError("out requires grad: give out.detach(), or call under torch.no_grad()")
    if x.is_conj() or x.is_neg():
        raise ValueError("out is a lazily conjugated or negated view: give out.resolve_conj() or out.resolve_neg()")
    array = _distinct(adopt(x))
    if not x.is_inference():
        torch.autograd.graph.increment_version(x)  # so that a backward that saved the old values raises, not errs
    return array


def _from_dlpack(x: Any) -> Array:
    kind, index = x.__dlpack_device__()
    if kind not in _HOST:
        name = _DEVICES.get(int(kind), f"of DLPack type {int(kind)}")
        raise TypeError(f"the {type(x).__name__} is on device {name}:{index}: only the CPU's memory is supported")
    try:
        return np.from_dlpack(x)
    except (BufferError, RuntimeError, ValueError) as error:
        raise TypeError(f"NumPy cannot view this {type(x).__name__}: {error}") from error
