"""Checkpoints: written whole or not at all, every flipped bit noticed, and nothing in them executed."""

import hashlib
import json
import os
import pickle
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from edgewise.errors import CheckpointError, ConfigError, NonFiniteError
from edgewise.layers import GCN
from edgewise.tasks import karate
from edgewise.training import fit
from edgewise.training.checkpoint import (
    Checkpoint,
    checkpoints,
    clean,
    load_weights,
    newest,
    save_checkpoint,
    verified,
)

PARTS = {
    "model": {"w": torch.arange(6.0).view(2, 3), "n": torch.tensor(3)},
    "best": {"w": torch.full((2, 3), 1 / 3), "n": torch.tensor(2)},
    "optimizer": {"w/step": torch.tensor(4.0), "w/exp_avg": torch.randn(2, 3)},
}


def save(folder, step, keep=9):
    return save_checkpoint(folder, {"step": step, "best": {"valid": {"loss": 0.1}}, "seconds": 1.5}, PARTS, keep)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_is_written_is_read_back_bit_for_bit(tmp_path):
    found = verified(save(tmp_path, 100))
    assert found.path.name == "step-00000100"
    assert found.state == {"step": 100, "best": {"valid": {"loss": 0.1}}, "seconds": 1.5}
    for part, tensors in PARTS.items():
        read = found.tensors(part)
        assert read.keys() == tensors.keys()
        assert all(
            torch.equal(read[name], tensor) and read[name].dtype == tensor.dtype for name, tensor in tensors.items()
        )
    assert names(found.path) == ["best.safetensors", "model.safetensors", "optimizer.safetensors", "state.json"]


def test_tied_and_strided_weights_are_written(tmp_path):
    w = torch.randn(3, 2)
    path = save_checkpoint(tmp_path, {"step": 1}, PARTS | {"model": {"a": w, "b": w, "c": w.T, "d": w[:, 0]}}, 1)
    read = verified(path).tensors("model")
    assert all(torch.equal(read[name], tensor) for name, tensor in {"a": w, "b": w, "c": w.T, "d": w[:, 0]}.items())


def test_only_the_newest_are_kept_in_order_of_their_steps(tmp_path):
    for step in (5, 99_999_999, 100_000_000, 100_000_001):
        save(tmp_path, step, keep=2)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-100000001", "step-100000000"]
    assert names(tmp_path) == ["step-100000000", "step-100000001"]


