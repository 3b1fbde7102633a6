"""The page that plays plans: its script's sums are NumPy's, after every step, in V8 and in a browser.

The part that knows no page, `play.js`, runs in a JavaScript engine that pip installs. The whole page runs in headless
Chromium where there is one: there its buttons and keys are pressed, and the sums read out of its tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle import expected
from py_mini_racer import MiniRacer

from browser import Browser, Page, needs_a_browser
from hocket.errors import PlanError
from hocket.plans import copy, out, reduce
from hocket.plans.algorithms import ALGORITHMS, Algorithm, plan
from hocket.plans.collectives import COLLECTIVES, layout
from hocket.plans.draw.player import begin, page, playable
from hocket.plans.interpret import interpret
from hocket.plans.plan import OUT, Plan

SIZES = (1, 2, 3, 5, 8)
NAMES = [*ALGORITHMS]
GARBAGE = -1  # what interpret finds in int64 that was never written


@pytest.fixture(scope="module")
def script() -> Iterator[MiniRacer]:
    """An engine that has read play.js."""
    engine = MiniRacer()
    engine.eval(files("hocket.plans.draw").joinpath("web/play.js").read_text(encoding="utf-8"))
    yield engine
    engine.close()


def played(script: MiniRacer, made: Plan) -> list[Any]:
    """What the script finds in `out` before each step and at the end: integers [rank][chunk], None where nothing is."""
    script.eval(f"var plan = {json.dumps(playable(made))}; var {{ states, moves }} = play(plan);")
    return json.loads(script.eval(f"JSON.stringify(states.map((slots) => numbers(plan, slots, {OUT})))"))


def given(made: Plan) -> list[Any]:
    """The page's numbers as arrays, one for each rank."""
    inp = layout(made.collective, made.size, made.chunks, made.root).inp
    return [row[mine] if mine.any() else None for row, mine in zip(begin(made), inp, strict=True)]


def after(made: Plan, step: int) -> list[list[int]]:
    """What NumPy finds in `out` after the first steps, [rank][chunk]; GARBAGE where nothing is."""
    first = replace(made, source=lambda: [*islice(made.fronts(), step)])
    there = layout(made.collective, made.size, made.chunks, made.root).out
    table = np.full(there.shape, GARBAGE)
    for row, mine, got in zip(table, there, interpret(first, given(made), np.add), strict=True):
        row[mine] = got if got is not None else GARBAGE
    return table.tolist()


def garbage(tables: list[list[int | None]]) -> list[list[int]]:
    return [[GARBAGE if value is None else value for value in row] for row in tables]


@pytest.mark.parametrize("name", NAMES, ids="-".join)
def test_the_script_plays_what_numpy_computes(script: MiniRacer, name: tuple[str, str]) -> None:
    for size in SIZES:
        for root in {0, size - 1} if COLLECTIVES[name[0]].rooted else {0}:
            made = plan(*name, size, root)
            states = played(script, made)
            for step, state in enumerate(states):
                assert garbage(state) == after(made, step), (size, root, step)
            assert script.eval("wrong(plan, states.at(-1))") == 0
            wanted = expected(name[0], given(made), root, np.add)
            there = layout(name[0], size, made.chunks, root).out
            for row, mine, values in zip(states[-1], there, wanted, strict=True):
                assert np.array_equal(np.array(row)[mine], [] if values is None else values)


def test_whose_contributions_a_sum_is_made_of(script: MiniRacer) -> None:
    played(script, plan("all_reduce", "ring", 4))
    of = json.loads(script.eval("JSON.stringify(states.at(-1).get('out 2 1').of)"))
    assert sorted(of) == [[rank, 1] for rank in range(4)]
    played(script, plan("all_to_all", "bruck", 5))
    assert json.loads(script.eval("JSON.stringify(states.at(-1).get('out 4 2').of)")) == [[2, 4]]


def test_messages_are_counted_as_everywhere(script: MiniRacer) -> None:
    for name in NAMES:
        made = plan(*name, 6)
        played(script, made)
        assert script.eval("moves.reduce((sum, step) => sum + messages(step), 0)") == playable(made)["messages"]


def test_all_plans_of_a_page_begin_with_the_same_numbers() -> None:
    text = page([plan("all_reduce", name, 12) for name in ("one_shot", "ring")])
    (data,) = re.findall(r'<script id="plans" type="application/json">(.*?)</script>', text, re.DOTALL)
    one_shot, ring = json.loads(data)
    assert one_shot["out"][2] == [300]
    assert ring["out"][2] == [*range(300, 312)]
    assert one_shot["want"][0] == [sum(range(100, 1300, 100))]


def lost(n: int) -> Any:
    """A sum that lacks rank 2, and what was never written."""
    yield reduce(out(0), out(np.array([1, 3])))
    yield copy(out(np.arange(1, n)), out(0))


def test_a_wrong_plan_is_seen_to_be_wrong(script: MiniRacer) -> None:
    states = played(script, plan("all_reduce", lost, 4))
    assert states[-1] == [[70]] * 4
    assert script.eval("wrong(plan, states.at(-1))") == 4
    states = played(script, plan("broadcast", lambda n: [copy(out(2), out(1)), copy(out(1), out(0))], 3))
    assert states[-1] == [[10], [10], [None]]  # NaN has no JSON


def test_all_moves_of_a_step_read_before_any_writes(script: MiniRacer) -> None:
    """Also where a plan may not."""
    states = played(script, plan("broadcast", lambda n: [(copy(out(1), out(0)), copy(out(2), out(1)))], 3))
    assert states[-1] == [[10], [10], [None]]


