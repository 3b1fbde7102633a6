"""Functions that do different things have different hashes, and one that does the same has the same one everywhere."""

from __future__ import annotations

import enum
import math
import operator
import os
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache, partial, wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hocket.arrays.code_hash import LARGE, code_hash

Function = Callable[..., Any]


def written(text: str, **names: Any) -> Function:
    """The function `f` of a source text, with other globals than this module's."""
    space = {"np": np, **names}
    exec(text, space)
    return space["f"]  # type: ignore[no-any-return]


def body(line: str, **names: Any) -> Function:
    """A function of one line."""
    return written(f"def f(a, b, out, *more):\n    {line}\n", **names)


def closing_over(value: Any) -> Function:
    return lambda a, b, out: np.multiply(a, value, out=out)


def with_default(value: Any) -> Function:
    def f(a: Any, b: Any, out: Any, by: Any = value, *, key: Any = None) -> None: ...

    return f


def with_keyword(value: Any) -> Function:
    def f(a: Any, b: Any, out: Any, *, key: Any = value) -> None: ...

    return f


class Scaled:
    def __init__(self, by: Any) -> None:
        self.by = by

    def __call__(self, a: Any, b: Any, out: Any) -> None:
        out[...] = self.by * (a + b)

    def method(self, a: Any, b: Any, out: Any) -> None:
        out[...] = self.by * (a - b)


class Slotted:
    __slots__ = ("__by", "unset")

    def __init__(self, by: Any) -> None:
        self.__by = by

    def __call__(self, a: Any, b: Any, out: Any) -> None:
        out[...] = self.__by * (a + b)


class Opaque:
    """Of this, only the type is seen."""

    def __init__(self, state: Any) -> None:
        self.state = state


def fixed(*elements: float) -> Any:
    array = np.array(elements)
    array.flags.writeable = False
    return array


class Color(enum.Enum):
    RED, BLUE = 1, 2


def logged(function: Function) -> Function:
    @wraps(function)
    def around(*args: Any) -> Any:
        return function(*args)

    return around


NAN, OTHER_NAN = np.array([0x7FF8 << 48, 0x7FF8 << 48 | 1], np.uint64).view(np.float64).tolist()

# Values of which each differs from all others.
VALUES: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        2,
        -1,
        1 << 70,
        10**5000,
        0.0,
        -0.0,
        1.0,
        math.inf,
        NAN,
        OTHER_NAN,
        0j,
        1j,
        complex(0, -0.0),
    ),
    *("", "0", "1", b"", b"1", "\ud800", ..., (), (1,), (1, 2), (2, 1), (1, (2,)), ((1,), 2), [], set()),
    *(frozenset({1, 2}), frozenset({1, 3}), frozenset({(1, 2)}), {}),
    *(
        np.float32(1),
        np.float64(1),
        np.int8(1),
        np.dtype("f4"),
        np.dtype(">f4"),
        np.float32,
        float,
        int,
        math,
        operator,
    ),
    *(
        np.zeros(2),
        np.zeros(3),
        np.zeros((1, 2)),
        np.zeros(2, "f4"),
        fixed(0.0, 0.0),
        fixed(0.0, -0.0),
        fixed(0.0, 1.0),
    ),
    *(Color.RED, Color.BLUE, Color, len, max, math.hypot, operator.add, np.hypot, np.add, np.add.reduce, [].append),
    *(
        Opaque(1),
        object(),
        "a" * LARGE,
        "b" * LARGE,
        "a" * (LARGE + 1),
        "a" * (LARGE + 2),
        body("pass"),
        body("return 0"),
    ),
    *(Scaled(1), Scaled(2), Slotted(1), Slotted(2), Scaled(1).method, Scaled(2).method, partial(body("pass"), 1)),
]

