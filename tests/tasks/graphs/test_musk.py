"""Bags of instances: from a small MATLAB file written here, and from the real one."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from edgewise.errors import DataError
from edgewise.graphs import complete
from edgewise.models import Features, Transformer, TransformerSettings
from edgewise.tasks import BagClassification, Bags, musk
from edgewise.tasks.graphs.musk import read_bags

SIZES = [2, 1, 3, 2, 4, 1, 2, 2, 3, 1, 2, 5]


def write_musk(folder: Path, **changed: object) -> Path:
    """A data set of PRTools with twelve bags, every second one positive by its last instance."""
    owners = [f"bag {bag}  " for bag, size in enumerate(SIZES) for _ in range(size)]
    last = np.cumsum(SIZES) - 1
    positive = [row in last[1::2] for row in range(sum(SIZES))]
    fields = {
        "data": np.arange(sum(SIZES) * 3, dtype=np.int16).reshape(-1, 3),
        "nlab": np.array(positive, dtype=np.uint8)[:, None] + 1,
        "lablist": np.array([[np.array(["negative", "positive"]), np.zeros(1)]], dtype=object),
        "ident": {"milbag": np.array(owners)},
    }
    content = BytesIO()
    savemat(content, {"x": fields | changed})
    (folder / "musk1.mat").write_bytes(content.getvalue())
    return folder


def a_task(fold: int = 0, seed: int = 0) -> BagClassification:
    x = tuple(torch.arange(size * 2.0).view(size, 2) + bag for bag, size in enumerate(SIZES))
    names = tuple(f"b{bag}" for bag in range(len(SIZES)))
    return BagClassification("bags", Bags(x, torch.arange(len(SIZES)) % 2, names, ("no", "yes")), fold, seed)


def test_a_file_is_read_into_bags(tmp_path: Path) -> None:
    bags = read_bags(write_musk(tmp_path) / "musk1.mat")
    assert [len(x) for x in bags.x] == SIZES
    assert bags.labels.tolist() == [0, 1] * 6
    assert bags.names[:2] == ("bag 0", "bag 1")
    assert bags.classes == ("negative", "positive")
    assert torch.equal(torch.cat(bags.x), torch.arange(sum(SIZES) * 3.0).view(-1, 3))
    assert musk(folder=str(tmp_path)).signature == Features(3, 2, whole_graph=True)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"nlab": np.ones((3, 1), dtype=np.uint8)}, "do not fit"),
        ({"nlab": np.full((sum(SIZES), 1), 3, dtype=np.uint8)}, "but 2 classes"),
        ({"nlab": np.zeros((sum(SIZES), 1), dtype=np.uint8)}, "but 2 classes"),
        ({"data": np.full((sum(SIZES), 3), np.nan)}, "NaN"),
        ({"ident": 5}, "not a multiple-instance data set"),
        ({"data": "words"}, "not a multiple-instance data set"),
    ],
)
def test_another_content_is_refused(tmp_path: Path, changed: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        musk(folder=str(write_musk(tmp_path, **changed)))


def test_a_damaged_or_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"lacks musk1\.mat"):
        musk(folder=str(tmp_path))
    whole = (write_musk(tmp_path) / "musk1.mat").read_bytes()
    for content in (b"", whole[:100], whole[: len(whole) // 2], b"\0" * 2000, b"\0" * (2 << 20)):
        (tmp_path / "musk1.mat").write_bytes(content)
        with pytest.raises(DataError, match=r"musk1\.mat"):
            musk(folder=str(tmp_path))


def test_folds_part_the_bags() -> None:
    tasks = [a_task(fold) for fold in range(10)]
    assert torch.equal(torch.cat([task.graphs.splits["test"] for task in tasks]).sort().values, torch.arange(12))
    for task in tasks:
        assert not set(task.graphs.splits["test"].tolist()) & set(task.graphs.splits["train"].tolist())


def test_features_are_standardised_by_the_training_bags_alone() -> None:
    task = a_task(fold=2)
    x = task.graphs.x.split(SIZES)
    seen = torch.cat([x[bag] for bag in task.graphs.splits["train"].tolist()])
    torch.testing.assert_close(seen.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(seen.std(0), torch.ones(2))


def test_a_bag_is_predicted_by_its_name() -> None:
    task = a_task()
    model = Transformer(
        TransformerSettings(width=4, depth=1, heads=1, positions="none", readout="hopfield"), task.signature
    )
    answer = task.predict(model, complete, " b3 ", "cpu")
    assert (answer["bag"], answer["instances"], answer["label"]) == ("b3", 2, "yes")
    assert sum(answer["probabilities"].values()) == pytest.approx(1)
    with pytest.raises(DataError, match="no bag 'b99' in bags"):
        task.predict(model, complete, "b99", "cpu")


def test_the_real_musk_has_its_known_numbers(data) -> None:
    task = musk(folder=str(data("musk1")))
    assert (len(task.graphs.members), len(task.graphs.x), task.signature.inputs) == (92, 476, 166)
    assert task.graphs.targets.bincount().tolist() == [45, 47]
    assert task.graphs.names[0] == "MUSK-188"
