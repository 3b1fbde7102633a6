"""The profile of a machine: its file, its line, what is predicted and chosen by it, and how it is found from times."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hocket.config.observed import profile_place
from hocket.plans.algorithms import ALGORITHMS, plan
from hocket.plans.check import check
from hocket.plans.collectives import find
from hocket.tuning.calibrate import Point, fitted, predicted
from hocket.tuning.choose import candidates, choose
from hocket.tuning.costs import Costs
from hocket.tuning.predict import MOST, cluster_of, predict
from hocket.tuning.profile import Profile, Regime
from hocket.tuning.saved import FORMAT, file_of, found, load, machine, save
from hocket.tuning.simulate import simulate
from hocket.tuning.spec import cluster
from hocket.tuning.topology import Topology

COSTS = Costs(shm=((65536.0, 1.1e-10), (math.inf, 3.3e-10)), reduce=0.1 + 0.2)
PROFILE = Profile(8, Regime(2.1e-5, COSTS), None, Regime(1e-4 / 3, Costs()))
ROUNDS_ARE_DEAR = Regime(0.0, Costs(local=1.0))
FOLDING_IS_DEAR = Regime(0.0, Costs(local=0.0, reduce=1.0))


def test_a_line_and_a_file_are_the_same_to_the_last_bit(tmp_path: Path) -> None:
    assert Profile.unpack(PROFILE.pack()) == PROFILE
    assert len(PROFILE.pack()) < 1000  # it fits into a card
    path = tmp_path / "deep" / "a profile"
    save(path, PROFILE, {"fits": {}})
    assert load(path).profile == PROFILE
    assert load(path).told["format"] == FORMAT
    assert [each.name for each in path.parent.iterdir()] == [path.name]  # nothing is left behind


def test_a_file_that_cannot_be_replaced_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "profile"
    save(path, PROFILE, {})
    before = path.read_bytes()
    with pytest.raises(TypeError):
        save(path, PROFILE, {"what JSON has not": object()})
    assert path.read_bytes() == before
    assert len([*tmp_path.iterdir()]) == 1


def test_processors_of_one_name_are_told_apart_by_their_family(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def cpuinfo(family: str) -> str:
        return f"processor\t: 0\ncpu family\t: {family}\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\ncpu family\t: 6\n"

    said, places = {}, set()
    for family in ("25", "26"):
        monkeypatch.setattr(Path, "read_text", lambda _, family=family: cpuinfo(family))
        said[family] = machine()
        places.add(file_of(tmp_path))
    assert {family: each["family"] for family, each in said.items()} == {"25": "25", "26": "26"}
    assert {each["processor"] for each in said.values()} == {"AMD EPYC"}
    assert len(places) == 2
    monkeypatch.setattr(Path, "read_text", lambda _: "CPU part\t: 0xd40\n")  # as on arm
    assert machine()["family"] == ""


def spoilt(**changed: Any) -> str:
    return json.dumps({"format": FORMAT, "fingerprint": "?", **PROFILE.plain(), **changed})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "damaged"),
        ("{", "damaged"),
        ("[]", "damaged"),
        ("[" * 100_000, "damaged"),
        ("x" * (1 << 17), "damaged"),
        (json.dumps({"format": FORMAT + 1}), "another version of hocket"),
        (spoilt(fingerprint="elsewhere"), "another machine"),
    ],
)
def test_what_is_no_profile_of_this_machine_is_told_with_a_remedy(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "profile"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"{says}.*hocket tune"):
        load(path)
    profile, why = found(path, True)
    assert profile is None
    assert str(path) in why


@pytest.mark.parametrize(
    "change",
    [
        {"cores": 0},
        {"cores": True},
        {"near": {}},
        {"near": [1]},
        *({"near": {**PROFILE.plain()["near"], "send": value}} for value in (-1e-9, math.nan, math.inf, "x", None)),
        *(
            {"near": {**PROFILE.plain()["near"], "shm": value}}
            for value in ([], 3, [[1, 1]], [[9, 1], [2, 1], [None, 1]])
        ),
    ],
)
def test_a_cost_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"cores|cost|shm"):
        Profile.of({**PROFILE.plain(), **change})


@pytest.mark.parametrize("text", ["", "7", "[]", "[8,null]", "[8,[1],null,null]", "{}", "[" * 100_000])
def test_a_line_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Profile.unpack(text)


def test_where_a_profile_is(tmp_path: Path) -> None:
    assert profile_place({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == (Path("/c/hocket"), False)
    assert profile_place({"XDG_CACHE_HOME": "relative", "HOME": "/h"}) == (Path("/h/.cache/hocket"), False)
    assert profile_place({"HOCKET_PROFILE": "/p", "HOME": "/h"}) == (Path("/p"), True)
    assert profile_place({"HOCKET_PROFILE": "none", "HOME": "/h"}) == (None, True)
    assert profile_place({}) == (None, False)
    assert found(tmp_path, False) == (None, "")  # who has none is not told so
    assert "which is not there" in found(tmp_path / "named", True)[1]
    save(file_of(tmp_path), PROFILE, {})
    assert found(tmp_path, False) == (PROFILE, "")


# ---- what is predicted and chosen ----


def test_a_prediction_is_what_the_model_says_with_these_costs() -> None:
    made = plan("all_reduce", "two_shot", 4)
    one = simulate(made, 1 << 20, cluster_of(PROFILE, (0,) * 4, PROFILE.near or ROUNDS_ARE_DEAR)).seconds
    assert predict("all_reduce", "two_shot", 1 << 20, Topology.of([0] * 4, profile=PROFILE)) == 2.1e-5 + one
    for places in ([0] * 9, [0, 1, 0, 1], [0], [0] * (MOST + 1), [*range(MOST + 1)]):  # crowded, not in blocks, ...
        assert predict("all_reduce", "two_shot", 8, Topology.of(places, profile=PROFILE)) is None
    assert predict("all_reduce", "two_shot", 8, Topology.of([0] * 4)) is None


@pytest.mark.parametrize("places", [[0] * 2, [0] * 5, [0] * 16])
def test_the_profile_decides(places: list[int]) -> None:
    for regime, name in ((ROUNDS_ARE_DEAR, "one_shot"), (FOLDING_IS_DEAR, "two_shot")):
        costs = regime.costs if name == "two_shot" else Costs(local=1.0)
        profile = Profile(8, Regime(0.0, costs), Regime(0.0, costs))
        for nbytes in (8, 1 << 24):
            choice = choose("all_reduce", nbytes, len(places), Topology.of(places, profile=profile))
            assert choice.algorithm == name
            ruled = choose("all_reduce", nbytes, len(places))
            assert ("profile" in choice.reason) == (ruled.algorithm != name)


def test_what_is_not_clearly_faster_is_not_taken() -> None:
    profile = Profile(8, FOLDING_IS_DEAR)
    for nbytes in (8, 1 << 12):
        slow = Profile(8, Regime(1.0, Costs()))  # so long does each call take that nothing else matters
        with_it = choose("all_reduce", nbytes, 2, Topology.of([0] * 2, profile=slow))
        assert with_it == choose("all_reduce", nbytes, 2)
    assert choose("all_reduce", 1 << 10, 2, Topology.of([0] * 2, profile=profile)).algorithm == "two_shot"


def test_cache_domains_are_beyond_it() -> None:
    profile = Profile(8, ROUNDS_ARE_DEAR)
    parted = Topology.of([0] * 8, domains=[0] * 4 + [1] * 4, profile=profile)
    assert choose("all_reduce", 1 << 30, 8, parted).algorithm == "hierarchical_chain"


def test_it_decides_among_what_has_the_same_bits() -> None:
    """Whatever a profile says, it can choose nothing but candidates; and these fold as what is chosen without one."""
    for collective in sorted({collective for collective, _ in ALGORITHMS}):
        for places in ([0] * 2, [0] * 5, [0, 0, 1, 1, 2], [0, 1, 0, 1], [0, 1, 2, 3]):
            for one_pass in (False, True):
                topology = Topology.of(places)
                names = candidates(collective, topology, one_pass=one_pass)
                ruled = {
                    choose(collective, 1 << bit, len(places), topology, one_pass=one_pass).algorithm
                    for bit in range(34)
                }
                assert ruled <= {*names}
                for name in names:
                    facts = check(plan(collective, name, len(places), places=tuple(places)))
                    assert facts.same_everywhere
                    assert (facts.rank_order and facts.size_invariant) or not find(collective).reduces


def test_one_that_measured_nothing_here_changes_nothing() -> None:
    empty = Profile(8)
    for nbytes in (0, 8, 1 << 20):
        far = Profile(8, None, None, ROUNDS_ARE_DEAR)  # between hosts the wire decides
        for places in ([0, 0, 1, 1], [0, 1, 2]):
            with_it = choose("all_reduce", nbytes, len(places), Topology.of(places, profile=far))
            assert with_it == choose("all_reduce", nbytes, len(places), Topology.of(places))
        with_it = choose("all_reduce", nbytes, 4, Topology.of([0] * 4, profile=empty))
        assert with_it == choose("all_reduce", nbytes, 4, Topology.of([0] * 4))


# ---- from times to costs ----


def test_the_costs_are_found_that_times_were_made_of() -> None:
    truth = Regime(2e-5, Costs(local=8e-7, shm=((65536.0, 2e-10), (math.inf, 3e-10)), reduce=5e-11))
    guess = Regime(1e-5, Costs(local=3e-7, shm=((65536.0, 1e-10), (math.inf, 1e-10))))
    where, seed = cluster("1x4"), 14
    rng = np.random.default_rng(seed)

    def point(algorithm: str, nbytes: int, noise: float) -> Point:
        bare = Point("all_reduce", algorithm, nbytes, (0,) * 4, 0.0)
        return bare._replace(seconds=predicted(truth, bare, where) * math.exp(noise * rng.standard_normal()))

    cases = [(name, 1 << bit) for name in ("one_shot", "two_shot", "ring") for bit in (8, 14, 18, 22)]
    points = [point(*case, 0.03) for case in cases]
    points[3] = points[3]._replace(seconds=9 * points[3].seconds)  # one that was disturbed
    found = fitted(points, guess, ("call", "local", "shm:0", "shm:1", "reduce"), lambda _: where)
    for case in [
        ("two_shot", 1 << 16),
        ("ring", 1 << 20),
        ("one_shot", 1 << 12),
    ]:  # none of those that it was fitted to
        fresh = point(*case, 0.0)
        assert predicted(found, fresh, where) == pytest.approx(fresh.seconds, rel=0.12), (seed, case)
    assert found.costs.send == guess.costs.send  # what is not asked for stays
