"""Clusters as lines and files describe them, and over which links messages go."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from hocket.tuning.cluster import Cluster
from hocket.tuning.costs import Costs
from hocket.tuning.links import Links
from hocket.tuning.spec import cluster
from hocket.tuning.units import per_byte, pieces, seconds


def test_units() -> None:
    assert [seconds(text) for text in ("2us", "1.5 ms", "3s", "10ns", "4µs")] == pytest.approx(
        [2e-6, 1.5e-3, 3, 1e-8, 4e-6]
    )
    rates = [1 / per_byte(text) for text in ("100Gbit/s", "12.5GB/s", "1GiB/s", "8bit", "1MiB/s", "10Mbit")]
    assert rates == pytest.approx([12.5e9, 12.5e9, 2**30, 1, 2**20, 1.25e6])
    assert per_byte("inf") == 0
    assert pieces("20GB/s:1MiB:8GB/s") == ((2**20, pytest.approx(5e-11)), (math.inf, pytest.approx(1.25e-10)))


@pytest.mark.parametrize(
    ("how", "text", "words"),
    [
        (seconds, "2", "a time is a number with s, ms, us or ns, such as 2us, not '2'"),
        (seconds, "-1us", "such as 2us"),
        (per_byte, "100", "such as 100Gbit/s or 12.5GB/s, or inf, not '100'"),
        (per_byte, "0GB/s", "a rate is"),
        (pieces, "1GB/s:1MiB", "rates have rising sizes between them"),
        (pieces, "1GB/s:2M:2GB/s:1M:3GB/s", "rising sizes"),
        (pieces, "1GB/s:x:2GB/s", "a size is a number of bytes"),
    ],
)
def test_units_that_are_none(how: object, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        how(text)  # type: ignore[operator]


def test_a_line_says_it_all() -> None:
    assert cluster("4x8") == Cluster("flat", (8,) * 4)
    assert cluster("5") == Cluster("flat", (1,) * 5)
    assert cluster("flat:x8", 20).sizes == (8, 8, 4)
    assert cluster("torus:2x3x4,ranks=2") == Cluster("torus", (2,) * 24, sides=(2, 3, 4))
    assert cluster("ring:6x2") == Cluster("torus", (2,) * 6, sides=(6,))
    made = cluster("fat-tree:64x8, oversubscription=2.5, leaf=4, nic=200Gbit/s, alpha=5us, cores=4, nics=rank")
    assert (made.oversubscription, made.leaf, made.cores, made.nics) == (2.5, 4, 4, "rank")
    assert made.costs == Costs(nic=pytest.approx(4e-11), alpha=pytest.approx(5e-6))
    assert (made.ranks, made.hosts, made.places[7:9]) == (512, 64, (0, 1))
    assert made.effort.tolist() == [2.0] * 512
    wan = cluster("wan:2x3x4,between=1Gbit/s,distance=5ms")
    assert (wan.sites, wan.hosts, wan.rates[0][1], wan.distances[1][0]) == (
        2,
        6,
        pytest.approx(8e-9),
        pytest.approx(5e-3),
    )


FILE = {
    "kind": "wan",
    "shape": "3x1x2",
    "rates": [["inf", "1Gbit/s", 0], ["1Gbit/s", "inf", "2Gbit/s"], [0, "2Gbit/s", "inf"]],
    "distances": [[0, "5ms", "0"], ["5ms", 0, "7ms"], ["0", "7ms", 0]],
}


def test_a_file_says_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(FILE))
    made = cluster(str(tmp_path / "a.json"), 6)
    assert made.rates[0][2] == math.inf
    assert made.distances[1] == pytest.approx((5e-3, 0, 7e-3))
    path = Links(made).paths(np.array([0]), np.array([5]))
    assert [Links(made).name(int(link)) for link in path.link] == [
        "NIC of host 0, out",
        "NIC of host 2, in",
        "site 0 to site 1",
        "site 1 to site 2",
    ]
    assert path.latency[0] == pytest.approx(2e-6 + 12e-3)
    (tmp_path / "uneven.json").write_text('{"shape": [4, 4, 2]}')
    assert cluster(str(tmp_path / "uneven.json")).sizes == (4, 4, 2)


def test_toml_says_the_same(tmp_path: Path) -> None:
    text = "\n".join(f"{key} = {json.dumps(value)}" for key, value in FILE.items())
    (tmp_path / "a.toml").write_text(text)
    (tmp_path / "a.json").write_text(json.dumps(FILE))
    if sys.version_info < (3, 11):
        with pytest.raises(ValueError, match=r"TOML needs Python 3\.11; the same keys may be in a \.json"):
            cluster(str(tmp_path / "a.toml"))
    else:
        assert cluster(str(tmp_path / "a.toml")) == cluster(str(tmp_path / "a.json"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hypercube:4x4", "there is no kind of cluster 'hypercube'; there are flat, fat-tree, rail, ring, torus, wan"),
        ("4x8,latency=2us", "flat has no 'latency'; it has alpha, hop, local"),
        ("4x8,leaf=2", "flat has no 'leaf'"),
        ("torus:4x4,nics=rank", "torus has no 'nics'"),
        ("4x8,alpha=2", "4x8,alpha=2: alpha: a time is a number with s"),
        ("4x8,alpha", "after the shape come key=value with commas, each key once, not 'alpha'"),
        ("4x8,hop=1us,hop=2us", "each key once"),
        ("", "a shape is hosts x ranks on each, such as flat:4x8, or x8, not ''"),
        ("0x8", "a shape is"),
        ("4x8x2", "flat is hosts x ranks on each, such as flat:4x8, not '4x8x2'"),
        ("wan:2x4", "a wan is sites x hosts x ranks, such as wan:2x16x8"),
        ("x8", "x8 takes as many hosts as a number of ranks needs: say that too, with --ranks"),
        ("9999999x9999999", "there are 1 to 1048576 ranks"),
        ("4x8,cores=0", "cores is a whole number above 0, not '0'"),
        ("4x8,nics=two", "nics is host or rank"),
        ("fat-tree:4x8,oversubscription=0", "oversubscription is a number above 0"),
        ("fat-tree:4x8,oversubscription=x", "oversubscription: could not convert"),
        ("none.toml", "none.toml cannot be read: No such file or directory"),
    ],
)
def test_what_is_wrong_is_told(text: str, words: str) -> None:
    with pytest.raises(ValueError) as told:
        cluster(text)
    assert words in str(told.value)


def test_files_that_are_wrong_are_told(tmp_path: Path) -> None:
    for text, words in (
        ("{", "a.json: "),
        ("[]", "a cluster has at least a shape"),
        ('{"shape": [0]}', "a shape that is a list has the number of ranks of each host"),
        ('{"kind": "wan", "shape": "2x1x1", "rates": [["inf"]]}', "rates is a matrix of 2 by 2"),
        ('{"kind": "wan", "shape": "2x1x1", "rates": [["inf", "inf"]]}', "rates is a matrix of 2 by 2"),
        ('{"shape": "4x8", "nic": 5}', "nic: a rate is a number"),
    ):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(ValueError) as told:
            cluster(str(tmp_path / "a.json"))
        assert words in str(told.value)
    with pytest.raises(ValueError, match="this cluster has 32 ranks, not 33; flat:x8 has as many hosts as it takes"):
        cluster("4x8", 33)


@pytest.mark.parametrize(
    ("text", "slow", "cut", "words"),
    [
        ("4x8", "7:3x", "", "slow is a rank or a host and how many times, such as rank=7:3x, not '7:3x'"),
        ("4x8", "rank=32:3x", "", "rank=32:3x: there is no rank 32; they are 0 to 31"),
        ("4x8", "host=0:0x", "", "slow is"),
        ("4x8", "", "3", "what is cut is nic=3, link=3-4 or site=0-1, not '3'"),
        ("4x8", "", "nic=4", "there is no NIC 4; each host has one, from 0 to 3"),
        ("4x8", "", "link=0-1", "only in a ring and a torus have two hosts a link of their own; nic=0 is cut here"),
        ("4x8", "", "site=0-1", "only a wan has sites"),
        ("torus:4x4", "", "link=0-5", "there is no such link"),
        ("torus:4x4", "", "nic=0", "a ring and a torus have no NICs, but links"),
        ("wan:2x1x1", "", "site=0-2", "there is no such link"),
        ("wan:2x1x1", "", "site=1-1", "there is no such link"),
    ],
)
def test_what_cannot_be_slow_or_cut_is_told(text: str, slow: str, cut: str, words: str) -> None:
    with pytest.raises(ValueError) as told:
        cluster(text).slowed(slow) if slow else cluster(text).without(cut)
    assert words in str(told.value)


def test_a_torus_is_gone_through_by_the_shorter_way() -> None:
    links = Links(cluster("torus:4x5"))
    for here in range(20):
        for there in set(range(20)) - {here}:
            path = links.paths(np.array([here]), np.array([there]))
            (a, b), (c, d) = divmod(here, 5), divmod(there, 5)
            hops = min((a - c) % 4, (c - a) % 4) + min((b - d) % 5, (d - b) % 5)
            assert len(path.link) == len(set(path.link.tolist())) == hops


def test_names_of_links() -> None:
    links = Links(cluster("fat-tree:4x2,leaf=2"))
    path = links.paths(np.array([0, 0, 0]), np.array([1, 2, 7]))
    named = [(int(m), links.name(int(link))) for m, link in zip(path.message, path.link, strict=True)]
    assert sorted(named) == [
        (0, "memory of host 0"),
        (0, "shared memory, rank 1"),
        (1, "NIC of host 0, out"),
        (1, "NIC of host 1, in"),
        (2, "NIC of host 0, out"),
        (2, "NIC of host 3, in"),
        (2, "leaf 0, up"),
        (2, "leaf 1, down"),
    ]
    rail = Links(cluster("rail:2x3"))
    crossing = rail.paths(np.array([0]), np.array([5])).link
    assert [rail.name(int(link)) for link in crossing][2:] == ["rail 0, up", "rail 2, down"]
    assert Links(cluster("ring:3x1")).name(6) == "link of host 0, side 0 forth"
