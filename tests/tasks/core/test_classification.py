"""What outputs are trained to be, against the formulas written out: forward and gradient."""

import pytest
import torch

from edgewise.errors import ConfigError, DataError
from edgewise.graphs import complete
from edgewise.tasks import Batch, digits
from edgewise.tasks.core.classification import Objective, classification_score

TARGET = torch.tensor([2, 0, 1, 1])


def outputs() -> torch.Tensor:
    return torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()


def one_hot() -> torch.Tensor:
    y = torch.zeros(4, 3, dtype=torch.float64)
    y[torch.arange(4), TARGET] = 1
    return y


@pytest.mark.parametrize(
    ("objective", "written"),
    [
        (Objective("squared"), lambda o: (one_hot() - o).square().sum() / 4),  # (3.7)
        (
            Objective(temperature=2.5),  # (3.9)-(3.11) with footnote 2
            lambda o: -(one_hot() * ((o / 2.5).exp() / (o / 2.5).exp().sum(1, keepdim=True)).log()).sum() / 4,
        ),
        (Objective(), lambda o: -(one_hot() * (o.exp() / o.exp().sum(1, keepdim=True)).log()).sum() / 4),
    ],
    ids=["squared", "temperature", "plain"],
)
def test_the_loss_is_its_formula(objective: Objective, written) -> None:
    o = outputs()
    found, expected = objective.loss(o, TARGET), written(o)
    assert torch.allclose(found, expected, atol=1e-12)
    assert torch.allclose(*(torch.autograd.grad(loss, o)[0] for loss in (found, expected)), atol=1e-12)
    assert torch.allclose(objective.loss(o, TARGET, "sum"), 4 * expected)
    batch = Batch(complete(1), torch.zeros(4, 1), TARGET)
    assert classification_score(o, batch, objective)["loss"].item() == pytest.approx(4 * expected.item())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"error": "hinge"}, "unknown error 'hinge'; known are cross-entropy, squared"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"error": "squared", "temperature": 2.0}, "no temperature"),
    ],
)
def test_impossible_objectives_are_refused(options, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        digits(**options)


@pytest.mark.parametrize("error", ["cross-entropy", "squared"])
def test_classes_that_are_no_whole_numbers_are_refused(error) -> None:
    with pytest.raises(DataError, match="whole numbers, int64, not float32"):
        Objective(error).loss(outputs(), TARGET.float())
