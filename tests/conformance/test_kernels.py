"""The native kernels against NumPy: every dtype with every op, at odd alignments and lengths, on every instruction set.

`hocket._core.fold` takes addresses, so arrays are laid out in bytes by hand. Data are random bits as well as small
numbers; float16 and bfloat16 are folded in float32 in NumPy and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from oracles import PAIRS, makes_sense

from hocket import _core
from hocket.arrays.ops import BFLOAT16, DTYPES, OPS

Array = np.ndarray
SEED = 20240607
FUNCTIONS = {
    "sum": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
    "land": np.logical_and,
    "lor": np.logical_or,
    "lxor": np.logical_xor,
}
CASES = [pytest.param(dtype, op, id=f"{dtype.name}-{op}") for dtype, op in PAIRS if op != "mean"]


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    print(f"seed {SEED}")
    return np.random.default_rng([SEED, *request.node.name.encode()])


def draw(rng: np.random.Generator, dtype: np.dtype, count: int) -> Array:
    """Whole numbers from -2 to 2 (0 to 4 where there is no sign), a quarter of them replaced by random bits."""
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(bool)
    part = dtype.type(0).real.dtype if dtype.kind == "c" else dtype
    parts = count * (2 if dtype.kind == "c" else 1)
    x = rng.integers(0, 5, parts)
    x = (x if dtype.kind == "u" else x - 2).astype(part)
    wild = rng.integers(0, 256, (parts, part.itemsize), np.uint8).view(part).reshape(parts)
    return np.where(rng.random(parts) < 0.25, wild, x).view(dtype)


def shifted(x: Array, shift: int) -> Array:
    """A copy of x that begins `shift` bytes after a 64-byte boundary."""
    memory = np.zeros(x.nbytes + 64 + shift, np.uint8)
    at = -memory.ctypes.data % 64 + shift
    memory[at : at + x.nbytes] = x.view(np.uint8)
    return memory[at : at + x.nbytes]


def run(
    dtype: np.dtype, op: str, isa: int, sources: Sequence[Array], shift: int, divisor: int = 1
) -> tuple[Array, Array]:
    """What the kernel puts into its two destinations, all of them at another alignment."""
    laid = [shifted(x, (shift + 3 * j) % 64) for j, x in enumerate(sources)]
    dst, also = (shifted(np.zeros_like(sources[0]), (shift * k) % 64) for k in (5, 7))
    addresses = [x.ctypes.data for x in laid]
    code = DTYPES[dtype], OPS[op], isa
    _core.fold(*code, dst.ctypes.data, also.ctypes.data, addresses, len(sources[0]), divisor)
    for x, given in zip(laid, sources, strict=True):
        assert x.tobytes() == given.tobytes(), "a source was written"
    return dst.copy().view(dtype), also.copy().view(dtype)


def expected(dtype: np.dtype, op: str, sources: Sequence[Array], divisor: int = 1) -> Array:
    wide = np.dtype(np.float32) if dtype in (np.float16, BFLOAT16) else dtype
    with np.errstate(all="ignore"):
        total = sources[0].astype(wide)
        for x in sources[1:]:
            total = combined(op, total, x.astype(wide))
        return (divided(total, divisor) if divisor > 1 else total).astype(dtype)


def combined(op: str, a: Array, b: Array) -> Array:
    if op == "product" and a.dtype.kind == "c":  # NumPy may fuse its multiplications and additions
        real, imag = a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real
        return np.stack([real, imag], axis=-1).view(a.dtype)[:, 0]
    return FUNCTIONS[op](a, b).astype(a.dtype)


def divided(total: Array, divisor: int) -> Array:
    if total.dtype.kind == "c":
        part = total.real.dtype
        return (total.view(part) / part.type(divisor)).view(total.dtype)
    if total.dtype.kind == "f":
        return total / total.dtype.type(divisor)
    exact = [abs(x) // divisor * (1 if x > 0 else -1) for x in total.tolist()]
    return np.array(exact, total.dtype)


def parts(x: Array) -> Array:
    """x as numbers that can be told from NaN: complex ones as pairs, 16-bit ones as float32."""
    if x.dtype.kind == "c":
        return x.view(x.real.dtype)
    return x.astype(np.float32) if x.dtype in (np.float16, BFLOAT16) else x


def agree(got: Array, want: Array, *what: object) -> None:
    """The same numbers, zeros of either sign being one number, and NaN where NaN is due."""
    a, b = parts(got), parts(want)
    same = a == b
    if a.dtype.kind == "f":
        same |= np.isnan(a) & np.isnan(b)
    wrong = np.flatnonzero(~same)
    assert not len(wrong), f"{what}: {len(wrong)} of {len(a)} differ, first at {wrong[0]}: {a[wrong[0]]}, {b[wrong[0]]}"


@pytest.mark.parametrize(("dtype", "op"), CASES)
def test_lengths_and_alignments(rng: np.random.Generator, dtype: np.dtype, op: str) -> None:
    for isa in _core.isas():
        for count in [*range(1, 140, 2), 0, 64, 128, 1025]:
            k, shift = int(rng.integers(2, 10)), int(rng.integers(64))
            sources = [draw(rng, dtype, count) for _ in range(k)]
            dst, also = run(dtype, op, isa, sources, shift)
            agree(dst, expected(dtype, op, sources), "isa", isa, "count", count, "k", k, "shift", shift)
            assert also.tobytes() == dst.tobytes()


@pytest.mark.parametrize("dtype", [d for d in DTYPES if makes_sense("mean", d)], ids=lambda d: d.name)
def test_mean(rng: np.random.Generator, dtype: np.dtype) -> None:
    for isa in _core.isas():
        for divisor in (2, 3, 7, 100, 1000, 2**33 + 1, 2**64 - 1):
            sources = [draw(rng, dtype, 101) for _ in range(int(rng.integers(1, 6)))]
            got, _ = run(dtype, "sum", isa, sources, 1, divisor)
            agree(got, expected(dtype, "sum", sources, divisor), "isa", isa, "divisor", divisor)


@pytest.mark.parametrize(("dtype", "op"), CASES)
def test_destination_among_the_sources(rng: np.random.Generator, dtype: np.dtype, op: str) -> None:
    for isa in _core.isas():
        for k in (1, 2, 3, 5):
            for j in range(k):
                sources = [draw(rng, dtype, 77) for _ in range(k)]
                want, _ = run(dtype, op, isa, sources, 0)
                laid = [shifted(x, 1) for x in sources]
                addresses = [x.ctypes.data for x in laid]
                _core.fold(DTYPES[dtype], OPS[op], isa, addresses[j], 0, addresses, 77, 1)
                assert laid[j].tobytes() == want.tobytes(), f"isa {isa}, source {j} of {k}"


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=lambda d: d.name)
@pytest.mark.parametrize("op", ["sum", "product", "min", "max"])
def test_every_16_bit_float(rng: np.random.Generator, dtype: np.dtype, op: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    sources = [every, rng.permutation(every), rng.permutation(every)]
    for isa in _core.isas():
        agree(run(dtype, op, isa, sources, 2)[0], expected(dtype, op, sources), "isa", isa)


def test_what_makes_no_sense_is_not_supported() -> None:
    there_is = {(d, op): _core.supported(DTYPES[d], OPS[op]) for d in DTYPES for op in OPS}
    assert there_is == {(d, op): makes_sense(op, d) for d, op in there_is}
    assert sum(there_is.values()) == 128


@pytest.mark.parametrize("isa", _core.isas())
def test_small_numbers_are_rounded_like_all_others(isa: int, rng: np.random.Generator) -> None:
    """Sums about the smallest normal numbers, where instructions may differ: subnormal results, and next to others."""
    for dtype in (np.dtype(np.float16), BFLOAT16, np.dtype(np.float32), np.dtype(np.float64)):
        bits = np.dtype(f"u{dtype.itemsize}")
        sign = bits.type(1 << (8 * dtype.itemsize - 1))
        smallest = np.array([np.finfo(np.float16).tiny if dtype == np.float16 else 1e-38], dtype).view(bits)[0]
        sources = [
            (rng.integers(0, 4 * int(smallest), 4099, bits) | rng.integers(0, 2, 4099, bits) * sign).view(dtype)
            for _ in range(3)
        ]
        for count in (2, 3):
            got, also = run(dtype, "sum", isa, sources[:count], 0)
            want = expected(dtype, "sum", sources[:count])
            assert got.tobytes() == also.tobytes() == want.tobytes(), dtype
