"""Plain data into typed settings: what fits, what may stand for what, and an error that names everything else."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from edgewise.errors import ConfigError
from edgewise.training.plain import build, convert, plain, read_yaml


@dataclass(frozen=True)
class Inner:
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Outer:
    count: int
    rate: float = 0.5
    name: str | None = None
    mode: Literal["fast", "exact"] = "exact"
    inner: Inner = field(default_factory=Inner)
    folder: Path | None = None
    options: dict[str, bool | int | str] = field(default_factory=dict)


FULL = {
    "count": 3,
    "rate": "1e-3",
    "name": "n",
    "mode": "fast",
    "inner": {"sizes": [4]},
    "folder": "data/x",
    "options": {"a": True, "b": 2, "c": "text"},
}


def test_every_kind_of_value_is_read_and_written_back():
    outer = build(Outer, FULL, "outer")
    assert outer == Outer(3, 1e-3, "n", "fast", Inner((4,)), Path("data/x"), {"a": True, "b": 2, "c": "text"})
    assert plain(outer) == FULL | {"rate": 1e-3}
    assert build(Outer, plain(outer), "outer") == outer
    assert outer.options["a"] is True


def test_a_typed_function_is_called_like_a_dataclass():
    def repeated(word: str, times: int = 2) -> str:
        return word * times

    assert build(repeated, {"word": "ab", "times": 3}, "f") == "ababab"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 1, "cuont": 2}, "outer has no option 'cuont'; did you mean 'count'"),
        ({"count": 1, "zzzz": 2}, "outer has no option 'zzzz'; its options: count, rate, name, mode"),
        ({}, "outer.count is missing"),
        ({"count": True}, "outer.count must be an integer, not True"),
        ({"count": 1.5}, "outer.count must be an integer, not 1.5"),
        ({"count": "3"}, "outer.count must be an integer, not '3'"),
        ({"count": None}, "outer.count must be an integer, not None"),
        ({"count": 2**63}, "outer.count must be an integer, not a large or nested int"),
        ({"count": 1, "rate": "fast"}, "outer.rate must be a number, not 'fast'"),
        ({"count": 1, "rate": True}, "outer.rate must be a number, not True"),
        ({"count": 1, "rate": 16**400}, "outer.rate must be a number, not a large"),
        ({"count": 1, "name": 3}, "outer.name must be text or nothing, not 3"),
        ({"count": 1, "mode": "slow"}, "outer.mode must be one of fast, exact, not 'slow'"),
        ({"count": 1, "inner": 3}, "outer.inner must hold options by name, not 3"),
        ({"count": 1, "inner": {"size": [1]}}, "outer.inner has no option 'size'; did you mean 'sizes'"),
        ({"count": 1, "inner": {"sizes": 1}}, "outer.inner.sizes must be a list, not 1"),
        ({"count": 1, "inner": {"sizes": ["a"]}}, "outer.inner.sizes must be an integer, not 'a'"),
        ({"count": 1, "options": {"a": [1]}}, "outer.options.a must be true or false or an integer or text"),
        ({"count": 1, "options": {1: 2}}, "outer.options must hold options by name"),
        ([("count", 1)], "outer must hold options by name, not a large or nested list"),
        ("count", "outer must hold options by name, not 'count'"),
        ({"count": 1, "name": "x" * 10**6, "mode": "y" * 10**6}, "not a large or nested str"),
    ],
)
def test_what_does_not_fit_is_named_in_one_short_line(options: Any, message: str):
    with pytest.raises(ConfigError) as caught:
        build(Outer, options, "outer")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_pair_has_two_values():
    assert convert([0, "1"], tuple[float, float], "pair") == (0.0, 1.0)
    with pytest.raises(ConfigError, match="pair must hold 2 values, not 3"):
        convert([1, 2, 3], tuple[float, float], "pair")


def test_an_alternative_that_already_fits_comes_first():
    assert convert(1, float | int, "x") == 1
    assert type(convert(1, float | int, "x")) is int
    assert convert(True, int | bool, "x") is True
    assert type(convert("1e-3", float | None, "x")) is float


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [1", "is not valid YAML"),
        (b"a: !!python/object/apply:os.system [touch marker]", "is not valid YAML"),
        (b"\xff\xfe\x00", "is not valid YAML"),
        (b"a: 2020-99-99", "is not valid YAML"),
        (b"[" * 5000, "is not valid YAML"),
        (b"a" * (1 << 20) + b"a", "is larger than"),
    ],
)
def test_a_damaged_or_hostile_file_is_refused(tmp_path, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_yaml(tmp_path / "c.yaml")
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        read_yaml(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot read"):
        read_yaml(tmp_path)