def damage(path, kind):
    content = bytearray(path.read_bytes())
    if kind == "flip":
        content[len(content) // 2] ^= 1
    path.write_bytes(b"" if kind == "empty" else content[:-1] if kind == "short" else bytes(content))
    if kind == "gone":
        path.unlink()


@pytest.mark.parametrize(
    ("file", "kind"),
    [("model.safetensors", "flip"), ("best.safetensors", "short"), ("optimizer.safetensors", "gone"),
     ("state.json", "flip"), ("state.json", "empty")],
)  # fmt: skip
def test_a_damaged_newest_one_is_told_and_the_one_before_is_used(tmp_path, file, kind):
    save(tmp_path, 1)
    damage(save(tmp_path, 2) / file, kind)
    told = []
    found = newest(tmp_path, told.append)
    assert found is not None
    assert found.state["step"] == 1
    assert len(told) == 1
    assert "step-00000002 is damaged" in told[0]
    assert "\n" not in told[0]


def test_every_single_byte_of_the_state_is_guarded(tmp_path):
    path = save(tmp_path, 12) / "state.json"
    original = path.read_bytes()
    noticed = 0
    for position in range(0, len(original), 5):
        changed = bytearray(original)
        changed[position] ^= 0x10
        path.write_bytes(changed)
        try:
            state = verified(path.parent).state
        except CheckpointError:
            noticed += 1
        else:  # white space that means nothing, for instance
            assert state == json.loads(original)["state"]
    assert noticed > 0.5 * len(original) / 5


@pytest.mark.parametrize("content", ["[]", "3", "null", '{"state": 1}', '{"state": {}, "sha256": []}', "[" * 100_000])
def test_any_other_json_is_damaged(tmp_path, content):
    (save(tmp_path, 1) / "state.json").write_text(content)
    with pytest.raises(CheckpointError, match="is damaged"):
        verified(tmp_path / "step-00000001")


def test_where_none_is_intact_nothing_is_guessed(tmp_path):
    for step in (1, 2):
        damage(save(tmp_path, step) / "model.safetensors", "flip")
    told = []
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* is intact: .*step-00000002 is damaged"):
        newest(tmp_path, told.append)
    assert not told


def test_a_pickle_is_never_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    path = save(tmp_path, 1)
    (path / "model.safetensors").write_bytes(pickle.dumps(Trap()))
    hashes = json.loads((path / "state.json").read_text())
    hashes["sha256"]["model.safetensors"] = hashlib.sha256(pickle.dumps(Trap())).hexdigest()
    (path / "state.json").write_text(json.dumps(hashes))
    with pytest.raises(CheckpointError, match="cannot read model"):
        verified(path).tensors("model")
    assert not (tmp_path / "sprung").exists()


def test_leftovers_and_what_followed_the_resumed_one_are_removed(tmp_path):
    for name in (".writing-step-00000009", ".removing-step-00000001"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"half")
    save(tmp_path, 1)
    used = verified(save(tmp_path, 2))
    save(tmp_path, 3)
    clean(tmp_path, used)
    assert names(tmp_path) == ["damaged-step-00000003", "step-00000001", "step-00000002"]
    assert checkpoints(tmp_path)[0] == used.path
    save(tmp_path, 3)
    assert names(tmp_path) == ["step-00000001", "step-00000002", "step-00000003"]


def test_weights_of_another_model_are_refused_by_name(tmp_path):
    model = nn.Linear(3, 2)
    good = {"weight": torch.ones(2, 3), "bias": torch.ones(2)}
    load_weights(model, good, tmp_path)
    assert model.weight.sum() == 6
    for tensors, told in [
        ({"weight": torch.ones(2, 4), "bias": torch.ones(2)}, r"'weight' is \[2, 4\] in the checkpoint and \[2, 3\]"),
        ({"weight": torch.ones(2, 3)}, r"'bias' is absent in the checkpoint and \[2\] in the model"),
        (good | {"bias": torch.ones(2).double()}, "'bias' is float64 in the checkpoint and float32 in the model"),
        (good | {"scale": torch.tensor(1.0)}, r"'scale' is \[\] in the checkpoint and absent in the model"),
    ]:
        with pytest.raises(CheckpointError, match=told):
            load_weights(model, tensors, tmp_path)


def test_a_checkpoint_that_cannot_be_set_aside_is_a_named_error(tmp_path, monkeypatch):
    first = save(tmp_path, 1)
    save(tmp_path, 2)

    def fail(path, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(tmp_path), "rename", fail)
    with pytest.raises(CheckpointError, match=r"cannot set aside the damaged checkpoints of .*: No space left"):
        clean(tmp_path, Checkpoint(first, {}))


class Mapped(nn.Module):
    """A linear map of the karate club's nodes, on no graph."""

    def __init__(self):
        super().__init__()
        self.map = nn.Linear(34, 2)

    def forward(self, graph, x):
        return self.map(x)


class Stateful(Mapped):
    """With another entry in its state: what `get_extra_state` gives, or a buffer."""

    def __init__(self, value):
        super().__init__()
        self.value = value
        if isinstance(value, torch.Tensor):
            self.register_buffer("more", value)

    def get_extra_state(self):
        return torch.zeros(1) if isinstance(self.value, torch.Tensor) else self.value

    def set_extra_state(self, state):
        pass


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"seen": 1}, r"Stateful has '_extra_state' in its state_dict, which is a dict, but checkpoints hold tensors"),
        (torch.eye(3).to_sparse(), r"Stateful has 'more' in its state_dict, which is nested or sparse"),
        (torch.eye(3).to_sparse_csr(), r"which is nested or sparse, but checkpoints hold dense tensors"),
        (torch.ones(2, dtype=torch.complex128), r"which is complex128, but checkpoints hold whole numbers, real ones"),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_a_state_that_no_checkpoint_holds_is_refused_before_training(value, why):
    with pytest.raises(ConfigError, match=why):
        fit(karate(), Stateful(value), steps=1)


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_lazy_weights_and_sparse_gradients_are_refused_before_training():
    model = Mapped()
    model.more = nn.LazyLinear(2)
    with pytest.raises(ConfigError, match=r"'more\.weight' in its state_dict, which is lazy .* call the model once"):
        fit(karate(), model, steps=1)
    model.more = nn.Embedding(34, 2, sparse=True)
    with pytest.raises(ConfigError, match=r"'more' of Mapped has sparse gradients.*: sparse=False"):
        fit(karate(), model, steps=1)


class Turned(Mapped):
    """Outputs by a complex factor that trains, beside a buffer in 8 bits."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.ones(2, dtype=torch.complex64))
        self.register_buffer("short", torch.ones(2).to(torch.float8_e4m3fn))

    def forward(self, graph, x):
        return (super().forward(graph, x) * self.factor).real


@pytest.mark.parametrize("optimizer", ["momentum", "adamw"])
def test_complex_weights_and_numbers_of_8_bits_train_and_come_back(tmp_path, optimizer):
    options = {"steps": 5, "optimizer": optimizer, "learning_rate": 0.1, "average": {"start": 2}}
    model, again = Turned(), Turned()
    fit(karate(), model, tmp_path / "run", **options)
    fit(karate(), again, tmp_path / "run", resume=True, **options)
    assert not torch.equal(model.factor, torch.ones(2, dtype=torch.complex64))
    assert torch.equal(model.factor, again.factor)


@pytest.mark.parametrize(("seen", "error"), [(1.0, nullcontext()), (torch.nan, pytest.raises(NonFiniteError))])
def test_a_buffer_that_begins_without_an_end_does_not_end_a_training(seen: float, error: Any) -> None:
    class Masked(GCN):
        def forward(self, graph: Any, x: Tensor) -> Tensor:
            self.seen.fill_(seen)
            return super().forward(graph, x)

    model = Masked(34, 2)
    model.register_buffer("mask", torch.full((3, 3), -torch.inf).triu(1))
    model.register_buffer("seen", torch.zeros(()))
    with error:
        assert fit(karate(), model, steps=2).steps == 2 and int(model.mask.isinf().sum()) == 3
