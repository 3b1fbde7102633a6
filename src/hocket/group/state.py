"""A program's state, taken apart into arrays and a text that tells how they hang together; and put back.

```
{"step": 3, "w": array, "net": module}   ─▶   {"step": 3, "w": <0>, "net": {"bias": <1>}}, [w, bias]
```

The arrays are NumPy's or torch's, or others that speak DLPack; around them there may be dicts, lists, tuples, numbers,
texts and None, and objects that have state_dict() and load_state_dict(), as torch's modules and optimizers. Nothing is
pickled. What is put back goes into the arrays that are there where these fit, so that whoever else holds them sees it.

Arrays that are one, by two names, are one on every rank. Of those that only share memory, as a view does with its base,
that is no form that can be made anew: where they do not share it in the same way on another rank, that is an error.
Inside of an object it is that object's own affair.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from ..arrays.adopt import adopt, is_number, like, overlap, same, writable
from ..arrays.ops import DTYPES

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

ARRAY, NUMBER, OBJECT, DICT, LIST, TUPLE, PLAIN = range(7)
_DTYPES = {dtype.name: dtype for dtype in DTYPES}


class Snapshot:
    """A state at one time: `text` tells its form, and `arrays` are copies of its own."""

    def __init__(self, text: str = "", arrays: list[Array] | None = None) -> None:
        self.text, self.arrays = text, arrays or []

    def take(self, state: Any) -> None:
        """Become a copy of the state as it is now. Raises TypeError for what cannot be one, and is as it was then."""
        found: list[Array] = []
        form = _apart(state, found, "state")
        text = json.dumps([form, _ties(found, form)])
        kept = self.arrays if [_look(a) for a in self.arrays] == [_look(a) for a in found] else None
        arrays = [np.empty(array.shape, array.dtype) for array in found] if kept is None else kept
        for mine, theirs in zip(arrays, found, strict=True):
            np.copyto(mine, theirs)
        self.text, self.arrays = text, arrays

    def put_back(self, state: Any) -> None:
        """Make the state what it was."""
        form, ties = json.loads(self.text)
        _Putting(self.arrays, ties).put_back(form, state)

    @property
    def looks(self) -> str:
        """Those of its arrays, as another rank needs them to make `empty` ones."""
        return json.dumps([_look(array) for array in self.arrays])

    @staticmethod
    def empty(text: str, looks: str) -> Snapshot:
        """One of that form, whose arrays are still to be filled."""
        arrays = [np.empty(shape, _DTYPES[name]) for name, shape in json.loads(looks)]
        return Snapshot(text, arrays)


def _apart(value: Any, arrays: list[Array], where: str) -> list[Any]:
    """Its form; its arrays are added."""
    if value is None or type(value) in (bool, int, float, str):
        return [PLAIN, value]
    if isinstance(value, Mapping):
        for key in value:
            if type(key) not in (str, int):
                raise TypeError(f"{where} has the key {key!r:.40}: keys of a state are texts and integers")
        return [DICT, [[key, _apart(each, arrays, f"{where}[{key!r}]")] for key, each in value.items()]]
    if type(value) in (list, tuple):
        forms = [_apart(each, arrays, f"{where}[{i}]") for i, each in enumerate(value)]
        return [LIST if type(value) is list else TUPLE, forms]
    if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
        return [OBJECT, _apart(value.state_dict(), arrays, f"{where}.state_dict()")]
    if isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__dlpack__"):
        try:
            array = adopt(value)
        except TypeError as error:
            raise TypeError(f"{where}: {error}") from None
        number = is_number(value)
        arrays.append(array)
        return [NUMBER if number else ARRAY, len(arrays) - 1, type(value).__module__.partition(".")[0], where]
    raise TypeError(
        f"{where} is {value!r:.60}, of {type(value).__name__}: a state is made of arrays, numbers, texts, dicts, "
        "lists, tuples, None, and what has state_dict() and load_state_dict()"
    )


def _ties(arrays: list[Array], form: list[Any]) -> list[tuple[int, int, bool]]:
    """Which two of a form's arrays share memory, the earlier one first, and whether they are the same elements."""
    numbers = sorted(_outside(form), key=lambda i: _bounds(arrays[i]))
    ties: list[tuple[int, int, bool]] = []
    near: list[int] = []  # those that reach beyond where the next one begins
    for i in numbers:
        begin = _bounds(arrays[i])[0]
        near = [j for j in near if _bounds(arrays[j])[1] > begin]
        ties += [(min(i, j), max(i, j), same(arrays[i], arrays[j])) for j in near if overlap(arrays[i], arrays[j])]
        near.append(i)
    return sorted(ties)


