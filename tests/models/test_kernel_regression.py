import pytest
import torch

from edgewise import ConfigError, causal
from edgewise.layers import KernelRegression
from edgewise.models import Features, KernelRegressionModel, KernelRegressionSettings


def test_it_regresses_the_last_channels_on_the_first():
    model = KernelRegressionModel(KernelRegressionSettings(sigma=0.5), Features(inputs=5, outputs=2))
    x = torch.randn(6, 5)
    assert torch.equal(model(causal(6), x), KernelRegression(0.5)(causal(6), x[:, :3], x[:, 3:]))


def test_a_task_without_positions_and_values_is_refused():
    with pytest.raises(ConfigError, match="positions and the values"):
        KernelRegressionModel(KernelRegressionSettings(), Features(2, 2))
