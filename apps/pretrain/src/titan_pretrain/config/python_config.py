"""``--config module:function``: a config that Python builds."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from titan_pretrain.config.near_miss import closest, did_you_mean
from titan_pretrain.config.problems import Layer, MistakeError, translate
from titan_pretrain.config.sections import TrainConfig
from titan_pretrain.errors import ConfigError

__all__ = ["module_exists", "read_python"]


def module_exists(name: str) -> bool:
    """Whether ``name`` is a module, in the current folder too; a mere folder is none."""
    _make_cwd_importable()
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return False
    return spec is not None and spec.origin is not None


def read_python(spec: str) -> Layer:
    """Call ``module:function`` and take the config it returns.

    Args:
        spec: ``module:function``; the function takes no arguments and returns a
            :class:`TrainConfig` or a dict of sections.

    Raises:
        MistakeError: no such module or function, or the function fails.
        ConfigError: the function built a :class:`TrainConfig` of impossible values.
    """
    module_name, _, function_name = spec.partition(":")
    function = _find_function(spec, _import(spec, module_name), function_name)
    where = Layer({}, lambda _path: spec)
    try:
        result = function()
    except ValidationError as error:
        raise _impossible_values(error, where) from None
    except (Exception, SystemExit) as error:
        raise MistakeError(spec, f"raised {_describe(error)}") from None
    return Layer(_as_dict(spec, result), lambda _path: spec)


def _impossible_values(error: ValidationError, where: Layer) -> ConfigError | MistakeError:
    """The findings of a ``TrainConfig(...)`` in the user's function; other models speak for themselves."""
    if error.title != TrainConfig.__name__:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return MistakeError(where.locate(()), f"{error.title}({place}): {first['msg']}")
    return ConfigError([problem for _, problem in translate(error, where)])


def _make_cwd_importable() -> None:
    """``python -m`` has the current folder on its path, a console script has not."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)


def _import(spec: str, name: str) -> Any:
    _make_cwd_importable()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise MistakeError(
                spec, f"no module named `{error.name}` here or among the installed packages"
            ) from None
        raise MistakeError(spec, f"importing `{name}` raised {_describe(error)}") from None
    except (Exception, SystemExit) as error:
        raise MistakeError(spec, f"importing `{name}` raised {_describe(error)}") from None


def _find_function(spec: str, module: Any, name: str) -> Callable[[], Any]:
    function = getattr(module, name, None)
    if callable(function):
        return function  # type: ignore[no-any-return]
    if function is not None:
        raise MistakeError(spec, f"`{name}` is no function but {type(function).__name__}")
    names = [other for other, value in vars(module).items() if callable(value) and not other.startswith("_")]
    near = closest(name, names)
    raise MistakeError(
        spec, f"`{module.__name__}` has no function `{name}`", did_you_mean([near] if near else [])
    )


def _as_dict(spec: str, result: Any) -> dict[Any, Any]:
    if not isinstance(result, TrainConfig | Mapping):
        text = f"must return a TrainConfig or a dict, not {type(result).__name__}"
        raise MistakeError(spec, text)
    try:
        plain: dict[Any, Any] = _plain(result)
        keys_are_text = _has_text_keys(plain)
    except RecursionError:
        raise MistakeError(spec, "returned a dict that is nested too deep, or holds itself") from None
    if not keys_are_text:
        raise MistakeError(spec, "keys must be text, all the way down")
    return plain


def _plain(value: Any) -> Any:
    """Models to dicts of what was set in them, so that later layers can change single keys."""
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_unset=True)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _has_text_keys(value: Any) -> bool:
    if not isinstance(value, dict):
        return True
    return all(isinstance(key, str) and _has_text_keys(item) for key, item in value.items())


def _describe(error: BaseException) -> str:
    """``KeyError: 'x' (my_configs.py:12)``, on one line."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg} ({error.filename}:{error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if "importlib" not in frame.filename and frame.filename != __file__]
    return f"{text} ({inside[-1].filename}:{inside[-1].lineno})" if inside else text