PAIRS: dict[str, tuple[Function, Function]] = {
    "an operation": (lambda a, b, out: np.add(a, b, out=out), lambda a, b, out: np.multiply(a, b, out=out)),
    "an instruction": (body("out[...] = a + b"), body("out[...] = a - b")),
    "a constant": (lambda a, b, out: np.add(a, 2 * b, out=out), lambda a, b, out: np.add(a, 3 * b, out=out)),
    "a constant that is equal": (body("out[...] = 1.0"), body("out[...] = 1")),
    "the sign of zero": (body("out[...] = 0.0"), body("out[...] = -0.0")),
    "a constant set": (body("return a in {1, 2, 3}"), body("return a in {1, 2, 4}")),
    "the name of an attribute": (body("out[...] = a.real"), body("out[...] = a.imag")),
    "the name of a global": (body("g(a)", g=1, h=1), body("h(a)", g=1, h=1)),
    "where an error is caught": (
        written("def f(a, b, out):\n  g()\n  try: h()\n  except Exception: pass\n", g=len, h=max),
        written("def f(a, b, out):\n  try:\n    g()\n    h()\n  except Exception: pass\n", g=len, h=max),
    ),
    "a nested function": (body("return [(lambda: 1)() for x in a]"), body("return [(lambda: 2)() for x in a]")),
    "a global that a nested function reads": (body("return (lambda: g)()", g=1), body("return (lambda: g)()", g=2)),
    "a global that a nested class reads": (
        written("def f(a, b, out):\n  class C:\n    x = g\n", g=1),
        written("def f(a, b, out):\n  class C:\n    x = g\n", g=2),
    ),
    "a global": (body("out[...] = g * a", g=1.5), body("out[...] = g * a", g=2.5)),
    "a global that is not there": (body("out[...] = g * a", g=1.5), body("out[...] = g * a")),
    "a global in the place of a builtin": (body("out[...] = abs(a)"), body("out[...] = abs(a)", abs=operator.neg)),
    "the 300th global": (
        body("; ".join(f"g{i}" for i in range(300)), **{f"g{i}": 0 for i in range(299)}, g299=1),
        body("; ".join(f"g{i}" for i in range(300)), **{f"g{i}": 0 for i in range(299)}, g299=2),
    ),
    "a function that is called": (body("g(a)", g=body("return 1")), body("g(a)", g=body("return 2"))),
    "a function's function": (
        body("g(a)", g=body("h(a)", h=lambda x: x)),
        body("g(a)", g=body("h(a)", h=lambda x: -x)),
    ),
    "a closed over function": (closing_over(lambda: 1), closing_over(lambda: 2)),
    "defaults": (with_default(1), with_default(2)),
    "keyword defaults": (with_keyword(1), with_keyword(2)),
    "an argument's kind": (written("def f(a, b, out): pass"), written("def f(a, b, *, out): pass")),
    "what is wrapped": (logged(body("return 1")), logged(body("return 2"))),
    "what is wrapped by a builtin": (lru_cache(body("return 1")), lru_cache(body("return 2"))),
    "a partial's function": (partial(body("return 1"), 1), partial(body("return 2"), 1)),
    "a partial's arguments": (partial(body("return 1"), 1), partial(body("return 1"), 2)),
    "a partial's keywords": (partial(np.add, where=True), partial(np.add, where=False)),
    "another method": (Scaled(1), Scaled(1).method),
    "what a bound builtin belongs to": ("a".count, "b".count),
}


@pytest.mark.parametrize("what", PAIRS)
def test_a_difference_shows(what: str) -> None:
    one, other = PAIRS[what]
    assert code_hash(one) != code_hash(other)


@pytest.mark.parametrize("hide", [closing_over, with_default, with_keyword, Scaled, Slotted, partial(body, "g")])
def test_any_two_values_differ(hide: Callable[..., Function]) -> None:
    """As what is closed over, a default, an attribute or a global."""
    hidden = [hide(g=value) if isinstance(hide, partial) else hide(value) for value in VALUES]
    assert len({code_hash(function) for function in hidden}) == len(VALUES)


def test_the_same_code_elsewhere_is_the_same() -> None:
    line = "f = lambda a, b, out: np.add(a, k * b, out=out)"
    assert len({code_hash(written("\n" * lines + line, k=3)) for lines in (0, 1, 100)}) == 1


def test_an_attribute_is_no_global() -> None:
    """`rank` here is a name of each process's own."""
    assert code_hash(body("out[...] = a.rank", rank=1)) == code_hash(body("out[...] = a.rank", rank=2))


def test_equal_values_are_the_same_however_they_are_held() -> None:
    text = "".join(["some", "text"])  # not the same object as the literal
    assert code_hash(closing_over([text, "sometext"])) == code_hash(closing_over(["sometext"] * 2))
    assert code_hash(closing_over({1: 2, 3: 4})) == code_hash(closing_over({3: 4, 1: 2}))
    assert code_hash(closing_over(np.arange(8)[::2])) == code_hash(closing_over(np.array([0, 2, 4, 6])))


