"""What a task prepares is cached, and a cache never costs more than time."""

import tempfile

import pytest
import safetensors.torch
import torch

from edgewise.tasks.core.source import Tensors, cached, digest


class Preparation:
    """Counts how often it is done."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> Tensors:
        self.count += 1
        return {"x": torch.arange(6.0).view(3, 2).T, "charges": torch.ones(2)}


def test_tensors_are_prepared_once_for_each_key(cache):
    prepare = Preparation()
    first, again = cached("mine", ("a", 1), prepare), cached("mine", ("a", 1), prepare)
    assert prepare.count == 1
    assert first.keys() == again.keys() and all(torch.equal(first[name], again[name]) for name in first)
    assert [path.name for path in (cache / "mine").iterdir()] == [f"{digest(('a', 1))}.safetensors"]
    cached("mine", ("a", 2), prepare)
    cached("yours", ("a", 1), prepare)
    assert prepare.count == 3


@pytest.mark.parametrize("damage", [lambda content: content[:-3], lambda content: b"", lambda content: b"{}" * 50])
def test_a_damaged_file_is_written_anew(cache, damage):
    prepare = Preparation()
    cached("mine", 1, prepare)
    (path,) = (cache / "mine").iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert torch.equal(cached("mine", 1, prepare)["charges"], torch.ones(2)) and prepare.count == 2
    assert cached("mine", 1, prepare)["x"].shape == (2, 3) and prepare.count == 2


@pytest.mark.parametrize("other", [{"x": torch.zeros(3, 3)}, {"y": torch.zeros(2, 3)}])
def test_a_file_with_other_tensors_is_written_anew(cache, other):
    prepare = Preparation()
    cached("mine", 1, prepare)
    (path,) = (cache / "mine").iterdir()
    safetensors.torch.save_file(other, path)
    assert cached("mine", 1, prepare, {"x": (2, 3)})["x"].shape == (2, 3)
    assert prepare.count == 2


def test_a_cache_that_cannot_be_written_costs_time_only(cache, monkeypatch):
    cache.parent.mkdir(parents=True)
    cache.touch()  # a file in the place of the folder, and of the temporary one
    monkeypatch.setattr(tempfile, "tempdir", str(cache))
    prepare = Preparation()
    for count in (1, 2):
        assert cached("mine", 1, prepare)["x"].shape == (2, 3)
        assert prepare.count == count
