"""A command: a Python function whose signature says all there is to its arguments.

Parameters before the `*` may be given by place or as options, `tensor` or `-tensor tensor`, those behind it as options
only; options come in any order, and some have a second name, by which torch's scripts know them. What has no default
must be given. The annotation of a parameter says what its word means, its default what is meant without one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args, get_type_hints

from .errors import CommandError, invalid
from .handles import Handles
from .values import OPERATION_NEEDED

# -1 and -inf are numbers.
_OPTION = re.compile(r"-(?!inf(inity)?$|nan$)[A-Za-z_]\S*", re.IGNORECASE)


@dataclass(frozen=True)
class Meaning:
    """What the words of a parameter stand for; `also` are other names of its option. A handle is looked up when all
    other words have been understood; where one is `needed`, an empty word is none."""

    read: Callable[[str], Any] | None = None
    find: Callable[[Handles, str], Any] | None = None
    also: tuple[str, ...] = ()
    needed: bool = False


@dataclass(frozen=True)
class Parameter:
    """One of a command."""

    name: str  # the function's; `async_` is the option -async
    option: str
    meaning: Meaning
    required: bool
    kind: inspect._ParameterKind

    @property
    def shown(self) -> str:
        """Its part of the command's usage."""
        if self.kind is inspect.Parameter.VAR_POSITIONAL:
            return f"?{self.option[1:]} ...?"
        return self.option[1:] if self.required else f"?{self.option[1:]}?"


class Command:
    """One that scripts call as `torch::name`, `torch::camelCaseName` or by another name of `also`."""

    def __init__(self, function: Callable[..., Any], *also: str) -> None:
        self.function = function
        self.name = function.__name__
        first, *rest = self.name.split("_")
        camel = first + "".join(part.capitalize() for part in rest)
        self.names = tuple(dict.fromkeys((self.name, camel, *also)))

    @cached_property
    def parameters(self) -> list[Parameter]:
        """In the order of the signature, after the handles."""
        hints = get_type_hints(self.function, include_extras=True)
        found = []
        for parameter in list(inspect.signature(self.function).parameters.values())[1:]:
            meaning = next(each for each in get_args(hints[parameter.name]) if isinstance(each, Meaning))
            required = parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL
            option = "-" + parameter.name.rstrip("_")
            found.append(Parameter(parameter.name, option, meaning, required, parameter.kind))
        return found

    @cached_property
    def positional(self) -> list[Parameter]:
        """What may be given by place."""
        return [each for each in self.parameters if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]

    @cached_property
    def rest(self) -> Parameter | None:
        """What takes any number of words."""
        return next((each for each in self.parameters if each.kind is inspect.Parameter.VAR_POSITIONAL), None)

    @cached_property
    def options(self) -> dict[str, Parameter]:
        """By their names."""
        named = [each for each in self.parameters if each is not self.rest]
        others = {f"-{name}": each for each in named for name in each.meaning.also}
        return others | {each.option: each for each in named}

    @cached_property
    def usage(self) -> str:
        """What may be given by place, as Tcl shows it: "torch::name tensor ?operation?"."""
        shown = [each.shown for each in (*self.positional, *([self.rest] if self.rest else []))]
        return " ".join([f"torch::{self.name}", *shown])

    @cached_property
    def required(self) -> set[str]:
        """The names of what must be given."""
        return {each.name for each in self.parameters if each.required}

    def __call__(self, handles: Handles, words: Sequence[str]) -> Any:
        """What the function makes of these words. Raises CommandError before anything is done where they are wrong."""
        given, more = self._sort(words)
        if not self.required <= given.keys():
            raise self._missing(given, words)
        values, wanted = {}, []
        for name, (meaning, word) in given.items():
            if meaning.find is not None:
                wanted.append((name, meaning.find, word))
            else:
                values[name] = word if meaning.read is None else meaning.read(word)
        for name, find, word in wanted:
            values[name] = find(handles, word)
        if self.rest is None:
            return self.function(handles, **values)
        find_one = self.rest.meaning.find
        return self.function(handles, *[find_one(handles, word) if find_one else word for word in more], **values)

    def _sort(self, words: Sequence[str]) -> tuple[dict[str, tuple[Meaning, str]], list[str]]:
        """What is given, by name, with its word, and the words that no parameter has for itself."""
        given: dict[str, tuple[Meaning, str]] = {}
        more: list[str] = []
        places, rest = iter(self.positional), iter(words)
        for word in rest:
            if word[:1] == "-" and _OPTION.fullmatch(word):
                parameter = self.options.get(word)
                if parameter is None:
                    raise CommandError(f"unknown option: {word}", "UnknownOption", word)
                value = next(rest, None)
                if value is None:
                    raise CommandError(f"missing value for option: {word}", "MissingValue", word)
            elif (parameter := next(places, None)) is not None:
                value = word
            elif self.rest is not None:
                more.append(word)
                continue
            else:
                raise self._wrong_args()
            if parameter.name in given:
                raise invalid(f"{parameter.option[1:]} is given twice")
            if value or not parameter.meaning.needed:
                given[parameter.name] = parameter.meaning, value
        return given, more

    def _missing(self, given: Mapping[str, object], words: Sequence[str]) -> CommandError:
        if len(words) < len(self.required) and not any(_OPTION.fullmatch(word) for word in words):
            return self._wrong_args()
        if "-operation" in self.options:
            return invalid(OPERATION_NEEDED)
        names = [each.option[1:] for each in self.parameters if each.required and each.name not in given]
        return invalid(f"Invalid arguments: {' and '.join(names)} required")

    def _wrong_args(self) -> CommandError:
        return CommandError(f'wrong # args: should be "{self.usage}"', "WrongArguments")
