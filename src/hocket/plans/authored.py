"""Algorithms that lie in a file of the user's: `path/mine.py:ring` is the function `ring` there, and `path/plan.xml`
(or .json) is the plan there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from ..errors import HocketError
from .algorithms import Algorithm
from .interchange import ENDINGS, read_plan
from .plan import Plan


def authored(text: str) -> str | Algorithm | Plan:
    """The function that "path/mine.py:ring" names, or the plan in "path/plan.xml"; any other text as it is: it may name
    one of the book.

    Raises ValueError where there is no such file or function, where the file cannot be run, and where it holds no plan.
    """
    if text.endswith(ENDINGS):
        try:
            return read_plan(text)
        except OSError as error:
            raise ValueError(f"{text} cannot be read: {error.strerror}") from error
    path, _, name = text.rpartition(":")
    if text.endswith(".py"):
        raise ValueError(f"which function of {text}? Write {text}:NAME")
    if not path.endswith(".py"):
        return text
    module = _run(Path(path))
    function = getattr(module, name, None)
    if callable(function):
        made: Algorithm = function
        return made
    own = [n for n, x in vars(module).items() if callable(x) and getattr(x, "__module__", "") == module.__name__]
    raise ValueError(f"{path} has no function {name!r}; it has {', '.join(own) or 'none'}")


@contextmanager
def blamed(text: str) -> Iterator[None]:
    """What goes wrong in the file of "path/mine.py:ring" is a ValueError that tells the line there. What hocket says of
    it stays as it is."""
    path = text.rpartition(":")[0]
    try:
        yield
    except HocketError:
        raise
    except Exception as error:
        if not path.endswith(".py") or not _line(path, error):
            raise
        raise _told(path, error) from error


def _run(path: Path) -> ModuleType:
    """The file, as a module that may import what lies beside it."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module, beside = module_from_spec(spec), str(path.parent.resolve())
    sys.path.insert(0, beside)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _told(str(path), error) from error
    finally:
        sys.path.remove(beside)
    return module


def _told(path: str, error: Exception) -> ValueError:
    line = _line(path, error)
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return ValueError(f"{type(error).__name__}: {text}" + (f" ({path}:{line})" if line else ""))


def _line(path: str, error: Exception) -> int | None:
    """The line of that file at which the error arose, or from which it was called."""
    if isinstance(error, SyntaxError):
        return error.lineno
    import traceback

    lines = [
        at.lineno
        for at in traceback.extract_tb(error.__traceback__)
        if Path(at.filename).resolve() == Path(path).resolve()
    ]
    return lines[-1] if lines else None
