"""Pictures of section F: networks that know of space."""

from math import cos, pi, sin

import numpy
import torch
from canvas import BLUE, COLOURS, GREY, RED, Axes, Canvas, fitted
from optimisation import digits
from trained import dense, steps, trained

from edgewise import complete, record
from edgewise.layers import LiftingConvolution, RadialField, SchNet, SE3Attention
from edgewise.layers.geometric.spherical import harmonics
from edgewise.layers.images.group_convolution import PlaneGroup
from edgewise.tasks.particles.granular import draw, simulate


def schnet() -> Canvas:
    """SchNet's continuous filters: eight channels of an untrained W(r), functions of the distance alone, which end
    smoothly where the neighbourhood does."""
    torch.manual_seed(0)
    layer = SchNet(8, 8, gaussians=25, cutoff=5.0)
    r = torch.linspace(0.05, 5, 100)
    gaussians = (-((r[:, None] - torch.linspace(0, 5, 25)) ** 2) / (2 * (5 / 24) ** 2)).exp()
    first, second = layer.filters
    hidden = torch.nn.functional.softplus(first(gaussians)) - 0.6931
    w = (second(hidden) * 0.5 * (torch.cos(r * pi / 5) + 1)[:, None]).detach()
    canvas = Canvas()
    axes = Axes(canvas, (14, 12, 292, 164), (0, 5), (float(w.min()) * 1.1, float(w.max()) * 1.1))
    for channel in range(8):
        axes.line(r.tolist()[::2], w[::2, channel].tolist(), COLOURS[channel], 1.3)
    axes.labels("distance", "filter")
    return canvas


def radial() -> Canvas:
    """A radial field moves particles along the lines between them: where an untrained layer sends six particles, and
    what it does to the same ones turned by 60 degrees. The arrows turn along."""
    torch.manual_seed(3)
    layer = RadialField(16)
    x = torch.cat(
        [torch.tensor([[-1.2, 0.4], [0.3, 1.2], [1.3, 0.2], [0.2, -1.1], [-0.6, -0.9], [0.3, 0.1]]), torch.zeros(6, 1)],
        1,
    )
    canvas = Canvas()
    for k, angle in enumerate((0.0, pi / 3)):
        turn = torch.tensor([[cos(angle), -sin(angle), 0], [sin(angle), cos(angle), 0], [0, 0, 1.0]])
        moved = layer(complete(6), x @ turn.T, torch.zeros(6, 3))[0].detach() - x @ turn.T
        step = 0.7 * moved / moved.norm(dim=-1).max()
        for place, move in zip((x @ turn.T).tolist(), step.tolist(), strict=True):
            at = (80 + 160 * k + 30 * place[0], 100 - 30 * place[1])
            canvas.arrow(at, (at[0] + 40 * move[0], at[1] - 40 * move[1]), RED, 1.4)
            canvas.node(at, BLUE, 4, 0.95)
        canvas.text(80 + 160 * k, 192, ("as drawn", "turned by 60°")[k], colour=GREY)
    return canvas


def egnn() -> Canvas:
    """EGNN forecasts charged particles after 500 steps of the recipe, on a system that it has not seen: from where
    they start (hollow) to where it sends them (blue), and where they truly go (red)."""
    run = trained("nbody-egnn", *steps(500))
    batch = next(iter(run.task.batches("test", 8, run.config.graph)))
    with torch.no_grad():
        forecast = run.model.eval()(*batch.inputs)
    canvas = Canvas()
    for panel in range(2):
        x, y, f = batch.x[panel + 1], batch.target[panel + 1], forecast[panel + 1]
        start = x[..., :3] if x.shape[-1] >= 6 else x
        every = torch.cat([start, y[..., :3], f[..., :3]])[:, :2]
        spots = fitted(every.tolist(), (20 + 156 * panel, 20, 124, 150))
        for n in range(len(start)):
            canvas.arrow(spots[n], spots[n + len(start)], RED, 1.6, 0.8)
            canvas.arrow(spots[n], spots[n + 2 * len(start)], BLUE, 1.2)
            canvas.node(spots[n], GREY, 3, 0)
    return canvas


