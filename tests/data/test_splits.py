"""Splits: every draw is the one that the figures of docs/results.md rest on."""

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch

from edgewise.data.splits import SPLITS, by_class, by_time, cut, dealt, fixed, held_out, shuffled, sizes
from edgewise.errors import ConfigError, DataError
from edgewise.tasks import TASKS

LABELS = torch.arange(101) % 3


def digest(parts: Iterable[Any]) -> str:
    """Of the numbers of the parts, in their order."""
    together = hashlib.sha256()
    for part in parts:
        together.update(np.asarray(part, dtype="<i8").tobytes() + b"|")
    return together.hexdigest()[:16]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: shuffled(1128, 0).values(), "fb5f0d1cefcd7b89"),
        (lambda: shuffled(37, 5).values(), "68ee329961f8814b"),
        (lambda: shuffled(50, 2, (0.6, 0.8)).values(), "51b25119b2fca265"),
        (lambda: by_class(LABELS, 4).values(), "ad84a1093132c95f"),
        (lambda: dealt(LABELS, 3), "e225d992aa263834"),
        (lambda: held_out(torch.arange(101), LABELS.numpy(), 7), "894e26efc01847f5"),
        (lambda: held_out(held_out(torch.arange(101), LABELS.numpy(), 7)[0], LABELS.numpy(), 0), "2510e9e2cf64d01b"),
        (lambda: held_out(torch.arange(101), None, 2), "d3803f8303c2d769"),
    ],
)
def test_a_draw_never_changes(make, expected: str) -> None:
    assert digest(make()) == expected


def splits_of(task: Any) -> dict[str, Any]:
    holders = (task, *(getattr(task, part, None) for part in ("graphs", "nodes", "images")))
    return next(holder.splits for holder in holders if hasattr(holder, "splits"))


GENERATED = [
    ("digits", {}, "d0ac1ec62bd601e5"),
    ("digits", {"seed": 3}, "27e8b0d48e4f0fd2"),
    ("clouds", {"points": 8, "neighbors": 2, "examples": 50, "seed": 1}, "ad90581caff3604b"),
    ("skip-links", {"copies": 7, "seed": 2}, "20ff59bb079db405"),
    ("planted", {"nodes": 300, "degree": 3, "generated": 4}, "f7a967eefbe30e24"),
    ("karate", {}, "f0df6be176b2feea"),
    ("curve", {}, "9eb8dfa727ce1509"),
]
READ = [
    ("planetoid", "citation", {}, "177b3f56749e3610"),
    ("webkb", "webkb", {"fold": 3}, "59fd36ad7a9f649e"),
    ("esol", "molecules", {"fold": 2}, "1d5a7f1751ccb049"),
    ("esol", "smiles", {"labels": 100}, "8869f1a9c3f8949e"),
    ("tudataset", "tudataset", {"dataset": "MUTAG", "fold": 4}, "12ef0342d99fccc7"),
    ("tudataset", "tudataset", {"dataset": "MUTAG", "fold": 9, "validate": False}, "6b356f5f134baa48"),
    ("tudataset", "tudataset", {"dataset": "ENZYMES", "fold": 2}, "a2dde17059805483"),
    ("musk1", "musk", {"fold": 7, "seed": 5}, "cafe05b434016851"),
    ("mnist", "mnist", {}, "525197275bbb4fd9"),
]


@pytest.mark.parametrize(("name", "options", "expected"), GENERATED)
def test_the_splits_of_a_generated_or_embedded_task_never_change(name: str, options: dict, expected: str) -> None:
    splits = splits_of(TASKS[name](**options))
    assert set(splits) == set(SPLITS)
    assert digest(splits[split] for split in SPLITS) == expected


@pytest.mark.parametrize(("folder", "name", "options", "expected"), READ)
def test_the_splits_of_a_task_on_files_never_change(folder: str, name: str, options: dict, expected: str, data) -> None:
    data(folder)
    if folder == "esol":
        pytest.importorskip("rdkit")
    splits = splits_of(TASKS[name](**options))
    assert digest(splits[split] for split in SPLITS) == expected


def test_parts_are_disjoint_and_complete() -> None:
    for splits in (shuffled(37, 5), by_class(LABELS, 4), fixed(3, 2, 4), cut(torch.arange(9), (2, 2))):
        together = torch.cat(list(splits.values()))
        assert torch.equal(together.sort().values, torch.arange(len(together)))
    assert sizes(fixed(3, 2, 4)) == "3 train, 2 valid, 4 test"
    rest, held = held_out(torch.arange(50) * 2, None, 3)
    assert torch.equal(torch.cat([rest, held]).sort().values, torch.arange(50) * 2)


def test_each_part_and_each_fold_has_its_share_of_every_class() -> None:
    for rows, share in zip(by_class(LABELS, 4).values(), (0.6, 0.2, 0.2), strict=True):
        assert ((torch.bincount(LABELS[rows]) - share * torch.bincount(LABELS)).abs() <= 1).all()
    for fold in [*dealt(LABELS, 3), held_out(torch.arange(101), LABELS.numpy(), 0)[1]]:
        assert set(torch.bincount(LABELS[fold]).tolist()) <= {3, 4}


def test_a_cut_along_another_dimension_takes_its_share_of_every_row() -> None:
    splits = cut(torch.arange(10).view(2, 5), (3, 4), dim=1)
    assert [rows.tolist() for rows in splits.values()] == [[0, 1, 2, 5, 6, 7], [3, 8], [4, 9]]


@pytest.mark.parametrize(
    ("counts", "ends", "sizes"),
    [
        ([20, 35, 45], (0.6, 0.8), [20, 35, 45]),  # the last time has more than all that is not for training
        ([58] * 9 + [378], (0.6, 0.8), [464, 58, 378]),
        ([100] * 6, (0.85, 0.9), [400, 100, 100]),
        ([90, 5, 5], (0.6, 0.8), [90, 5, 5]),
        ([10] * 10, (0.6, 0.8), [60, 20, 20]),
    ],
)
def test_three_times_make_three_parts(counts: list[int], ends: tuple[float, float], sizes: list[int]) -> None:
    times = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    splits = by_time(times.flip(0), ends)
    assert [len(rows) for rows in splits.values()] == sizes
    times = [times.flip(0)[rows] for rows in splits.values()]
    assert times[0].max() < times[1].min() and times[1].max() < times[2].min()
    with pytest.raises(DataError, match="2 different times of 40 examples do not make three parts"):
        by_time(torch.arange(40) % 2)


def test_folds_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"task\.fold must be one of 0 to 9, not 10"):
        held_out(torch.arange(20), None, 10)
    with pytest.raises(DataError, match="3 examples cannot be cut into 10 folds"):
        held_out(torch.arange(3), None, 0)
