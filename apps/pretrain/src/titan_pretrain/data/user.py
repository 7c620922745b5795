"""``module:function``: documents from the user's own code."""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from titan_pretrain.data.hub import HubStream
from titan_pretrain.data.records import text_of
from titan_pretrain.data.source import DocumentSource, IndexedSource, Json, PartReader, StreamSource
from titan_pretrain.errors import DataError, PretrainError, UsageError

__all__ = ["user_source"]


def user_source(spec: str, key: str, seed: int) -> DocumentSource:
    """Call ``module:function`` and wrap what it returns.

    The function takes no arguments, or ``seed``.  It returns documents (strings, or mappings with a
    string in ``key``) in a sequence, or in an iterable that is asked for anew in every epoch.  An
    iterable with ``state_dict`` and ``load_state_dict`` is resumed with them, others by skipping.

    Raises:
        UsageError: There is no such module or function.
        DataError: The function raised, or returned something else.
    """
    call = UserFunction(spec, seed)
    returned = call()
    if hasattr(returned, "num_shards") and type(returned).__module__.partition(".")[0] == "datasets":
        return HubStream(spec, returned, key, {"path": spec})
    if hasattr(returned, "__len__") and hasattr(returned, "__getitem__"):
        return UserSequence(call, key)
    if hasattr(returned, "__iter__"):
        return UserStream(call, key)
    raise DataError(
        f"data.dataset ({spec}) returned {type(returned).__name__}; "
        "it must return a list or an iterable of texts"
    )


class UserFunction:
    """The user's function; picklable by its name."""

    def __init__(self, spec: str, seed: int) -> None:
        self.spec = spec
        self._seed = seed

    def __call__(self) -> Any:
        """Call the function.

        Raises:
            UsageError: There is no such module or function.
            DataError: It raised.
        """
        function = _find(self.spec)
        with user_errors(self.spec):
            wants_seed = "seed" in inspect.signature(function).parameters
            return function(seed=self._seed) if wants_seed else function()


def _find(spec: str) -> Callable[..., Any]:
    module_name, _, name = spec.partition(":")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:  # a console script hasn't the current folder on its path
        sys.path.insert(0, here)
    with user_errors(spec):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name != module_name:
                raise
            raise UsageError(f"data.dataset ({spec}): there is no module {module_name} in {here}") from None
    function: Callable[..., Any] | None = getattr(module, name, None)
    if callable(function):
        return function
    near = get_close_matches(name, dir(module), n=1)
    way_out = f"did you mean {near[0]!r}?" if near else "define it"
    raise UsageError(f"data.dataset ({spec}): {module_name} has no function {name!r}; {way_out}")


@contextmanager
def user_errors(spec: str) -> Iterator[None]:
    """Turn what the user's code raises into an error with its place."""
    try:
        yield
    except (PretrainError, StopIteration):
        raise
    except (Exception, SystemExit) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{frame.filename}:{frame.lineno}"
        raise DataError(f"data.dataset ({spec}) raised {type(error).__name__}: {error} ({place})") from error


class UserSequence(IndexedSource):
    """Documents with length and index."""

    def __init__(self, call: UserFunction, key: str) -> None:
        self.name = call.spec
        self._call = call
        self._key = key

    @cached_property
    def _items(self) -> Any:
        return self._call()

    def __len__(self) -> int:
        """Return the number of documents."""
        with user_errors(self.name):
            return len(self._items)

    def __getitem__(self, index: int) -> str:
        """Return one document."""
        with user_errors(self.name):
            item = self._items[index]
        return text_of(item, self._key, f"item {index} of data.dataset ({self.name})")

    def identity(self) -> dict[str, str | int]:
        """Return the function's name and the number of documents."""
        return {"dataset": self.name, "documents": len(self)}

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_items"}


class UserStream(StreamSource):
    """An iterable of documents, in one part."""

    def __init__(self, call: UserFunction, key: str) -> None:
        self.name = call.spec
        self._call = call
        self._key = key

    @property
    def num_parts(self) -> int:
        """One."""
        return 1

    def open(self, part: int, state: Json = None) -> PartReader:  # noqa: ARG002 - there is one part
        """Ask the function for a new iterable."""
        return _UserReader(self._call, self._key, state)

    def identity(self) -> dict[str, str | int]:
        """Return the function's name."""
        return {"dataset": self.name}


class _UserReader(PartReader):
    def __init__(self, call: UserFunction, key: str, state: Json) -> None:
        self._spec = call.spec
        self._key = key
        self._documents = call()
        self._number = count()
        self._seeks = hasattr(self._documents, "state_dict") and hasattr(self._documents, "load_state_dict")
        with user_errors(self._spec):
            if state is not None:
                self._documents.load_state_dict(state)
            self._items = iter(self._documents)

    def __next__(self) -> str:
        with user_errors(self._spec):
            item = next(self._items)
        return text_of(item, self._key, f"item {next(self._number)} of data.dataset ({self._spec})")

    def state(self) -> Json:
        """Return the iterable's own state, if it keeps one."""
        if not self._seeks:
            return None
        with user_errors(self._spec):
            return self._documents.state_dict()
