"""Sizes, units and bandwidths."""

from __future__ import annotations

import pytest

from hocket.bench.figures import binary, bus_factor, duration, elements, parse_size, sweep_of, three


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *[("8", 8), ("8B", 8), ("1K", 1024), ("1k", 1024), ("1.5K", 1536), (" 16 KiB ", 16384)],
        *[("64M", 64 << 20), ("64MiB", 64 << 20), ("64MB", 64 << 20), ("2G", 2 << 30)],
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "K", "8X", "-1", "1.5", "0x10", "1e3", "8 8"])
def test_what_is_no_size_is_said_so(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


def test_a_sweep_stops_at_its_end() -> None:
    assert sweep_of(8, 64, 2) == [8, 16, 32, 64]
    assert sweep_of(8, 63, 2) == [8, 16, 32]
    assert sweep_of(8, 8, 10) == [8]
    assert sweep_of(1, 1000, 10) == [1, 10, 100, 1000]


@pytest.mark.parametrize("bad", [(0, 8, 2), (16, 8, 2), (8, 16, 1), (8, 16, 0)])
def test_a_sweep_that_never_ends_is_refused(bad: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError):
        sweep_of(*bad)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8, 16])
def test_bus_bandwidth_is_that_of_nccl_tests(n: int) -> None:
    """The formulas of its PERFORMANCE.md, and of its sources for those that page leaves out."""
    assert bus_factor("all_reduce", n) == pytest.approx(2 * (n - 1) / n)
    for name in ("reduce_scatter", "all_gather", "all_to_all", "gather", "scatter"):
        assert bus_factor(name, n) == pytest.approx((n - 1) / n)
    for name in ("broadcast", "reduce", "send_recv", "barrier"):
        assert bus_factor(name, n) == 1


def test_elements_are_whole_and_parts_equal() -> None:
    assert elements(8, 4, 4, blocks=False) == 2
    assert elements(8, 4, 4, blocks=True) == 4
    assert elements(9, 4, 2, blocks=False) == 3
    assert elements(1024, 4, 3, blocks=True) == 258


def test_units_are_for_people() -> None:
    assert [binary(n) for n in (0, 8, 1023, 1024, 1536, 16384, 64 << 20, 1 << 30)] == [
        *("0 B", "8 B", "1023 B", "1 KiB", "1536 B", "16 KiB", "64 MiB", "1 GiB")
    ]
    assert [duration(s) for s in (8.3e-7, 1.24e-2, 0.00035)] == ["0.830 µs", "12.4 ms", "350 µs"]
    assert [three(x) for x in (0.0, 0.01234, 1.234, 12.34, 123.4, 12345.6)] == [
        *("0", "0.012", "1.23", "12.3", "123", "12346")
    ]
    assert three(float("nan")) == "-"
