"""Plain data, as YAML and the command line give it, into typed settings and back: checked, never executed."""

import dataclasses
import inspect
import operator
import types
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import partial
from math import inf, isfinite
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

import yaml

from edgewise.configuration.choices import Bounds, Choice, OneOf, Option, Text, options_of
from edgewise.errors import ConfigError, a_kind, nearest
from edgewise.files import reading

T = TypeVar("T")


def chosen(what: str, choice: Choice | str, table: Mapping[str, T]) -> T:
    """The table's entry of that name, with the choice's options bound to it.

    Errors      an unknown name, or an option that the entry does not take: a ConfigError that lists the known ones

    Example
        >>> chosen("norm", "layr", {"layer": 1, "none": 2})
        Traceback (most recent call last):
            ...
        edgewise.errors.ConfigError: norm 'layr' is unknown; did you mean 'layer'? choose one of layer, none
    """
    choice = Choice.of(choice)
    known(what, choice.name, table)
    entry: Any = table[choice.name]
    if choice.options:
        entry = partial(entry, **_complete(OneOf(table).options(choice.name), choice.options, what, choice.name))
    return entry


def known(what: str, name: object, table: Collection[str]) -> None:
    """Refuse what is no name of the table."""
    if not isinstance(name, str):
        raise ConfigError(f"{what} must be a name, not {_shown(name)}")
    if name not in table:
        raise ConfigError(
            f"{what} {_shown(name)} is unknown{nearest(name, table) or ':'} choose one of {', '.join(table)}"
        )


def require(owner: object, kind: Any, **arguments: Any) -> None:
    """Refuse arguments of a constructor that are no `Count`, `Share` or the like, whichever kind is given.

    Example
        >>> from edgewise.configuration import Count
        >>> require(object(), Count, heads=2, width=2.5)
        Traceback (most recent call last):
            ...
        edgewise.errors.ConfigError: object: width must be a whole number, at least 1, not 2.5
    """
    number, bounds = (_whole if kind.__origin__ is int else _finite), kind.__metadata__[0]
    for name, value in arguments.items():
        given = number(value)
        if given is None or given not in bounds:
            what = "a whole number" if number is _whole else "a finite number"
            right = f"{what}, {bounds}" if str(bounds) else what
            raise ConfigError(f"{type(owner).__name__}: {name} must be {right}, not {_shown(value)}")


def known_options(target: str, given: Collection[Any], options: Collection[str]) -> None:
    """Refuse options that are none of those that the target takes."""
    for option in given:
        if option not in options:
            near, listed = nearest(option, options), ", ".join(options) or "none"
            raise ConfigError(f"{target} takes no option {_shown(option)}{near or ';'} it takes {listed}")


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
    return target(**_complete(options_of(target), _mapping(options, where), where))


def typed(settings: Any, where: str) -> None:
    """Bring each field of a frozen dataclass to its annotated type, or say which one cannot be."""
    for name, value in _complete(options_of(settings.__class__), vars(settings), where).items():
        object.__setattr__(settings, name, value)


class Settings:
    """A base of dataclasses of settings: a value that its field's annotation refuses is a ConfigError that names it.

    Example
        >>> from edgewise.models import GNNSettings
        >>> GNNSettings(width=0)
        Traceback (most recent call last):
            ...
        edgewise.errors.ConfigError: GNNSettings.width must be at least 1, not 0
    """

    section: ClassVar[str | None] = None  # of a recipe, in place of the class's name

    def __post_init__(self) -> None:
        typed(self, type(self).__name__ if self.section is None else self.section)


