"""`hocket.elastic`: a loop that goes on, whoever is lost and whoever comes.

```
agree     the state that was committed last, on any rank, is everybody's
grow      if they are too few, or somebody waits to join                      ──▶ agree
run       fn(group, state) goes on from there, to its next yield: a commit
            somebody waits to join                                            ──▶ agree
            ranks are lost on the way: recover; what failed is done once more ──▶ agree
```
"""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ..config import Config
from ..errors import CollectiveTimeout, GroupBroken, HocketError, PeerLost, RendezvousError
from . import Group, again, init
from .growth import Commit
from .state import Snapshot

T = TypeVar("T")
State: TypeAlias = "dict[str, Any]"
Step: TypeAlias = "Callable[[Group, State], T | Generator[Any, None, T]]"

PATIENCE = 600.0  # seconds for those that are missing to come
_IN_VAIN = 3  # times in a row that nothing is done although nobody is lost

_PASSING = PeerLost, CollectiveTimeout, GroupBroken  # others are the program's own mistakes


def elastic(
    state: State,
    fn: Step[T],
    *,
    group: Group | None = None,
    min_size: int | None = None,
    patience: float = PATIENCE,
    timeout: float | None = None,
) -> T:
    """Run `fn(group, state)` on all ranks of a group that may shrink and grow meanwhile, and return what it returns.

    `fn` is a generator function: it does a step, brings `state` up to date, and yields: that is a commit. When ranks
    are lost, those that are left recover; every one of them gets the state of the latest commit, and `fn` is called
    anew with it and with the new group. So a loss costs the step that it fell into. When somebody waits to join at a
    commit it is let in, gets the state, and `fn` is called anew, too. A function that does not yield is done once more
    as a whole.

        def train(group, state):
            while state["step"] < 1000:
                ...                             # state["weights"] -= group.all_reduce(gradient, op="mean")
                state["step"] += 1
                yield

        hocket.elastic({"weights": weights, "step": 0}, train)

    `state` is a dict of arrays (NumPy's, torch's), numbers, texts, dicts, lists, tuples and None, and of what has
    state_dict() and load_state_dict(); it is the same on all ranks, at first as it is on rank 0, and is changed in
    place. A commit copies it. To others it travels as arrays, by broadcast; an array that is in it twice is one there,
    too. Where one is a view of another's memory it has to be so in the state that each rank brings.

    Without `group`, ranks meet by `hocket.init(timeout)`, or join where their launcher has started them again
    (`hocket run --max-restarts`). The group is closed at the end, whatever has become of it. A rank that the others
    have given up, as it was stopped, joins anew. With fewer ranks than `min_size` (by default HOCKET_MIN_RANKS, or 1)
    it waits `patience` seconds for others to join. Of a group of several hosts only the majority goes on
    (`Group.recover`).

    Raises what `fn` raises, but for PeerLost, CollectiveTimeout and GroupBroken: these only where it fails by them
    three times in a row although nobody is lost. CollectiveTimeout where too few come. TypeError for a state that is
    none; ValueError where two arrays of it share memory on one rank, and not, or in another way, on another one.
    """
    if min_size is None:
        min_size = Config.from_env().min_ranks if group is None else 1
    loop = _Loop(state, fn, min_size, patience)
    loop.group = init(timeout) if group is None else group
    try:
        result: T = loop.run()
    except BaseException as error:
        loop.group._latest._close(error)  # the others are told
        raise
    loop.group.close()
    return result


class _Loop:
    """One rank's part in it."""

    def __init__(self, state: State, fn: Step[T], min_size: int, patience: float) -> None:
        if not isinstance(state, dict):
            raise TypeError(f"state is a dict, which is changed in place, not {type(state).__name__}")
        self._state, self._fn, self._min_size, self._patience = state, fn, min_size, patience
        self._saved = Snapshot()
        self._saved.take(state)
        self._commits = -1  # that this rank has the state of; a newcomer has none
        self._in_vain = 0
        self._warned = False
        self.group: Group

    def run(self) -> Any:
        """To the end."""
        over, result = False, None
        while not over:
            over, result = self._go_on()
        return result

    def _go_on(self) -> tuple[bool, Any]:
        """In a group that is new, or may be: what its ranks do first is the same on all, wherever they come from."""
        try:
            self._agree()
            if self.group.size >= self._min_size and not self._somebody_waits():
                return self._step_on()
        except _PASSING as error:
            self._after(error)
        else:
            self._take_in()
        return False, None

    def _take_in(self) -> None:
        missing = self.group.size < self._min_size
        try:
            self.group = self.group.grow(*(self._min_size,) * missing, timeout=self._patience if missing else None)
        except _PASSING as error:
            self.group = self.group._latest  # it may have recovered first
            if isinstance(error, CollectiveTimeout) and error.completed is None:  # no call's: too few have come
                raise
            self._after(error)

    def _somebody_waits(self) -> bool:
        try:
            return self.group.pending() > 0
        except RendezvousError as error:
            if not self._warned:
                warnings.warn(str(error), RuntimeWarning, stacklevel=2)
            self._warned = True
            return False

    def _agree(self) -> None:
        """The state of the latest commit becomes everybody's."""
        group = self.group
        commits = group.all_gather(np.array([self._commits]))
        latest, root = int(commits.max()), int(commits.argmax())
        if latest < 0 or commits.min() < latest:
            form = group._objects.tell(self._form() if group.rank == root else b"", "elastic()", None, root)
            saved = self._saved if group.rank == root else Snapshot.empty(*json.loads(form))
            for array in saved.arrays:
                group.broadcast(array, root=root, out=array)
            self._saved, self._commits = saved, max(latest, 0)
        self._saved.put_back(self._state)

    def _form(self) -> bytes:
        return json.dumps([self._saved.text, self._saved.looks]).encode()

    def _step_on(self) -> tuple[bool, Any]:
        """From commit to commit, until the end, or until somebody waits to join."""
        steps = self._fn(self.group, self._state)
        if not inspect.isgenerator(steps):
            self._finish()
            return True, steps
        with closing(steps):
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    self._commit()
                    self._finish()
                    return True, end.value
                self._commit()
                if self._somebody_waits():
                    return False, None

    def _finish(self) -> None:
        """Nobody leaves before all are there: if one is lost before that, the others do what followed the latest commit
        once more. So it is no commit itself."""
        end = Commit.of(self.group, "elastic()")
        end.make(self.group.timeout)
        if not end.counts:
            self.group.barrier()  # raises why
        if self.group._porch is not None and self.group.rank == self.group._host:
            self.group._porch.no_more()

    def _commit(self) -> None:
        self._saved.take(self._state)
        self._commits += 1
        self._in_vain = 0

    def _after(self, error: HocketError) -> None:
        """Into a group in which it can be tried once more."""
        over = self.group._calls.conclude(error)
        self._in_vain = 0 if over.lost else self._in_vain + 1
        if self._in_vain >= _IN_VAIN:
            raise error
        with suppress(PeerLost):  # this rank itself
            self.group = self.group.recover()
            return
        self.group, self._commits = again(self.group, self._patience), -1
