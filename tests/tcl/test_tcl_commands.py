"""What every command makes of its words, and what the pipe to a companion carries, without any Tcl; lists of numbers
against Tcl's own."""

from __future__ import annotations

import io
import random
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from hocket.tcl import companion, values
from hocket.tcl.commands import Command
from hocket.tcl.script import COMMANDS, NAMES, Script


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_wrong_words(command: Command) -> None:
    """Of each command alike: no option of that name, no value behind it, too many words, too few."""
    script = Script()
    script.reply("zeros", ["3"])
    usage = ("error", f'wrong # args: should be "{command.usage}"', "HOCKET", "WrongArguments")
    for name in command.names:
        assert script.reply(name, ["-nothing"]) == (
            "error",
            "unknown option: -nothing",
            *["HOCKET", "UnknownOption", "-nothing"],
        )
        for option in command.options:
            assert script.reply(name, [option])[1] == f"missing value for option: {option}"
        if command.rest is None:
            assert script.reply(name, ["tensor1"] * (len(command.positional) + 1)) == usage
        if command.required:
            assert script.reply(name, []) == usage
    assert script.reply("tensor_list", []) == ("ok", "tensor1")


def test_names() -> None:
    """One for each command, beside camelCase: nothing is called twice."""
    assert len(set(NAMES)) == len(NAMES) == sum(len(command.names) for command in COMMANDS)
    assert {"distributed_all_reduce", "distributedAllReduce", "get_rank", "getRank", "add", "tensorToList"} <= set(
        NAMES
    )


@pytest.mark.parametrize("kind", ["int64", "float64"])
def test_lists_are_tcls(kind: str) -> None:
    """Random arrays as nested lists, which Tcl has made, and back as Tcl reads them."""
    if find_spec("_tkinter") is None:
        pytest.skip("this Python has no tkinter: apt install python3-tk")
    from tkinter import Tcl

    interpreter, seed = Tcl(), random.randrange(2**32)
    rng = np.random.default_rng(seed)
    for _ in range(100):
        shape = tuple(rng.integers(2, 5, rng.integers(1, 4)))  # a list of one is to Tcl what is in it
        array = (rng.standard_normal(shape) * 10.0 ** rng.integers(-300, 300, shape)).astype(np.float64)
        array = rng.integers(-(2**63), 2**63 - 1, shape) if kind == "int64" else array
        interpreter.call("set", "nested", _nested(array.tolist()))
        word = interpreter.eval("set nested")
        read = values.array(word, array.dtype, None)
        assert read.dtype == array.dtype, f"seed {seed}"
        np.testing.assert_array_equal(read, array, err_msg=f"seed {seed}")
        flat = interpreter.splitlist(values.text(array))
        assert [type(array.item(0))(each) for each in flat] == array.ravel().tolist(), f"seed {seed}"


def _nested(values: Any) -> Any:
    return tuple(map(_nested, values)) if isinstance(values, list) else repr(values)


def test_words_come_through_the_pipe() -> None:
    """Whatever is in them; and where it ends in the middle of some, there are none."""
    words = ["name", "", " ", "a b\n", "ü\u20ac\U0001f3b5", '{\\"$[', "x" * 100_000, "\0"]
    stream = io.BytesIO()
    companion.send(stream, words)
    companion.send(stream, ["next"])
    whole = stream.getvalue()
    again = io.BytesIO(whole)
    assert [companion.receive(again), companion.receive(again), companion.receive(again)] == [words, ["next"], None]
    for cut in (0, 3, 50, 1000, len(whole) - len("4\nnext") - 1):
        assert companion.receive(io.BytesIO(whole[:cut])) is None
