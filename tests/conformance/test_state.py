"""States taken apart and put back: into the arrays that are there, equal bit for bit, of every kind."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hocket.group.state import Snapshot


def copied(snapshot: Snapshot) -> Snapshot:
    """As another rank gets it."""
    other = Snapshot.empty(snapshot.text, snapshot.looks)
    for mine, theirs in zip(other.arrays, snapshot.arrays, strict=True):
        mine[...] = theirs
    return other


def test_what_was_changed_is_put_back_into_the_same_arrays() -> None:
    x, y = np.arange(6.0).reshape(2, 3), np.arange(4, dtype=np.int16)[::2]
    inner: dict[str, Any] = {"y": y, 7: [1, (2.5, None, "z", True)]}
    state: dict[str, Any] = {"x": x, "inner": inner, "n": np.float32(0.1), "empty": np.zeros((0, 3))}
    snapshot = Snapshot()
    snapshot.take(state)
    x += 1
    y[:] = 9
    inner[7][1] = "other"
    inner["more"] = 1
    state["n"], state["new"] = 5, [1]
    del state["empty"]
    snapshot.put_back(state)
    assert state["x"] is x
    assert (x == np.arange(6.0).reshape(2, 3)).all()
    assert state["inner"] is inner
    assert inner["y"] is y
    assert (y == [0, 2]).all()
    assert inner[7] == [1, (2.5, None, "z", True)]
    assert list(state) == ["x", "inner", "n", "empty"]
    assert list(inner) == ["y", 7]
    assert state["n"] == np.float32(0.1)
    assert type(state["n"]) is np.float32
    assert state["empty"].shape == (0, 3)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "complex64", "complex128"])
def test_another_rank_gets_the_same_bits(dtype: str) -> None:
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    x = np.frombuffer(np.random.default_rng(5).bytes(16 * kind.itemsize), kind if dtype != "bool" else np.uint8)
    x = x % 2 == 1 if dtype == "bool" else x
    snapshot, state = Snapshot(), {"x": x, "k": [1e-310, float("inf"), 2**70]}
    snapshot.take(state)
    for other in ({}, {"x": np.zeros(3), "k": None}, {"x": np.zeros(16, kind)}):
        live: dict[str, Any] = dict(other)
        copied(snapshot).put_back(live)
        assert live["x"].dtype == kind
        assert live["x"].tobytes() == x.tobytes()
        assert live["k"] == [1e-310, float("inf"), 2**70]


def test_what_is_put_back_is_nobody_elses() -> None:
    snapshot, state = Snapshot(), {"x": np.arange(3.0)}
    snapshot.take(state)
    live: dict[str, Any] = {}
    snapshot.put_back(live)
    live["x"][:] = 9
    again: dict[str, Any] = {}
    snapshot.put_back(again)
    assert (again["x"] == [0, 1, 2]).all()


def test_a_state_that_is_none_leaves_the_snapshot_as_it_was() -> None:
    snapshot, state = Snapshot(), {"x": np.arange(3.0)}
    snapshot.take(state)
    for bad, words in (
        ({"x": {1}}, r"state\['x'\] is .* of set"),
        ({1.5: 0}, "has the key 1.5"),
        ({"x": 1j}, "complex"),
    ):
        with pytest.raises(TypeError, match=words):
            snapshot.take(bad)
    with pytest.raises(TypeError, match=r"state\['x'\]: .*object"):
        snapshot.take({"x": np.array([None])})
    live: dict[str, Any] = {}
    snapshot.put_back(live)
    assert (live["x"] == [0, 1, 2]).all()


class Thing:
    """What has its state in a dict."""

    def __init__(self) -> None:
        self.held = {"x": np.zeros(2)}

    def state_dict(self) -> dict[str, Any]:
        return self.held

    def load_state_dict(self, held: dict[str, Any]) -> None:
        self.held = held


def test_who_joins_brings_the_objects() -> None:
    snapshot, thing = Snapshot(), Thing()
    thing.held["x"] += 3
    snapshot.take({"thing": thing})
    live = {"thing": Thing()}
    snapshot.put_back(live)
    assert (live["thing"].held["x"] == 3).all()
    for bad in ({}, {"thing": 5}):
        with pytest.raises(TypeError, match=r"an object with state_dict\(\) on another rank, and here (None|5) in its"):
            snapshot.put_back(bad)


def test_torchs_modules_and_optimizers() -> None:
    torch = pytest.importorskip("torch", reason="there is no torch here: make .venv/torch")

    def made() -> dict[str, Any]:
        torch.manual_seed(1)
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        return {"net": net, "optimizer": torch.optim.Adam(net.parameters()), "t": torch.ones(2, dtype=torch.bfloat16)}

    def step(state: dict[str, Any], number: int) -> None:
        state["optimizer"].zero_grad()
        state["net"](torch.full((5, 3), float(number)) + torch.arange(15.0).reshape(5, 3)).square().sum().backward()
        state["optimizer"].step()
        state["t"] += number

    first, snapshot = made(), Snapshot()
    step(first, 1)
    snapshot.take(first)
    parameter = first["net"][0].weight
    for number in (2, 3):
        step(first, number)
    there = made()  # of another rank, whose optimizer has done nothing yet
    copied(snapshot).put_back(there)
    snapshot.put_back(first)
    assert first["net"][0].weight is parameter
    for number in (2, 3):
        step(first, number)
        step(there, number)
    for name, value in first["net"].state_dict().items():
        assert torch.equal(value, there["net"].state_dict()[name]), name
    assert torch.equal(first["t"], there["t"])


def test_arrays_that_are_one_are_one_everywhere() -> None:
    """By two names, in one kind of array; wherever they were before that."""
    x = np.arange(5.0)
    snapshot, state = Snapshot(), {"x": x, "again": [x, x[:]], "other": x.copy()}
    snapshot.take(state)
    apart: dict[str, Any] = {"x": np.zeros(5), "again": [np.zeros(5), np.zeros(5)], "other": np.zeros(5)}
    kept, mixed = apart["x"], np.zeros(5)
    for live in ({}, apart, {"x": mixed, "other": mixed}, {"x": np.zeros(9)}, {"x": np.broadcast_to(1.0, 5)}, state):
        x += 1  # after that, or in the last one
        copied(snapshot).put_back(live)
        assert live["x"].tolist() == live["other"].tolist() == [0, 1, 2, 3, 4]
        live["x"][0] = 7
        assert [live["again"][0][0], live["again"][1][0], live["other"][0]] == [7, 7, 0]
    assert apart["x"] is kept
    assert state["x"] is x


def test_a_view_remains_one_or_that_is_an_error() -> None:
    base = np.arange(12.0).reshape(3, 4)
    snapshot = Snapshot()
    for cut in (np.s_[1:], np.s_[:, ::2], np.s_[::-1], np.s_[2, 3:]):
        snapshot.take({"base": base, "view": base[cut], "empty": base[:0]})
        there = np.zeros((3, 4))
        live = {"base": there, "view": there[cut], "empty": there[:0]}
        copied(snapshot).put_back(live)
        assert live["base"] is there
        assert (there == base).all()
        live["view"][...] = 5
        assert (there[cut] == 5).all()
        there, wrong = np.zeros((3, 4)), np.zeros(base[cut].shape)
        for other in ({}, {"base": there}, {"base": there, "view": wrong}, {"base": np.zeros(3), "view": wrong}):
            with pytest.raises(
                ValueError, match=r"state\['base'\] and state\['view'\] share memory on another rank, and"
            ):
                copied(snapshot).put_back(dict(other))


def test_a_view_at_another_place_is_an_error() -> None:
    base, snapshot = np.arange(4.0), Snapshot()
    snapshot.take({"base": base, "view": base[:2]})
    there = np.zeros(4)
    with pytest.raises(ValueError, match="not in the same way on this one"):
        copied(snapshot).put_back({"base": there, "view": there[1:3]})


def test_many_arrays_of_one_memory() -> None:
    """As the parameters of a model in a flat buffer."""
    flat = np.arange(900.0)
    state = {"flat": flat, **{str(i): flat[3 * i : 3 * i + 3] for i in range(300)}}
    snapshot = Snapshot()
    snapshot.take(state)
    flat[:] = 0
    snapshot.put_back(state)
    assert (flat == np.arange(900.0)).all()
    assert (state["299"] == [897, 898, 899]).all()
