"""YAML as data: no tags, no aliases, no key twice, and no larger than a configuration is."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from edgewise.errors import ConfigError
from edgewise.files import reading

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
