"""One script's side of hocket: every command that it calls goes through `Script.reply`, whichever way it came."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ..calls.work import Work
from ..launch import aftermath
from . import distributed as d
from . import tensors as t
from .commands import Command
from .errors import CommandError, code_of
from .handles import Handles

FUNCTIONS: tuple[Callable[..., Any], ...] = (
    *(d.distributed_init, d.distributed_finalize, d.get_rank, d.get_world_size, d.is_distributed),
    *(d.distributed_all_reduce, d.distributed_reduce, d.distributed_broadcast, d.distributed_gather),
    *(d.distributed_all_gather, d.distributed_scatter, d.distributed_reduce_scatter, d.distributed_all_to_all),
    *(d.distributed_barrier, d.distributed_send, d.distributed_recv, d.distributed_isend, d.distributed_irecv),
    *(d.distributed_wait, d.distributed_test, d.distributed_new_group),
    *(t.tensor_create, t.zeros, t.ones, t.full, t.empty, t.arange, t.randn),
    *(t.tensor_shape, t.tensor_dtype, t.tensor_data, t.tensor_item, t.tensor_print),
    *(t.tensor_add, t.tensor_sub, t.tensor_mul, t.tensor_div, t.tensor_free, t.tensor_list),
)
# Second names, beside the camelCase that every command has.
ALSO = {
    "tensor_data": ("tensor_to_list", "tensorToList"),
    **{f"tensor_{short}": (short,) for short in ("add", "sub", "mul", "div")},
}
COMMANDS = tuple(Command(function, *ALSO.get(function.__name__, ())) for function in FUNCTIONS)
_BY_NAME = {name: command for command in COMMANDS for name in command.names}
NAMES = tuple(_BY_NAME)

# How a command ended.
OK, PRINT, ERROR = "ok", "print", "error"


class Script:
    """Its handles, and how its last error ends it."""

    def __init__(self) -> None:
        self._handles = Handles()
        self._exit_code = 1

    def reply(self, name: str, words: Sequence[str]) -> tuple[str, ...]:
        """What came of that command: OK or PRINT and a text, or ERROR, its text and the words of its error code."""
        try:
            command = _BY_NAME.get(name)
            if command is None:
                raise CommandError(f'there is no command "torch::{name}"', "UnknownCommand", name)
            result = command(self._handles, words)
        except Exception as error:
            self._exit_code = aftermath.exit_code(error)
            return ERROR, str(error) or type(error).__name__, *code_of(error)
        return (PRINT if isinstance(result, t.Printed) else OK), self._word(result)

    def _word(self, result: Any) -> str:
        if isinstance(result, np.ndarray):
            return self._handles.tensors.put(result)
        if isinstance(result, Work):
            return self._handles.requests.put(result)
        if isinstance(result, bool):
            return str(int(result))
        return "" if result is None else str(result)

    def leave(self, status: int, error: str, code: str) -> int:
        """The script ends with that status, after that error. What it is to end with, so that `hocket run` can tell
        whose error came first."""
        with suppress(Exception):  # there is nobody left to be told
            self._handles.close(None if status == 0 else error or f"exit code {status}")
        return self._exit_code if status == 1 and code == "HOCKET" else status
