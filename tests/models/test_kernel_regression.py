import pytest
import torch

from edgewise import ConfigError, causal
from edgewise.layers import KernelRegression
from edgewise.models import Features, KernelRegressionModel, KernelRegressionSettings, Tokens


def test_it_regresses_the_last_channels_on_the_first():
    model = KernelRegressionModel(KernelRegressionSettings(sigma=0.5), Features(inputs=5, outputs=2))
    x = torch.randn(6, 5)
    assert torch.equal(model(causal(6), x), KernelRegression(0.5)(causal(6), x[:, :3], x[:, 3:]))


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        (Features(2, 2), "positions and the values"),
        (Features(3, 1, whole_graph=True), "has one output per node"),
        (Tokens(9, 3, length=4), "reads features of nodes"),
    ],
)
def test_a_task_without_positions_and_values_is_refused(signature, message):
    with pytest.raises(ConfigError, match=message):
        KernelRegressionModel(KernelRegressionSettings(), signature)