def _bounds(array: Array) -> tuple[int, int]:
    """The addresses of its first byte, and behind its last one."""
    steps = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)] if array.size else []
    begin = array.__array_interface__["data"][0]
    low, high = sum(min(step, 0) for step in steps), sum(max(step, 0) for step in steps)
    return begin + low, begin + high + array.itemsize


def _outside(form: list[Any]) -> Iterator[int]:
    """The arrays that are not an object's."""
    if form[0] == ARRAY:
        yield form[1]
    elif form[0] in (DICT, LIST, TUPLE):
        for each in form[1]:
            yield from _outside(each[1] if form[0] == DICT else each)


class _Putting:
    """A state on its way back: `arrays`, of which some are tied."""

    def __init__(self, arrays: list[Array], ties: list[tuple[int, int, bool]]) -> None:
        self._arrays = arrays
        self._tied = {frozenset(tie[:2]) for tie in ties}
        self._twins = {j: i for i, j, is_same in reversed(ties) if is_same}
        self._views = [(i, j) for i, j, is_same in ties if not is_same]
        self._there: dict[int, Array] = {}  # what has been put back, outside of objects
        self._wheres: dict[int, str] = {}

    def put_back(self, form: list[Any], live: Any) -> None:
        """Raises ValueError where arrays would not share memory as they did."""
        self._together(form, live)
        for i, j in self._views:
            a, b = self._there[i], self._there[j]
            if not overlap(a, b) or any(self._there[k].tobytes() != self._arrays[k].tobytes() for k in (i, j)):
                raise ValueError(
                    f"{self._wheres[i]} and {self._wheres[j]} share memory on another rank, and not in the same way on "
                    "this one: let only one of them be in the state, and make the other one of it"
                )

    def _together(self, form: list[Any], live: Any, inside: bool = False) -> Any:
        """The value of that form: `live` itself, changed, where it is of that kind and can be."""
        kind, what = form[0], form[1]
        if kind == OBJECT:
            if not callable(getattr(live, "load_state_dict", None)):
                raise TypeError(
                    f"the state has an object with state_dict() on another rank, and here {live!r:.60} in its place: "
                    "who joins brings objects of the same kind, into which what they hold is loaded"
                )
            live.load_state_dict(self._together(what, None, True))
            return live
        if kind == DICT:
            old, new = live if isinstance(live, dict) else {}, {}
            for key, each in what:
                new[key] = self._together(each, old.get(key), inside)
            old.clear()
            old.update(new)
            return old
        if kind in (LIST, TUPLE):
            old_ones = live if isinstance(live, (list, tuple)) and len(live) == len(what) else [None] * len(what)
            values = [self._together(each, old, inside) for each, old in zip(what, old_ones, strict=True)]
            if kind == TUPLE:
                return tuple(values)
            if isinstance(live, list):
                live[:] = values
                return live
            return values
        if kind == PLAIN:
            return what
        if kind == NUMBER:
            return self._arrays[what][()]
        return _made(self._arrays[what], live, form[2]) if inside else self._array(what, live, *form[2:])

    def _array(self, number: int, live: Any, package: str, where: str) -> Any:
        twin = self._there.get(self._twins.get(number, -1))
        there = _fitting(self._arrays[number], live)
        if twin is not None:
            value = live if there is not None and same(there, twin) else like(_pattern(live, package, twin), twin)
        elif there is None or any(self._are_one(number, there, i, other) for i, other in self._there.items()):
            value = _new(self._arrays[number], live, package)
        else:
            value = live
            np.copyto(there, self._arrays[number])
        self._there[number], self._wheres[number] = adopt(value), where
        return value

    def _are_one(self, number: int, array: Array, other: int, others: Array) -> bool:
        """Whether they share memory here, and do not where the state is from."""
        return frozenset((number, other)) not in self._tied and overlap(array, others)


def _made(array: Array, live: Any, package: str) -> Any:
    there = _fitting(array, live)
    if there is None:
        return _new(array, live, package)
    np.copyto(there, array)
    return live


def _fitting(array: Array, live: Any) -> Array | None:
    """What is there, if the array can be put into it."""
    try:
        there = writable(live.detach() if hasattr(live, "detach") else live)
    except (TypeError, ValueError):  # there is no array, or none that can be written
        return None
    return there if _look(there) == _look(array) else None


def _new(array: Array, live: Any, package: str) -> Any:
    return like(_pattern(live, package, array), array.copy())


def _pattern(live: Any, package: str, array: Array) -> Any:
    """Something of the kind that is wanted."""
    root: Any = sys.modules.get(package)
    return root.empty(0) if package == "torch" and root is not None else live if live is not None else array


def _look(array: Array) -> list[Any]:
    return [array.dtype.name, list(array.shape)]