def test_of_other_objects_only_the_type_is_seen() -> None:
    assert code_hash(closing_over(Opaque(1))) == code_hash(closing_over(Opaque(2)))
    assert code_hash(Scaled([Opaque(1)])) == code_hash(Scaled([Opaque(2)]))
    assert code_hash(closing_over(np.array([object()]))) == code_hash(closing_over(np.array([object()])))


def test_running_does_not_change_it() -> None:
    """Python rewrites instructions while it runs them."""
    f = PAIRS["a constant"][0]
    before, a = code_hash(f), np.zeros(3)
    for _ in range(10_000):
        f(a, a, a)
    assert code_hash(f) == before


class Counting:
    def __init__(self) -> None:
        self.calls, self.by = 0, 2

    def __call__(self, a: Any, b: Any, out: Any) -> None:
        self.calls += 1
        out[...] = self.by * (a + b)

    def method(self, a: Any, b: Any, out: Any) -> None:
        self.calls += 1


def counting(start: int) -> Function:
    calls = start

    def f(a: Any, b: Any, out: Any) -> None:
        def count() -> None:
            nonlocal calls
            calls += 1

        count()

    return f


def test_what_a_function_writes_itself_is_not_compared() -> None:
    """A rank that folds more than another has called it more often."""
    text = "def f(a, b, out):\n    global calls\n    calls += 1\n"
    assert code_hash(written(text, calls=1)) == code_hash(written(text, calls=2))
    assert code_hash(counting(1)) == code_hash(counting(2))
    counter, other = Counting(), Counting()
    counter.calls = 7
    assert code_hash(counter) == code_hash(Counting())
    assert code_hash(counter.method) == code_hash(Counting().method)
    other.by = 3
    assert code_hash(other) != code_hash(Counting())
    assert code_hash(other.method) == code_hash(Counting().method), "it does not read that"


STATES: dict[str, tuple[Any, Any]] = {
    "list": ([], [np.ones(3), 2]),
    "dict": ({}, {"a": 1}),
    "set": (set(), {1}),
    "bytearray": (bytearray(), bytearray(b"1")),
    "array": (np.zeros(3), np.ones(3)),
    "in a tuple": ((1, []), (1, [2])),
}


@pytest.mark.parametrize("hide", [closing_over, with_default, with_keyword, Scaled, Slotted, partial(body, "g")])
@pytest.mark.parametrize("state", STATES)
def test_what_can_change_is_not_compared(hide: Callable[..., Function], state: str) -> None:
    """A log, a cache, memory to work in: a rank that folds more often than another has more of it."""
    one, other = (hide(g=value) if isinstance(hide, partial) else hide(value) for value in STATES[state])
    assert code_hash(one) == code_hash(other)


def test_circles_and_depths_end() -> None:
    space: dict[str, Any] = {}
    exec("def f(a, b, out): g()\ndef g(): f()\ndef h(a, b, out): h()", space)
    circle: list[Any] = [1]
    circle.append(circle)
    deep: tuple[Any, ...] = ()
    for _ in range(100_000):
        deep = (deep,)
    bound = Scaled(None)
    bound.by = bound.method
    functions = [space["f"], space["h"], closing_over(circle), closing_over(deep), closing_over((0,) * 10**6), bound]
    tree: Any = 0
    for _ in range(40):
        tree = (tree, tree)  # 2^40 leaves
    functions.append(closing_over(tree))
    assert len({code_hash(function) for function in functions}) == len(functions)


SCRIPT = """
import numpy as np
from functools import partial
from hocket.arrays.code_hash import code_hash

class Thing: pass
words = {"one", "two", "three", "four", "five"}
table = {"a": {1.5, "x", None}, frozenset(words): [float("nan"), -0.0, np.float32(2), np.arange(3)]}
hidden = Thing()
def helper(x): return x in {"red", "green", "blue", 5, None, 2.5}
def op(a, b, out, *, key=words):
    if helper(a) or table or hidden or a in {"alpha", "beta", "gamma"}:
        out[...] = np.hypot(a, b)
def deco(f, state):
    return lambda a, b, out: f(a, b, out) or state
for f in (op, helper, partial(op, key=table), deco(op, hidden), deco(op, words), deco(len, print), max, {1: 2}.get):
    print(code_hash(f))
"""


def test_every_process_finds_the_same() -> None:
    def run(seed: int) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        path = str(Path(__file__))  # any: the script's own name must not matter
        command = [sys.executable, "-c", f"__file__ = {path!r}\n" + "\n" * seed + SCRIPT]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout

    first = run(0)
    assert len(set(first.split())) == 8
    assert {run(seed) for seed in (1, 777)} == {first}
