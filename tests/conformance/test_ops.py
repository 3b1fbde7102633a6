"""The tables of dtypes and operators, and what `resolve` makes of everything one can pass as `op`."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from hocket.arrays.ops import BFLOAT16, CUSTOM, DTYPES, NAMES, OPS, Op, resolve

BITWISE = {"band", "bor", "bxor"}
F32, I32, BOOL, C64 = (np.dtype(name) for name in ("float32", "int32", "bool", "complex64"))


def test_codes_are_those_of_the_kernels() -> None:
    header = (Path(__file__).parents[2] / "csrc" / "kernels" / "reduce.h").read_text()
    dtypes, ops = (re.findall(rf"enum class {name} .*{{(.*)}}", header)[0].split(",") for name in ("Dtype", "Op"))
    short = ["b1" if d.kind == "b" else "bf16" if d == BFLOAT16 else f"{d.kind}{d.itemsize * 8}" for d in DTYPES]
    assert short == [name.strip() for name in dtypes]
    assert list(OPS) == [name.strip() for name in ops]
    assert list(DTYPES.values()) == list(range(15))
    assert list(OPS.values()) == list(range(10))


def test_dtypes_are_found_by_any_name_numpy_has_for_them() -> None:
    for alias in (np.longlong, np.int_, np.uintp, np.intc, "<f4", "=c16", ml_dtypes.bfloat16, bool):
        assert np.dtype(alias) in DTYPES


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_every_pair_is_an_op_or_a_type_error(name: str, dtype: np.dtype) -> None:
    sound = not (
        (name in BITWISE and (dtype.kind in "fc" or dtype == BFLOAT16))
        or (name in ("min", "max") and dtype.kind == "c")
        or (name == "mean" and dtype.kind == "b")
    )
    if sound:
        assert resolve(name, dtype) == Op(name, OPS["sum" if name == "mean" else name], mean=name == "mean")
    else:
        with pytest.raises(TypeError, match=f"'{name}' does not exist for {dtype.name}.*{dtype.name} has sum, "):
            resolve(name, dtype)


def test_the_type_error_lists_what_would_work() -> None:
    with pytest.raises(TypeError) as caught:
        resolve("min", C64)
    assert "only for bool, int8" in str(caught.value)
    assert str(caught.value).endswith("complex64 has sum, mean, product, land, lor, lxor")


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("avg", "mean"), ("SUM", "sum"), ("prod", "product"), ("mul", "product"), ("maximum", "max"), ("lxorr", "lxor")],
)
def test_an_unknown_name_gets_a_hint(wrong: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"no op '{wrong}'. Did you mean '{meant}'.*sum, mean, product"):
        resolve(wrong, F32)


def test_an_unknown_name_like_no_other_gets_the_list() -> None:
    with pytest.raises(ValueError, match=r"no op 'zzz'\. The names are: sum, mean, product, min, max, band, bor, bxor"):
        resolve("zzz", F32)


@pytest.mark.parametrize(
    ("ufunc", "name"),
    [
        (np.add, "sum"),
        (np.multiply, "product"),
        (np.minimum, "min"),
        (np.maximum, "max"),
        (np.bitwise_and, "band"),
        (np.bitwise_or, "bor"),
        (np.bitwise_xor, "bxor"),
        (np.logical_and, "land"),
        (np.logical_or, "lor"),
        (np.logical_xor, "lxor"),
    ],
)
def test_a_ufunc_with_a_name_is_that_op(ufunc: np.ufunc, name: str) -> None:
    assert resolve(ufunc, I32) is resolve(ufunc, I32)  # cached
    assert resolve(ufunc, I32) == resolve(name, I32)


@pytest.mark.parametrize(
    ("ufunc", "dtype"),
    [(np.hypot, F32), (np.fmax, F32), (np.gcd, I32), (np.subtract, C64), (np.logaddexp, BFLOAT16), (np.copysign, F32)],
)
def test_any_other_binary_ufunc_is_a_custom_op(ufunc: np.ufunc, dtype: np.dtype) -> None:
    op = resolve(ufunc, dtype)
    assert op == Op(f"numpy.{ufunc.__name__}", CUSTOM, False, ufunc)
    a, b, c = np.full(3, 3, dtype), np.full(3, 4, dtype), np.zeros(3, dtype)
    assert op.function is not None
    op.function(a, b, c)
    np.testing.assert_array_equal(c, ufunc(a, b).astype(dtype))


@pytest.mark.parametrize(
    ("ufunc", "dtype", "why"),
    [
        (np.hypot, I32, "'hypot' of int32 does not give int32"),
        (np.true_divide, I32, "does not give int32"),
        (np.gcd, F32, "'gcd' of float32 does not give float32"),
        (np.subtract, BOOL, "does not give bool"),
        (np.bitwise_and, F32, "'band' does not exist for float32"),
        (np.minimum, C64, "'min' does not exist for complex64"),
        (np.divmod, I32, "2 inputs and 2 outputs"),
        (np.negative, I32, "1 inputs and 1 outputs"),
        (np.matmul, F32, re.escape("(n?,k)")),
        (np.frompyfunc(max, 2, 1), F32, "does not give float32"),
    ],
)
def test_a_ufunc_that_is_no_op_is_a_type_error(ufunc: np.ufunc, dtype: np.dtype, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        resolve(ufunc, dtype)


def left(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    out[...] = a


class Left:
    def __call__(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        out[...] = a

    def method(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        out[...] = a


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (left, "left"),
        (Left(), "Left"),
        (Left().method, "Left.method"),
        (partial(left), "partial"),
    ],
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_callable_is_a_custom_op_for_every_dtype(function: object, name: str, dtype: np.dtype) -> None:
    op = resolve(function, dtype)  # type: ignore[arg-type]
    assert op == Op(op.name, CUSTOM, False, function)  # type: ignore[arg-type]
    assert re.fullmatch(rf"custom\({re.escape(name)} [0-9a-f]{{8}}\)", op.name)


def test_a_callable_named_like_an_op_is_not_mistaken_for_it() -> None:
    def sum(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None: ...

    assert resolve(sum, F32).name not in NAMES


@pytest.mark.parametrize("function", [lambda a, b: a, lambda: None, lambda a, b, out, more: None])
def test_a_callable_of_another_shape_is_refused_before_it_is_called(function: object) -> None:
    with pytest.raises(TypeError, match=r"<lambda> cannot be called as f\(a, b, out\)"):
        resolve(function, F32)  # type: ignore[arg-type]


@pytest.mark.parametrize("builtin", [min, max])
def test_a_builtin_that_would_silently_write_nothing_is_refused(builtin: object) -> None:
    with pytest.raises(TypeError, match=f"did you mean '{builtin.__name__}'"):  # type: ignore[attr-defined]
        resolve(builtin, F32)  # type: ignore[arg-type]


@pytest.mark.parametrize("op", [None, 3, ["sum"], np.float32(1)])
def test_what_is_no_op_at_all_is_a_type_error(op: object) -> None:
    with pytest.raises(TypeError, match=r"op is a name \(sum, .*\), a binary NumPy ufunc or a callable"):
        resolve(op, F32)  # type: ignore[arg-type]


@pytest.mark.parametrize("op", ["sum", np.add, np.hypot, left])
@pytest.mark.parametrize("dtype", ["O", "U3", "S2", "M8[s]", "m8[s]", "i4,f4", "longdouble", "V4", "float8"])
def test_an_unsupported_dtype_is_a_type_error_that_lists_the_supported(op: str, dtype: str) -> None:
    kind = np.dtype(ml_dtypes.float8_e4m3fn if dtype == "float8" else dtype)
    if kind.names and op is left:
        assert resolve(op, kind).function is left  # of elements with fields a custom operator is asked
        return
    with pytest.raises(TypeError, match=r"is not supported; these are: bool, int8, .*bfloat16.*complex128"):
        resolve(op, kind)


def test_the_other_byte_order_is_a_type_error_that_says_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"endian: give x.astype\('float32'\)"):
        resolve("sum", F32.newbyteorder())
