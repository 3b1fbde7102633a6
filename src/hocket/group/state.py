"""A program's state, taken apart into arrays and a text that tells how they hang together; and put back.

```
{"step": 3, "w": array, "net": module}   ─▶   {"step": 3, "w": <0>, "net": {"bias": <1>}}, [w, bias]
```

The arrays are NumPy's or torch's, or others that speak DLPack; around them there may be dicts, lists, tuples, numbers,
texts and None, and objects that have state_dict() and load_state_dict(), as torch's modules and optimizers. Nothing is
pickled. What is put back goes into the arrays that are there where these fit, so that whoever else holds them sees it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from ..arrays.adopt import adopt, is_number, like
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
        text = json.dumps(_apart(state, found, "state"))
        kept = self.arrays if [_look(a) for a in self.arrays] == [_look(a) for a in found] else None
        arrays = [np.empty(array.shape, array.dtype) for array in found] if kept is None else kept
        for mine, theirs in zip(arrays, found, strict=True):
            np.copyto(mine, theirs)
        self.text, self.arrays = text, arrays

    def put_back(self, state: Any) -> None:
        """Make the state what it was."""
        _together(json.loads(self.text), state, self.arrays)

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
            arrays.append(adopt(value))
        except TypeError as error:
            raise TypeError(f"{where}: {error}") from None
        return [NUMBER if is_number(value) else ARRAY, len(arrays) - 1, type(value).__module__.partition(".")[0]]
    raise TypeError(
        f"{where} is {value!r:.60}, of {type(value).__name__}: a state is made of arrays, numbers, texts, dicts, "
        "lists, tuples, None, and what has state_dict() and load_state_dict()"
    )


def _together(form: list[Any], live: Any, arrays: list[Array]) -> Any:
    """The value of that form: `live` itself, changed, where it is of that kind and can be."""
    kind, what = form[0], form[1]
    if kind == OBJECT:
        if not callable(getattr(live, "load_state_dict", None)):
            raise TypeError(
                f"the state has an object with state_dict() on another rank, and here {live!r:.60} in its place: who "
                "joins brings objects of the same kind, into which what they hold is loaded"
            )
        live.load_state_dict(_together(what, None, arrays))
        return live
    if kind == DICT:
        old, new = live if isinstance(live, dict) else {}, {}
        for key, each in what:
            new[key] = _together(each, old.get(key), arrays)
        old.clear()
        old.update(new)
        return old
    if kind in (LIST, TUPLE):
        old_ones = live if isinstance(live, (list, tuple)) and len(live) == len(what) else [None] * len(what)
        values = [_together(each, old, arrays) for each, old in zip(what, old_ones, strict=True)]
        if kind == TUPLE:
            return tuple(values)
        if isinstance(live, list):
            live[:] = values
            return live
        return values
    if kind == PLAIN:
        return what
    return arrays[what][()] if kind == NUMBER else _array(arrays[what], live, form[2])


def _array(array: Array, live: Any, package: str) -> Any:
    if isinstance(live, np.ndarray) or hasattr(live, "__dlpack__"):
        there = adopt(live)
        if _look(there) == _look(array) and there.flags.writeable:
            np.copyto(there, array)
            return live
    root: Any = sys.modules.get(package)
    pattern = root.empty(0) if package == "torch" and root is not None else live if live is not None else array
    return like(pattern, array.copy())


def _look(array: Array) -> list[Any]:
    return [array.dtype.name, list(array.shape)]
