"""Plain data (what YAML and JSON hold) into typed settings and back: checked against annotations, never executed."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from edgewise.errors import ConfigError, nearest

T = TypeVar("T")
LARGEST = 1024 * 1024  # bytes of a YAML file


def build(target: Callable[..., T], options: object, where: str) -> T:
    """Call a dataclass or a typed function with options from plain data; `where` they stand, "" for a whole file.

    Errors      an option that `target` does not take, one that is missing, or a value of another type than its
                annotation is a `ConfigError` that names the option, and the nearest one that exists.

    Example
        >>> from edgewise.models import Features
        >>> build(Features, {"inputs": 2, "outputs": "three"}, "signature")
        Traceback (most recent call last):
            ...
        edgewise.errors.ConfigError: signature.outputs must be an integer, not 'three'
    """
    parameters = inspect.signature(target).parameters
    hints = get_type_hints(target)
    given = _mapping(options, where)
    for name in given:
        if name not in parameters:
            section = where or "the configuration"
            raise ConfigError(f"{section} has no option {_shown(name)}{_hint(name, parameters)}")
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in given:
            raise ConfigError(f"{_inside(where, name)} is missing")
    return target(**{name: convert(value, hints[name], _inside(where, name)) for name, value in given.items()})


def convert(value: Any, hint: Any, where: str) -> Any:
    """The value as its annotation wants it: 1 and "1e-3" may stand for floats, lists for tuples, texts for paths."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any or (hint in (bool, str) and isinstance(value, hint)):
        return value
    if hint is int and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        return value
    if hint is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        return _float(value, where)
    if hint is Path and isinstance(value, str | Path):
        return Path(value)
    if origin in (list, tuple) and isinstance(value, list | tuple):
        return _sequence(value, origin, arguments, where)
    if origin is dict:
        return {name: convert(part, arguments[1], f"{where}.{name}") for name, part in _mapping(value, where).items()}
    if origin in (Union, types.UnionType):
        return _alternative(value, hint, where)
    if (origin is Literal and value in arguments) or (hint is type(None) and value is None):
        return value
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return value if isinstance(value, hint) else build(hint, value, where)
    raise ConfigError(f"{where} must be {_described(hint)}, not {_shown(value)}")


def plain(value: Any) -> Any:
    """A value of settings as YAML holds it: dataclasses as mappings, tuples as lists, paths as text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return str(value) if isinstance(value, Path) else value


def read_yaml(path: Path) -> Any:
    """The plain data of a YAML file; anything that is not plain, or not a file, is a `ConfigError`."""
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise ConfigError(f"{path} is larger than {LARGEST // 1024} KiB: not a configuration")
        return yaml.safe_load(text.decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error


def _inside(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"{where or 'the configuration'} must hold options by name, not {_shown(value)}")
    return dict(value)


def _float(value: float | str, where: str) -> float:
    # YAML 1.1 reads 1e-3 (without a point) as text.
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise ConfigError(f"{where} must be a number, not {_shown(value)}") from None


def _sequence(value: list[Any] | tuple[Any, ...], origin: Any, arguments: tuple[Any, ...], where: str) -> Any:
    if origin is tuple and arguments[-1] is not Ellipsis:
        if len(value) != len(arguments):
            raise ConfigError(f"{where} must hold {len(arguments)} values, not {len(value)}")
        return tuple(convert(part, hint, where) for part, hint in zip(value, arguments, strict=True))
    return origin(convert(part, arguments[0], where) for part in value)


def _alternative(value: Any, hint: Any, where: str) -> Any:
    """The first alternative that the value already fits, else the first that it can be converted to."""
    for exact in (True, False):
        for part in get_args(hint):
            try:
                converted = convert(value, part, where)
            except ConfigError:
                continue
            if not exact or type(converted) is type(value):
                return converted
    raise ConfigError(f"{where} must be {_described(hint)}, not {_shown(value)}")


_KINDS = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "text",
    type(None): "nothing",
    Path: "a path",
}


def _described(hint: Any) -> str:
    if hint in _KINDS:
        return _KINDS[hint]
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_described(part) for part in get_args(hint))
    return "a list" if get_origin(hint) in (list, tuple) else "a mapping"


def _shown(value: object) -> str:
    """A short value itself, else only its type: it may be huge."""
    if isinstance(value, bool | float | None) or (isinstance(value, int) and abs(value) < 2**63):
        return repr(value)
    return repr(value) if isinstance(value, str) and len(value) < 80 else f"a large or nested {type(value).__name__}"


def _hint(name: str, known: Mapping[str, object]) -> str:
    return nearest(name, known) or f"; its options: {', '.join(known) or 'none'}"
