"""Writes docs/api.md from the docstrings: `python docs/generate_api.py`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import hocket
from hocket import errors
from hocket.calls.messages import Message
from hocket.calls.metrics import Statistics
from hocket.plans import plan as words
from hocket.plans.algorithms import combine
from hocket.tuning.topology import Topology

PAGE = Path(__file__).with_name("api.md")

HEAD = """\
# Reference

<!-- Written by docs/generate_api.py from the docstrings. Change these, not this. -->

What a program may use, with the words of its docstrings: `help(hocket.Group)` shows the same. The command line teaches
itself: `hocket --help`. The algorithms have [a page of their own](algorithms.md), and so have
[torch](torch.md), [Tcl](tcl.md), [Ray](launchers.md), [metrics](metrics.md) and the variables for
[several hosts](hosts.md).
"""

# Parts of the page, and what each shows, in this order.
PARTS: dict[str, list[tuple[str, Any]]] = {
    "Starting": [
        ("hocket.init", hocket.init),
        ("hocket.join", hocket.join),
        ("hocket.elastic", hocket.elastic),
        ("hocket.spawn", hocket.spawn),
    ],
    "Groups": [("hocket.Group", hocket.Group)],
    "Operators": [("hocket.whole_rows", hocket.whole_rows)],
    "What calls give back": [
        ("hocket.Work", hocket.Work),
        ("hocket.wait_all", hocket.wait_all),
        ("hocket.wait_any", hocket.wait_any),
        ("Message", Message),
        ("hocket.Received", hocket.Received),
        ("hocket.Envelope", hocket.Envelope),
        ("Statistics", Statistics),
        ("Topology", Topology),
    ],
    "Errors": [
        (f"hocket.{name}", getattr(errors, name))
        for name in (
            "HocketError",
            "RendezvousError",
            "CollectiveTimeout",
            "PeerLost",
            "MismatchError",
            "PlanError",
            "GroupBroken",
        )
    ],
    "Plans": [
        ("hocket.plan", hocket.plan),
        ("hocket.Plan", hocket.Plan),
        ("hocket.check", hocket.check),
        ("hocket.Facts", hocket.Facts),
        ("hocket.count", hocket.count),
        ("hocket.interpret", hocket.interpret),
        ("hocket.read_plan", hocket.read_plan),
    ],
    "The words of a plan: `from hocket.plans.plan import ...`": [
        (name, getattr(words, name)) for name in ("inp", "out", "tmp", "copy", "reduce", "join")
    ],
    "Plans of plans: `from hocket.plans.algorithms.combine import ...`": [
        (name, getattr(combine, name)) for name in ("then", "beside", "onto", "folded", "scattered")
    ],
}


def page() -> str:
    """The text of docs/api.md."""
    return "\n".join([HEAD, *(part(title, things) for title, things in PARTS.items())])


def part(title: str, things: Iterable[tuple[str, Any]]) -> str:
    """One of its parts."""
    return "\n".join([f"## {title}\n", *(text for name, thing in things for text in entries(name, thing))])


def entries(name: str, thing: Any) -> Iterator[str]:
    """What is said of a function; of a class and of each of its public members that has a docstring of its own."""
    if not inspect.isclass(thing):
        yield entry(name, thing)
        return
    is_error = issubclass(thing, BaseException)
    own = thing.__dict__.get("__init__")
    yield entry(name, thing, with_signature=not is_error and name != "hocket.Group" and own is not None)
    for member, value in members(thing):
        if member.startswith("_") or is_error:
            continue
        if isinstance(value, property) or is_cached(value):
            yield f"### {name.rpartition('.')[2]}.{member}\n\n{doc(value)}\n"
        elif callable(value) or isinstance(value, (staticmethod, classmethod)):
            yield entry(f"{name.rpartition('.')[2]}.{member}", getattr(thing, member))


def members(thing: type) -> Iterator[tuple[str, Any]]:
    """Those of a class itself; of the group, whose families of calls are a class each, those of all of them."""
    mro = thing.__mro__
    for each in (*mro[2:], mro[1], mro[0]) if thing is hocket.Group else [thing]:
        if each is not object:
            yield from vars(each).items()


def is_cached(value: Any) -> bool:
    """Whether it is a cached property."""
    return hasattr(value, "attrname") and bool(value.__doc__)


def entry(name: str, thing: Callable[..., Any], *, with_signature: bool = True) -> str:
    """A heading, how it is called, and what it does."""
    heading = f"### {name}\n"
    call = f"\n```python\n{signature(name, thing)}\n```\n" if with_signature else ""
    return f"{heading}{call}\n{doc(thing)}\n"


def signature(name: str, thing: Callable[..., Any]) -> str:
    """As one would write it, on one line if that is short; without `self`."""
    found = inspect.signature(thing)
    parts, star = [], False
    for each in found.parameters.values():
        if each.name == "self":
            continue
        if each.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            parts, star = [*parts, "*"], True
        parts.append(parameter(each))
    result = "" if found.return_annotation is inspect.Signature.empty else f" -> {text_of(found.return_annotation)}"
    short = f"{name}({', '.join(parts)}){result}"
    return short if len(short) <= 100 else "\n".join([f"{name}(", *(f"    {each}," for each in parts), f"){result}"])


def parameter(each: inspect.Parameter) -> str:
    """One of them, with its type and its default."""
    text = each.name if each.annotation is inspect.Parameter.empty else f"{each.name}: {text_of(each.annotation)}"
    if each.default is inspect.Parameter.empty:
        return text
    default = f'"{each.default}"' if isinstance(each.default, str) else repr(each.default)
    return f"{text} = {default}"


def text_of(annotation: Any) -> str:
    """A type as the source has it."""
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def doc(thing: Any) -> str:
    """The docstring; a picture or a program in it, which is indented, becomes a block."""
    return re.sub(r"(?<=\S)\n(?=    \S)", "\n\n", inspect.cleandoc(thing.__doc__ or ""))


if __name__ == "__main__":
    PAGE.write_text(page())
