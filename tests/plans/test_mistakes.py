"""What people write by mistake in an algorithm: one sentence, which says what and where."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import hocket
import hocket.plans.plan
from hocket.errors import PlanError
from hocket.plans import copy, inp, out, reduce, tmp
from hocket.plans.algorithms import combine, direct, plan
from hocket.plans.count import count
from hocket.plans.draw import draw, picture
from hocket.plans.plan import Front, Plan
from hocket.plans.prove import proved

Algorithm = Callable[[int], Any]


def line_of(function: Algorithm, after: int) -> str:
    return f"({__file__}:{function.__code__.co_firstlineno + after})"


def nothing(n: int) -> Any:
    yield copy(out(1), inp(0))
    yield


def slots(n: int) -> Any:
    yield out(0)


def a_list(n: int) -> Any:
    yield [copy(out(1), inp(0)), copy(out(2), inp(0))]


def a_pair(n: int) -> Any:
    yield copy(out(1), inp(0)), out(2)


def deep(n: int) -> Any:
    yield from combine.then(direct.broadcast(n), a_pair(n))


def no_columns(n: int) -> Any:
    yield Front(*np.zeros((8, 2)))


def uneven(n: int) -> Any:
    yield Front(*[np.zeros(2, np.int64)] * 7, np.ones(1, np.int64))


YIELDS: dict[str, tuple[Algorithm, str]] = {
    "nothing": (nothing, f"step 1 is None, not a Front or a tuple of them {line_of(nothing, 2)}"),
    "slots": (
        slots,
        f"step 0 is slots that no copy or reduce moves, not a Front or a tuple of them {line_of(slots, 1)}",
    ),
    "a list": (a_list, f"step 0 is a list, not a Front or a tuple of them {line_of(a_list, 1)}"),
    "a move and slots": (a_pair, f"step 0 is a tuple, not a Front or a tuple of them {line_of(a_pair, 1)}"),
    "inside of another": (deep, f"step 1 is a tuple, not a Front or a tuple of them {line_of(a_pair, 1)}"),
    "a front of floats": (
        no_columns,
        f"step 0 has columns that are not int64 or differ in length {line_of(no_columns, 1)}",
    ),
    "columns of two lengths": (
        uneven,
        f"step 0 has columns that are not int64 or differ in length {line_of(uneven, 1)}",
    ),
    "a list of ints": (lambda n: [1, 2], "step 0 is 1, not a Front or a tuple of them"),
    "a function without yield": (
        lambda n: None,
        "the algorithm returned None: it has no `yield`, and should yield steps",
    ),
    "a number": (lambda n: 7, "the algorithm returned 7, and should yield steps"),
    "one move": (lambda n: copy(out(1), inp(0)), "the algorithm returned a Front, and should yield steps"),
}


@pytest.mark.parametrize("what", YIELDS)
def test_what_is_yielded_is_no_step(what: str) -> None:
    function, text = YIELDS[what]
    made = Plan("broadcast", "mine", 3, 0, 1, partial(function, 3))
    asks: list[Callable[[], object]] = [
        lambda: plan("broadcast", function, 3),
        lambda: proved("broadcast", function, 3),
        lambda: proved("broadcast", made, 3),
        lambda: hocket.check(made),
        lambda: count(made),
        lambda: draw(made),
        lambda: hocket.interpret(made, [np.ones(2), None, None]),
        made.to_json,
        lambda: hash(made),
    ]
    for number, ask in enumerate(asks):
        at = f" {line_of(function, 0)}" if number < 2 and " returned " in text else ""  # who has the function
        with pytest.raises(PlanError, match=re.escape(f": {text}{at}") + "$"):
            ask()


def alone() -> Any:
    yield copy(out(1), inp(0))


def itself(n: int) -> Any:
    alone(n)  # type: ignore[call-arg]
    yield copy(out(1), inp(0))


def test_a_function_of_something_else() -> None:
    words = (
        f"broadcast alone over 3 ranks: the algorithm is not a function of the number of ranks {line_of(alone, 0)}: "
    )
    for ask in (plan, proved):
        with pytest.raises(PlanError, match="^" + re.escape(words) + r"alone\(\) takes 0 positional arguments"):
            ask("broadcast", alone, 3)
        with pytest.raises(TypeError, match=r"^alone\(\) takes 0"):  # of its own
            ask("broadcast", itself, 3)
    with pytest.raises(PlanError, match="is not a function of the number of ranks and the root"):
        proved("reduce", nothing, 3, 1)


def half(n: int) -> Any:
    for rank in range(1, n):
        yield reduce(out(0), inp(rank))


def test_a_plan_that_ends_wrong_names_the_line_that_did_it() -> None:
    for change, size in ((half, 2), (half, 4)):  # the last step, of those that never write what is wrong
        with pytest.raises(PlanError, match=re.escape(f"(no move ever writes it) {line_of(half, 2)}") + "$"):
            proved("all_reduce", change, size)

    def twice(n: int) -> Any:
        yield from half(n)
        yield reduce(out(0), inp(1))
        yield copy(out(1), out(0))

    with pytest.raises(PlanError, match=re.escape(f"by r0.out[0] += r1.inp[0]) {line_of(twice, 2)}") + "$"):
        proved("all_reduce", twice, 2)


ENDS: dict[str, tuple[Callable[[], Front], str]] = {
    "half a rank": (lambda: copy(out(0.5), inp(0)), "is not a whole number of 64 bits"),  # type: ignore[arg-type]
    "a whole float": (lambda: reduce(out(1), inp(0, 2.0)), "is not a whole number of 64 bits"),  # type: ignore[arg-type]
    "an array of floats": (lambda: copy(out(np.arange(3) / 1), inp(0)), "is not a whole number of 64 bits"),
    "a truth": (lambda: copy(out(True), inp(0)), "is not a whole number of 64 bits"),
    "a mask": (lambda: copy(out(np.arange(3) > 1), inp(0)), "is not a whole number of 64 bits"),
    "none": (lambda: copy(out(None), inp(0)), "is not a whole number of 64 bits"),  # type: ignore[arg-type]
    "text": (lambda: copy(tmp(0, 0, "2"), inp(0)), "is not a whole number of 64 bits"),  # type: ignore[arg-type]
    "more than 64 bits": (lambda: copy(tmp(0, 1 << 70), inp(0)), "is not a whole number of 64 bits"),
    "ends of two lengths": (
        lambda: copy(out(np.arange(3)), inp(np.arange(4))),
        "the ends of a copy do not fit each other",
    ),
}


@pytest.mark.parametrize("what", ENDS)
def test_indices_are_whole_numbers(what: str) -> None:
    make, text = ENDS[what]
    where = f"({__file__}:{make.__code__.co_firstlineno})"
    with pytest.raises(PlanError, match=f"{text} {re.escape(where)}: "):
        make()


def test_whole_numbers_of_any_kind_are_fine() -> None:
    wanted = str(copy(out(np.arange(2)), inp(np.arange(2))))
    for kind in ("u1", "i2", "i4", "u8", ">i8"):
        assert str(copy(out(np.arange(2, dtype=kind)), inp([0, 1]))) == wanted  # type: ignore[arg-type]
        assert str(copy(out(np.dtype(kind).type(1)), inp(0))) == str(copy(out(1), inp(0)))
    assert len(copy(out([]), inp(0))) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [(out(0), 1), (0, inp(1)), (out(0), copy(out(0), inp(1))), ((1, 0, 0, 1), inp(1))])
def test_moves_are_between_slots(wrong: Any) -> None:
    for verb in (copy, reduce):
        with pytest.raises(TypeError, match=rf"{verb.__name__}\(dst, src\) takes slots"):
            verb(*wrong)


def test_no_moves_are_fine() -> None:
    """An empty tuple, as a loop over nothing makes it."""
    made = Plan("broadcast", "mine", 2, 0, 1, lambda: [(), copy(out(1), out(0)), ()])
    assert [str(front) for front in made.fronts()] == ["r1.out[0] <- r0.out[0]"]


def on_and_on(n: int) -> Any:
    while True:
        yield copy(out(1), inp(0))


def silently(n: int) -> Any:
    while True:
        yield ()


def in_vain(n: int) -> Any:
    while True:
        yield copy(out(np.arange(0)), inp(0))


def ended(ask: Callable[[], object], words: str) -> None:
    with pytest.raises(PlanError, match=rf"{words}, which is more than can be meant: does it end\?"):
        ask()


@pytest.mark.parametrize("ask", [plan, proved])
def test_a_plan_that_never_ends_is_ended(ask: Any) -> None:
    """By the true bound."""
    ended(lambda: ask("broadcast", silently, 4), "broadcast silently over 4 ranks: more than 65536 steps")


@pytest.mark.parametrize(
    ("endless", "bound"),
    [(on_and_on, "STEPS"), (silently, "STEPS"), (in_vain, "STEPS"), (on_and_on, "MOVES")],
)
def test_whatever_is_asked_of_it_ends(monkeypatch: pytest.MonkeyPatch, endless: Algorithm, bound: str) -> None:
    monkeypatch.setattr(hocket.plans.plan, f"MOST_{bound}", 500)
    made = Plan("broadcast", "mine", 3, 0, 1, partial(endless, 3))
    words = f"more than 500 {bound.lower()}"
    for ask in (plan, proved):
        ended(lambda ask=ask: ask("broadcast", endless, 3), f"broadcast {endless.__name__} over 3 ranks: {words}")  # type: ignore[misc]
        ended(lambda ask=ask: ask("broadcast", combine.folded(endless), 5), words)  # type: ignore[misc]
        ended(lambda ask=ask: ask("broadcast", endless, 5, 3), words)  # type: ignore[misc]  # renamed for its root
    asks: list[Callable[[], object]] = [
        lambda: proved("broadcast", made, 3),
        lambda: hocket.check(made),
        lambda: count(made),
        lambda: draw(made),
        lambda: picture(made),
        lambda: hocket.interpret(made, [np.ones(2), None, None]),
        lambda: made.tmp_chunks,
        made.to_json,
        lambda: hash(made),
    ]
    for ask in asks:
        ended(ask, rf"Plan\(broadcast, mine, size=3, chunks=1\): {words}")


def test_a_plan_with_few_steps_of_far_too_many_moves_is_ended() -> None:
    wide = copy(tmp(1, np.zeros(1 << 22, np.int64)), inp(0))
    with pytest.raises(PlanError, match="wide: more than 33554432 moves"):
        for _ in hocket.plans.plan.walk((wide for _ in range(1 << 20)), "wide"):
            pass


def test_the_longest_plan_of_the_book_fits() -> None:
    """A ring over 4096 ranks: its steps and its moves."""
    n = 4096
    assert 2 * (n - 1) <= hocket.plans.plan.MOST_STEPS
    assert 2 * (n - 1) * n <= hocket.plans.plan.MOST_MOVES


def test_what_is_longer_is_refused_before_there_is_memory_for_it() -> None:
    """A ring over 16 384 ranks may be made, since its steps are turns of one front, but not be looked at."""
    made = plan("all_reduce", "ring", 16384)
    assert made.chunks == 16384
    for ask in (hocket.check, draw, count):
        with pytest.raises(PlanError, match="more than 33554432 moves"):
            ask(made)
