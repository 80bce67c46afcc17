import pytest
import torch

from edgewise import ConfigError, complete
from edgewise.configuration import Choice
from edgewise.models import MovingParticles, Particles, ParticlesSettings
from edgewise.models.particles.forecast import FORECASTS
from edgewise.testing import assert_equivariant
from layers.rigid import rotation, translation

SIGNATURE = MovingParticles(7, 3, space=3)
GRAPH = complete(5).remove_self_loops()
EQUIVARIANT = [name for name in FORECASTS if name != "message-network"]


def turned(x, R, t):
    return torch.cat([x[..., :3] @ R + t, x[..., 3:6] @ R, x[..., 6:]], -1)


def model(layer, dtype=torch.float64):
    sizes = {} if layer == "linear" else {"width": 8, "depth": 2}
    return Particles(ParticlesSettings(Choice(layer, sizes)), SIGNATURE).to(dtype)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("reflect", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
@pytest.mark.parametrize("layer", EQUIVARIANT)
def test_a_forecast_turns_with_the_world(layer, dtype, tolerance, reflect, seed):
    forecast = model(layer, dtype)
    R, t = rotation(seed, reflect=reflect).to(dtype), translation(seed).to(dtype)
    assert_equivariant(
        lambda x: forecast(GRAPH, x),
        lambda x: (turned(x, R, t),),
        lambda y: y @ R + t,
        torch.randn(2, 5, 7, dtype=dtype),
        tolerance=tolerance,
    )


def test_message_passing_on_coordinates_does_not():
    forecast, x, R = model("message-network"), torch.randn(5, 7).double(), rotation(0)
    assert not torch.allclose(forecast(GRAPH, turned(x, R, 0)), forecast(GRAPH, x) @ R, atol=1e-3)


@pytest.mark.parametrize("layer", FORECASTS)
def test_every_weight_learns_and_evaluation_agrees(layer):
    forecast, x = model(layer), torch.randn(2, 5, 7).double()
    y = forecast(GRAPH, x)
    y.square().sum().backward()
    blind = {n for n, p in forecast.named_parameters() if p.grad is None or not p.grad.abs().sum()}
    last = {"forecast.layers.1.phi_h"} if "egnn" in layer else {"forecast.energy.linears.1.bias"}
    if layer in ("tfn", "se3-attention"):  # what the last layer says of numbers is not read
        last = {f"forecast.layers.1.{name}.maps.0" for name in ("own", "mixed", "output")}
    assert all(name.startswith(tuple(last)) for name in blind)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.allclose(forecast(GRAPH, 1 * x), y)


def test_schnet_forecasts_by_a_force():
    """Its displacement has no curl: the Jacobian of a gradient is symmetric."""
    forecast, now = model("schnet"), torch.randn(5, 7).double()
    jacobian = torch.autograd.functional.jacobian(lambda x: forecast(GRAPH, torch.cat([x, now[:, 3:]], -1)), now[:, :3])
    jacobian = jacobian.reshape(15, 15) - torch.eye(15)
    assert jacobian.abs().max() > 1e-3
    assert torch.allclose(jacobian, jacobian.T, atol=1e-12)
    back = torch.cat(
        [now[:, :3], -now[:, 3:6], now[:, 6:]], -1
    )  # the energy reads how fast particles are, not their way
    torch.testing.assert_close(
        forecast(GRAPH, now) - forecast(GRAPH, back), 2 * 0.7 * now[:, 3:6], rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize(
    ("layer", "signature", "message"),
    [
        (Choice("linear", {"width": 8}), SIGNATURE, "layer 'linear' takes no option 'width'"),
        ("tfn", MovingParticles(5, 2, space=2), "three dimensions"),
    ],
)
def test_what_does_not_fit_is_refused(layer, signature, message):
    with pytest.raises(ConfigError, match=message):
        Particles(ParticlesSettings(layer), signature)