def spherical() -> Canvas:
    """The spherical harmonics of types 0, 1 and 2, by which a tensor field network tells directions apart, in a plane
    through the centre: the farther from it the larger, positive in blue and negative in red."""
    angles = torch.linspace(0, 2 * pi, 121)
    direction = torch.stack([angles.cos(), torch.zeros(121), angles.sin()], -1)
    y = harmonics(2, direction)
    chosen = [0] + [c for c in range(1, y.shape[-1]) if float(y[:, c].abs().max()) > 0.2]
    canvas = Canvas()
    for k, column in enumerate(chosen[:6]):
        centre = (40 + 120 * (k % 3) - 0, 55 + 90 * (k // 3))
        for sign, colour in ((1, BLUE), (-1, RED)):
            size = (sign * y[:, column]).clamp(min=0) / y[:, column].abs().max() * 38
            points = [
                (centre[0] + float(s * a.cos()), centre[1] - float(s * a.sin()))
                for s, a in zip(size, angles, strict=True)
            ]
            canvas.line(points, colour, 1.4)
    return canvas


def invariance() -> Canvas:
    """The attention of an SE(3)-Transformer does not turn with space: the weights that one particle (ringed) gives to
    the others, as drawn and turned by 90 degrees, are the same."""
    torch.manual_seed(5)
    layer = SE3Attention(4, 2, 8)
    h = torch.randn(7, 4, 4)
    x = torch.tensor(
        [[0.0, 0, 0], [1.6, 0.2, 0], [0.3, 1.4, 0], [-1.2, 0.9, 0], [-1.5, -0.4, 0], [-0.3, -1.5, 0], [1, -1, 0]]
    )
    h[:, 1:] = 0
    canvas = Canvas()
    for k, angle in enumerate((0.0, pi / 2)):
        turn = torch.tensor([[cos(angle), -sin(angle), 0], [sin(angle), cos(angle), 0], [0, 0, 1.0]])
        placed = x @ turn.T
        with record() as seen, torch.no_grad():
            layer(complete(7), h, placed)
        weights = dense(seen[0].graph, seen[0].weights).mean(-1)[0]
        spots = [(80 + 160 * k + 34 * p[0], 95 - 34 * p[1]) for p in placed.tolist()]
        for j in range(1, 7):
            canvas.line([spots[j], spots[0]], BLUE, 0.4 + 16 * float(weights[j]), 0.6)
        for spot in spots:
            canvas.node(spot, GREY, 4, 1)
        canvas.node(spots[0], RED, 5.5, 0.2)
        canvas.text(80 + 160 * k, 192, ("as drawn", "turned by 90°")[k], colour=GREY)
    return canvas


def turning() -> Canvas:
    """A p4 convolution reads a digit with one filter in four poses: the digit, and the four feature maps of one
    untrained filter. Were the digit turned, the maps would turn and change places."""
    torch.manual_seed(4)
    x, y = digits()
    image = x[(y == 2).nonzero()[3, 0]].reshape(8, 8).repeat_interleave(2, 0).repeat_interleave(2, 1)
    layer = LiftingConvolution(PlaneGroup(4), 1, 1, radius=2.3)
    from edgewise import disc

    with torch.no_grad():
        maps = layer(disc(16, 16, radius=2.3), image.reshape(256, 1)).reshape(16, 16, 4)
    canvas = Canvas()
    canvas.heat(image, (8, 60, 76, 76), ("currentColor", RED))
    for g in range(4):
        canvas.heat(maps[..., g], (100 + 55 * g, 72, 51, 51))
        canvas.text(125 + 55 * g, 138, f"{90 * g}°", colour=GREY)
    return canvas


def falling() -> Canvas:
    """What the simulator learns from: the paths of some of the soft discs that fall into a box and collide, 120 frames
    of the physics engine, with all discs where they end."""
    random = numpy.random.default_rng(0)
    film = simulate(*draw(30, random), frames=120)
    canvas = Canvas()
    low, high = film.min((0, 1)), film.max((0, 1))
    scale = 170 / max(high - low)

    def place(p: numpy.ndarray) -> tuple[float, float]:
        return 75 + scale * float(p[0] - low[0]), 185 - scale * float(p[1] - low[1])

    for n in range(0, 30, 2):
        canvas.line([place(p) for p in film[::4, n]], COLOURS[n // 2 % len(COLOURS)], 0.9, 0.8)
    for n in range(30):
        canvas.node(place(film[-1, n]), GREY if n % 2 else COLOURS[n // 2 % len(COLOURS)], 0.04 * scale, 0.7)
    return canvas
