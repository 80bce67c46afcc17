import pytest
import torch

from edgewise import ConfigError, causal
from edgewise.layers import KernelRegression
from edgewise.models import KernelRegressionModel, KernelRegressionSettings, Signature


def test_it_regresses_the_last_channels_on_the_first():
    model = KernelRegressionModel(KernelRegressionSettings(sigma=0.5), Signature(inputs=5, outputs=2))
    x = torch.randn(6, 5)
    assert torch.equal(model(causal(6), x), KernelRegression(0.5)(causal(6), x[:, :3], x[:, 3:]))


@pytest.mark.parametrize(
    "signature",
    [Signature(2, 2), Signature(3, 1, whole_graph=True), Signature(9, 3, tokens=True, length=4)],
)
def test_a_task_without_places_and_values_is_refused(signature):
    with pytest.raises(ConfigError, match="places and the values"):
        KernelRegressionModel(KernelRegressionSettings(), signature)
