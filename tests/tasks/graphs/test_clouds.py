import math

import pytest
import torch

from edgewise import ConfigError
from edgewise.tasks import clouds
from edgewise.tasks.graphs.clouds import BODIES, cloud


def draw(name):
    return BODIES[name](20_000, torch.Generator().manual_seed(0)).double()


def test_points_lie_on_their_bodies():
    assert torch.allclose(draw("sphere").norm(dim=1), torch.tensor(1.0).double(), atol=1e-5)
    assert torch.allclose(draw("cube").abs().max(1).values, torch.tensor(1.0).double())
    x, y, z = draw("torus").T
    assert torch.allclose((torch.hypot(x, y) - 1) ** 2 + z**2, torch.tensor(0.16).double(), atol=1e-5)
    x, y, z = draw("cone").T
    radius = torch.hypot(x, y)
    assert torch.allclose(torch.where(z == -1, 0, radius - (1 - z) / 2), torch.tensor(0.0).double(), atol=1e-5)
    x, y, z = draw("cylinder").T
    assert ((torch.hypot(x, y) - 1).abs().lt(1e-5) | (z.abs() == 1)).all()
    x, y, z = draw("helix").T
    assert torch.allclose(
        torch.stack([x, y]), torch.stack([(2 * math.pi * (z + 1)).cos(), (2 * math.pi * (z + 1)).sin()]), atol=1e-4
    )


def test_a_cloud_is_centred_scaled_and_a_function_of_the_seed():
    generator = torch.Generator().manual_seed(3)
    x = cloud(BODIES["cube"], 50, 0.05, generator)
    assert x.mean(0).abs().max() < 1e-6
    assert x.square().sum(-1).mean().item() == pytest.approx(1)
    a, b, c = (clouds(points=8, neighbors=2, examples=16, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(a.graphs.x, b.graphs.x)
    assert not torch.equal(a.graphs.x, c.graphs.x)


@pytest.mark.parametrize("options", [{"points": 3}, {"examples": 2}, {"neighbors": 64}, {"noise": -1.0}])
def test_impossible_options_are_refused(options):
    with pytest.raises(ConfigError):
        clouds(**options)
