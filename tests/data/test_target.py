"""Whether labels are classes or a quantity."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from data.test_graph import write
from edgewise.data.columns import Target
from edgewise.errors import DataError
from edgewise.tasks import node_folder


def nodes_of(values: Sequence[object], blank: int = 0) -> str:
    rows = "".join(f"{row},{value}\n" for row, value in enumerate(values))
    return "height,label\n" + rows + "".join(f"{row},\n" for row in range(blank))


PAIR = "sender,receiver\n0,1\n"


def test_a_quantity_is_not_taken_for_classes(tmp_path) -> None:
    """63 whole numbers used to become 63 classes, and fractions that repeat as many as there are."""
    counts = [row % 63 for row in range(400)]
    with pytest.raises(DataError, match=r"63 different whole numbers in 400 nodes: .* Give --task.target class or"):
        node_folder(write(tmp_path, nodes_of(counts), PAIR))
    assert len(node_folder(str(tmp_path), target="class").classes) == 63
    assert node_folder(str(tmp_path), target="class").classes[9:11] == ("9", "10")
    values = node_folder(str(tmp_path), target="number")
    assert values.metric == "rmse" and values.nodes.labels[:3, 0].tolist() == [0, 1, 2]
    fractions = node_folder(write(tmp_path, nodes_of([row / 7 for row in range(60)], blank=100), PAIR))
    assert fractions.metric == "rmse" and len(fractions.splits["train"]) == 36
    assert "label: a quantity (there are fractions; else give --task.target class)" in fractions.summary
    few = node_folder(write(tmp_path, nodes_of(["+1", "2.00", "", "2"] + ["1.0", "2.0", "", "2."] * 14), PAIR))
    assert few.classes == ("1", "2") and few.nodes.labels[[0, 1, 3], 0].tolist() == [0, 1, 1]
    assert "label: 2 classes (few whole numbers; else give --task.target number)" in few.summary
    with pytest.raises(DataError, match=r"label holds 'n7', which is no number: give --task\.target class"):
        node_folder(write(tmp_path, nodes_of(["1", "n7", *"123" * 9]), PAIR), target="number")


def test_thousands_and_percent_are_numbers(tmp_path) -> None:
    """They ended in Python's ValueError; 0% was a text."""
    for labels, values in ((["1,200", "950", "-2,345"], [1200, 950, -2345]), (["10%", "0%", "5 %"], [10, 0, 5])):
        nodes = nodes_of([f'"{label}"' for label in labels * 20])
        assert node_folder(write(tmp_path, nodes, PAIR), target="number").nodes.labels[:3, 0].tolist() == values
        order = [label for _, label in sorted(zip(values, labels, strict=True))]
        assert list(node_folder(str(tmp_path)).classes) == order
    rates = node_folder(write(tmp_path, nodes_of(["0%", "12.5%", "7.25%"] * 20), PAIR))
    assert rates.metric == "rmse" and rates.nodes.labels[:3, 0].tolist() == [0, 12.5, 7.25]


def test_texts_that_hardly_repeat_are_no_classes(tmp_path) -> None:
    names, thirty = [f"n{row}" for row in range(60)], [f"n{row % 30}" for row in range(60)]
    for blank in (0, 100):
        with pytest.raises(DataError, match="60 labels of 60 nodes differ"):
            node_folder(write(tmp_path, nodes_of(names, blank), PAIR))
    assert len(node_folder(str(tmp_path), target="class").classes) == 60
    assert len(node_folder(write(tmp_path, nodes_of(thirty), PAIR)).classes) == 30
    codes = node_folder(write(tmp_path, nodes_of(["007", "010", "007"] * 20), PAIR))
    assert codes.classes == ("007", "010")


def test_whole_numbers_of_a_quantity_are_not_taken_for_unknown_ones() -> None:
    degrees = Target("number", (), "")
    assert degrees.values(np.array([-1, 0, 30])).isnan().tolist() == [True, False, False]
    assert degrees.values(np.array([-30.0, np.nan])).isnan().tolist() == [False, True]
    assert Target("class", ("0", "1"), "").values(np.array([-1, 1])).tolist() == [-1, 1]


def test_a_later_label_that_is_no_finite_number_is_unknown() -> None:
    """It is said to be none of the run's, and made its figures infinite."""
    mass = Target("number", (), "")
    assert mass.values(["1", "inf", "1e39", "x", ""]).isnan().tolist() == [False, True, True, True, True]
    assert mass.strangers(["1", "inf", "1e39", "x", ""]) == ["1e39", "inf", "x"]


@pytest.mark.parametrize("label", ["when", "when,other"])
def test_digits_beyond_single_precision_are_kept(tmp_path, label: str) -> None:
    """A Julian date has seven digits before its point, as many as float32 has in all."""
    dates = [2451545 + 0.00125 * (n % 8) for n in range(24)]
    rows = "".join(f"n{n},{n % 5},{date!r},{n % 2}\n" for n, date in enumerate(dates))
    folder = write(tmp_path, "id,x,when,other\n" + rows, "from,to\nn0,n1\n")
    task = node_folder(folder, label=label)
    batch = task.batch("train", None)
    perfect = torch.zeros(24, task.signature.outputs, dtype=torch.float64)
    mean, deviation = task.fitted.scales[0]
    perfect[:, 0] = (torch.tensor(dates, dtype=torch.float64) - mean) / deviation
    assert deviation == pytest.approx(0.00286, rel=0.3)
    means = {name: value / batch.size for name, value in task.score(perfect, batch).items()}
    assert float(task.finish(means)["rmse" if label == "when" else "rmse when"]) < 1e-8
    loss = task.loss(perfect.float(), batch)
    assert loss.dtype == torch.float32 and float(loss) == pytest.approx(float(means["loss"]), abs=1e-6)