def test_what_doubles_and_doubles_ends(script: MiniRacer) -> None:
    made = plan("all_reduce", lambda n: [reduce(out(np.arange(n)), out(1 - np.arange(n)))] * 50, 2)
    assert played(script, made)[-1] == [[30 << 49]] * 2


@pytest.mark.parametrize(
    ("collective", "algorithm", "size", "words"),
    [
        ("all_reduce", "ring", 17, "room for 16 ranks, and all_reduce ring over 17 ranks has 17; .* -n 8"),
        ("broadcast", lambda n: [copy(out(1, 0, 65), out(0, 0, 65))], 2, "room for 64 chunks, .* has 65"),
        ("broadcast", lambda n: [copy(out(1, 0, 64), out(0, 0, 64))] * 400, 2, "room for 20000 moves, .* has 25600"),
    ],
)
def test_what_is_too_much_for_a_page(collective: str, algorithm: str | Algorithm, size: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        page([plan(collective, algorithm, size)])


def test_a_plan_that_names_what_is_not_there() -> None:
    with pytest.raises(PlanError, match="none of the ranks 0 to 2"):
        page([plan("broadcast", lambda n: [copy(out(n), out(0))], 3)])


def test_the_page_needs_no_other_file_and_no_name_breaks_it() -> None:
    def odd(n: int) -> Any:
        yield copy(out(np.arange(1, n)), out(0))

    odd.__name__ = "</script><b>{{page.js}}"
    text = page([plan("broadcast", odd, 3), plan("broadcast", "direct", 3)])
    assert not re.search(r"(?:src|href)\s*=|url\(|@import|https?://(?!www\.w3\.org/2000/svg)", text)
    assert text.count("</script>") == 3
    (data,) = re.findall(r'<script id="plans" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert [each["algorithm"] for each in json.loads(data)] == [odd.__name__, "direct"]
    assert "<h1>broadcast over 3 ranks: &lt;/script&gt;" in text


# ---- in a browser ----

PLANS = [plan("all_reduce", name, 4) for name in ("ring", "two_shot", "recursive_halving")]
LAST = 6  # steps of the ring

# What each panel shows in the cells of `out`, and where one is.
LOOK = """
[document.querySelector("#where").textContent, [...document.querySelectorAll(".panel")].map((panel) => (
  Object.fromEntries([...panel.querySelectorAll("[data-slot^=out]")].map((cell) => (
    [cell.dataset.slot, cell.textContent])))))]
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


def opened(browser: Browser, folder: Path, text: str) -> Page:
    """A page of that text, which asks nobody for anything."""
    file = folder / "page.html"
    file.write_text(text, encoding="utf-8")
    return browser.page(file.as_uri())


def table(panel: dict[str, str], made: Plan) -> list[list[int]]:
    """`out` of a panel, as `after` gives it."""
    return [[int(panel[f"out {r} {c}"] or GARBAGE) for c in range(made.chunks)] for r in range(made.size)]


def looks(page: Page, step: int) -> None:
    """All panels show what NumPy computes in so many steps, once all chunks have landed."""
    page.until("!document.querySelector('.chip')")
    where, panels = page.ask(LOOK)
    assert where == f"Step {step} of {LAST}"
    for made, panel in zip(PLANS, panels, strict=True):
        assert table(panel, made) == after(made, step), (made, step)
    assert page.errors == []


@needs_a_browser
def test_buttons_and_keys_step_through_the_sums(browser: Browser, tmp_path: Path) -> None:
    shown = opened(browser, tmp_path, page(PLANS))
    assert shown.asked == [(tmp_path / "page.html").as_uri()]
    looks(shown, 0)
    for button, step in (("next", 1), ("next", 2)):
        shown.click(f"[data-do={button}]")
        looks(shown, step)
    for key, step in (("ArrowRight", 3), ("ArrowLeft", 2), ("End", LAST), ("ArrowRight", LAST), ("Home", 0)):
        shown.press(key)
        looks(shown, step)
    for button, step in (("last", LAST), ("back", LAST - 1), ("first", 0)):
        shown.click(f"[data-do={button}]")
        looks(shown, step)
    shown.click("#at")  # in its middle
    looks(shown, LAST // 2)
    shown.close()


@needs_a_browser
def test_it_plays_to_the_end_by_itself(browser: Browser, tmp_path: Path) -> None:
    """With chunks that fly: what they bring is there when they have landed."""
    shown = opened(browser, tmp_path, page(PLANS))
    shown.ask("Object.assign(document.querySelector('#speed'), { value: '4' }).dispatchEvent(new Event('change'))")
    shown.click("[data-do=play]")
    shown.until("document.querySelector('#where').textContent === 'Step 2 of 6'")
    shown.until("document.querySelector('#where').textContent === 'Step 6 of 6'")
    looks(shown, LAST)
    wanted = [int(total) for total in np.sum(begin(PLANS[0]), axis=0)]
    assert all(table(panel, made) == [wanted] * 4 for made, panel in zip(PLANS, shown.ask(LOOK)[1], strict=True))
    shown.close()


@needs_a_browser
def test_no_name_breaks_the_page_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    def odd(n: int) -> Any:
        yield copy(out(np.arange(1, n)), out(0))

    odd.__name__ = "</script><img src=x onerror=\"document.title='broken'\"><!--<script>{{page.js}}'`${1}\u2028"
    shown = opened(browser, tmp_path, page([plan("broadcast", odd, 3)]))
    shown.click("[data-do=next]")
    assert odd.__name__ in shown.ask("document.querySelector('h1').textContent")
    assert shown.ask("document.querySelectorAll('img').length") == 0
    assert shown.ask(LOOK)[0] == "Step 1 of 1"
    assert shown.errors == []
    shown.close()
