"""What parameters of commands can mean: the annotations of `distributed.py` and `tensors.py`."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import numpy as np

from ..arrays.ops import OpName
from . import values
from .commands import Meaning
from .errors import invalid
from .handles import Array, Handles, Pending

FLOAT32 = np.dtype(np.float32)  # torch's default


def _known(handles: Handles, name: str) -> str:
    handles.tensors.get(name)
    return name


def _operand(handles: Handles, word: str) -> Array | float:
    if word[:1].isdigit() or word[:1] in ("-", "+", "."):
        return values.number(word)
    return handles.tensors.get(word)


def _source(word: str) -> int | None:
    return None if word in ("", "any") else values.integer(word)


def _device(word: str) -> str:
    if word != "cpu":
        raise invalid(f'tensors are on the CPU: there is no device "{word}"')
    return word


Tensor: TypeAlias = Annotated[
    Array, Meaning(find=lambda handles, word: handles.tensors.get(word), also=("input",), needed=True)
]
MaybeTensor: TypeAlias = Annotated[
    Array | None, Meaning(find=lambda handles, word: handles.tensors.get(word) if word else None)
]
TensorName: TypeAlias = Annotated[str, Meaning(find=_known)]
Operand: TypeAlias = Annotated[Array | float, Meaning(find=_operand, needed=True)]
InFlight: TypeAlias = Annotated[
    Pending,
    Meaning(find=lambda handles, word: Pending(word, handles.requests.get(word)), also=("handle",), needed=True),
]
Word: TypeAlias = Annotated[str, Meaning()]
Operation: TypeAlias = Annotated[OpName, Meaning(values.operation, also=("op",))]
Integer: TypeAlias = Annotated[int, Meaning(values.integer)]
MaybeInteger: TypeAlias = Annotated[int | None, Meaning(values.integer)]
Root: TypeAlias = Annotated[int, Meaning(values.integer, also=("src", "dst"))]
Source: TypeAlias = Annotated[int | None, Meaning(_source)]
Integers: TypeAlias = Annotated[list[int], Meaning(values.integers)]
Shape: TypeAlias = Annotated[tuple[int, ...], Meaning(values.shape)]
MaybeShape: TypeAlias = Annotated[tuple[int, ...] | None, Meaning(values.shape)]
Sizes: TypeAlias = Annotated[list[int] | None, Meaning(values.sizes)]
Number: TypeAlias = Annotated[int | float, Meaning(values.number)]
Flag: TypeAlias = Annotated[bool, Meaning(values.flag)]
Seconds: TypeAlias = Annotated[float | None, Meaning(values.seconds)]
Dtype: TypeAlias = Annotated[np.dtype[Any], Meaning(values.dtype)]
Device: TypeAlias = Annotated[str, Meaning(_device)]