def _complete(options: dict[str, Option], given: Mapping[str, Any], where: str, name: str = "") -> dict[str, Any]:
    """All options, those that are given converted and the others with their defaults."""
    known_options(f"{where or 'the configuration'}{f' {name!r}' if name else ''}", given, options)
    paths = {option: f"{where}.{option}" if where else option for option in options}
    missing = [paths[o] for o in options if o not in given and options[o].default is inspect.Parameter.empty]
    if missing:
        raise ConfigError(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    values = {}
    for option, (hint, default, _) in options.items():
        value = given.get(option, default)
        if isinstance(value, Mapping) and "name" not in value and isinstance(default, Choice | str):
            value = {"name": Choice.of(default).name, **value}
        values[option] = convert(value, hint, paths[option])
    return values


def convert(value: Any, hint: Any, where: str) -> Any:
    """The value as its annotation wants it: 1 and "1e-3" may stand for floats, lists for tuples, texts for paths;
    NumPy's numbers and arrays, and tensors, for Python's own."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(value, *arguments, where=where)
    if isinstance(value, Text):
        value = _read(value, hint, arguments)
    if hint is not Any and hasattr(value, "tolist"):
        value = value.tolist()
    if hint is Any or (hint in (bool, str) and isinstance(value, hint)) or (hint is int and _is_whole(value)):
        return value
    if hint is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        return _float(value, where)
    if hint is Path and isinstance(value, str | Path):
        return Path(value)
    if origin in (list, tuple, Sequence) and isinstance(value, list | tuple):
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
    """Settings as YAML holds them: dataclasses and choices as mappings, tuples as lists, paths as text."""
    if isinstance(value, Choice):
        return {"name": value.name, **plain(value.options)} if value.options else value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return str(value) if isinstance(value, Path) else value


def _annotated(value: Any, hint: Any, *extras: Any, where: str) -> Any:
    for extra in extras:
        if isinstance(extra, OneOf):
            return _choice(value, hint, extra, where)
    value = convert(value, hint, where)
    for extra in extras:
        if isinstance(extra, Bounds) and value is not None and value not in extra:
            raise ConfigError(f"{where} must be {extra}, not {value}")
    return value


def _choice(value: Any, hint: Any, one_of: OneOf, where: str) -> Any:
    """A name of the table or, where the annotation says so, a choice with all of its options."""
    kind = next((part for part in (hint, *get_args(hint)) if isinstance(part, type) and issubclass(part, Choice)), None)
    if isinstance(value, Text):
        value = parse_yaml(value, where) if value.lstrip().startswith("{") else str(value)
    name, options = (value.name, value.options) if isinstance(value, Choice) else (value, {})
    if kind and isinstance(value, Mapping):
        options = dict(_mapping(value, where))
        if "name" not in options:
            raise ConfigError(f"{where}.name is missing")
        name = options.pop("name")
        name = str(name) if isinstance(name, Text) else name
    elif not isinstance(name, str):
        raise ConfigError(f"{where} must be a name{' with options' if kind else ''}, not {_shown(value)}")
    known(where, name, one_of.table)
    options = _complete(one_of.options(name) if kind else {}, options, where, name)
    return kind(name, options) if kind else name


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where or 'the configuration'} must hold options by name, not {_shown(value)}")
    for name in value:
        if not isinstance(name, str):
            raise ConfigError(f"{where or 'the configuration'} has an option {_shown(name)}, which is not a name")
    return value


def _read(text: Text, hint: Any, arguments: tuple[Any, ...]) -> Any:
    if hint is str or (get_origin(hint) is Literal and text in arguments):
        return str(text)
    if text == "None" and type(None) in arguments:  # as the descriptions of options call it; YAML's is null
        return None
    try:
        value = parse_yaml(text, "")
    except ConfigError:
        value = str(text)
    return str(text) if str in arguments and value is not None else value


def _float(value: float | str, where: str) -> float:
    # YAML 1.1 reads 1e-3 (without a point) as text.
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise ConfigError(f"{where} must be a number, not {_shown(value)}") from None
    if not isfinite(number):
        raise ConfigError(f"{where} must be a finite number, not {number}")
    return number


def _sequence(value: list[Any] | tuple[Any, ...], origin: Any, arguments: tuple[Any, ...], where: str) -> Any:
    if origin is tuple and arguments[-1] is not Ellipsis:
        if len(value) != len(arguments):
            raise ConfigError(f"{where} must hold {len(arguments)} values, not {len(value)}")
        return tuple(convert(part, hint, where) for part, hint in zip(value, arguments, strict=True))
    return (list if origin is list else tuple)(convert(part, arguments[0], where) for part in value)


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


_KINDS = {bool: "true or false", int: "an integer", float: "a number", str: "text", type(None): "null", Path: "a path"}


def _described(hint: Any) -> str:
    if hint in _KINDS:
        return _KINDS[hint]
    if get_origin(hint) is Annotated:
        bounds = next((f" ({extra})" for extra in hint.__metadata__ if isinstance(extra, Bounds) and str(extra)), "")
        return _described(get_args(hint)[0]) + bounds
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_described(part) for part in get_args(hint))
    return "a list" if get_origin(hint) in (list, tuple, Sequence) else "a mapping"


def _whole(value: Any) -> int | None:
    """An int, or a number of NumPy's or PyTorch's that is one, as an int; None for anything else."""
    try:
        number = None if _is_truth(value) else operator.index(value)
    except (TypeError, RuntimeError):  # a tensor of several numbers, or of fractions
        return None
    return number if _is_whole(number) else None


def _finite(value: Any) -> float | None:
    try:
        value = value.detach() if hasattr(value, "detach") else value
        number = float(value) if hasattr(value, "__float__") and not _is_truth(value) else inf
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None
    return number if isfinite(number) else None


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _shown(value: object) -> str:
    """A short value itself, else only what it is: it may be huge."""
    if isinstance(value, bool | float | None) or _is_whole(value):
        return repr(value)
    if isinstance(value, str) and len(value) < 80:
        return repr(str(value))
    kinds = {Mapping: "a mapping", list | tuple: "a list", str: "a long text", int: "a huge integer"}
    return next((name for kind, name in kinds.items() if isinstance(value, kind)), a_kind(value))


LARGEST = 128 * 1024  # bytes of a YAML file, which takes its parser in Python 1.5 seconds


def read_yaml(path: Path, largest: int = LARGEST) -> Any:
    """The plain data of a YAML file; anything that is not plain, or not a file, is a `ConfigError`."""
    try:
        with path.open("rb") as file:
            text = file.read(largest + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise ConfigError(f"cannot read {str(path)!r}: {reason}") from error
    if len(text) > largest:
        raise ConfigError(f"{str(path)!r} is larger than {largest // 1024} KiB")
    try:
        return parse_yaml(text.decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{str(path)!r} is not UTF-8 text: byte {error.start} is {text[error.start]:#04x}") from error


def parse_yaml(text: str, name: str) -> Any:
    """Plain data from YAML's notation; tags, aliases and what nests without end are refused."""
    with reading(repr(name), "valid YAML", ConfigError):
        return yaml.load(text, Loader=_Loader)  # noqa: S506 (a SafeLoader)


class _Loader(yaml.SafeLoader):
    """Safe YAML without two of its traps: a key given twice, and aliases (which can grow without bound)."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [(key.value, key.start_mark) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        seen = set[str]()
        for key, mark in keys:
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} is given twice", mark)
            seen.add(key)
        return super().construct_mapping(node, deep)
