"""YAML as data: what is damaged or hostile is refused, and nothing in it runs."""

import pytest

from edgewise.configuration import read_yaml
from edgewise.errors import ConfigError


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [1", "not valid YAML"),
        (b"a: !!python/object/apply:os.system [touch marker]", "not valid YAML"),
        (b"\xff\xfe\x00", "is not UTF-8 text: byte 0 is 0xff"),
        (b"a: 2020-99-99", "not valid YAML"),
        (b"[" * 5000, "not valid YAML"),
        (b"a: &x 1\nb: *x", "aliases"),
        (b"a: 1\na: 2", "'a' is given twice"),
        (b"a" * (1 << 17) + b"a", "is larger than 128 KiB"),
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
