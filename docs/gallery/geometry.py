"""Pictures of section F: networks that know of space."""

from math import cos, log, pi, sin

import torch
from canvas import BLUE, COLOURS, GREY, PURPLE, RED, Axes, Canvas, fitted
from trained import dense, steps, trained

from edgewise import complete, record
from edgewise.layers.geometric.spherical import harmonics
from edgewise.models.vision.group_cnn import halved


def schnet() -> Canvas:
    """SchNet's continuous filters, functions of the distance alone that end smoothly where the neighbourhood does: the
    eight of the first layer that vary most, after 500 of the recipe's steps on charged particles."""
    layer = trained("nbody-schnet", *steps(500)).model.forecast.layers[0]
    r, spread = torch.linspace(0.05, layer.cutoff, 100), layer.cutoff / (layer.gaussians - 1)
    gaussians = (-((r[:, None] - torch.linspace(0, layer.cutoff, layer.gaussians)) ** 2) / (2 * spread**2)).exp()
    first, second = layer.filters
    hidden = torch.nn.functional.softplus(first(gaussians)) - log(2)
    w = (second(hidden) * 0.5 * (torch.cos(r * pi / layer.cutoff) + 1)[:, None]).detach()
    canvas = Canvas()
    axes = Axes(canvas, (14, 12, 292, 164), (0, layer.cutoff), (float(w.min()) * 1.1, float(w.max()) * 1.1))
    for k, channel in enumerate(w.std(0).topk(8).indices.tolist()):
        axes.line(r.tolist()[::2], w[::2, channel].tolist(), COLOURS[k], 1.3)
    axes.labels("distance", "filter")
    return canvas


def radial() -> Canvas:
    """What radial fields have learned of Coulomb's law in 3,000 of the recipe's steps: how far a neighbour pushes a
    particle away, by its distance, over all four layers: like charges repel (red) and unlike ones attract (blue), less
    and less with the distance."""
    layers = trained("nbody-radial-field", *steps(3000)).model.forecast.layers
    r = torch.linspace(1, 8, 60)[:, None]
    canvas = Canvas()
    pushes = {}
    for sign in (1.0, -1.0):
        known = torch.cat([r.log(), torch.full_like(r, sign), r.log()], -1)
        with torch.no_grad():
            pushes[sign] = sum(r * layer.phi_rf(known) for layer in layers)[:, 0] / 4  # a mean over four neighbours
    most = max(float(push.abs().max()) for push in pushes.values())
    axes = Axes(canvas, (14, 16, 292, 160), (0, 8), (-1.05 * most, 1.05 * most))
    axes.line([0, 8], [0, 0], GREY, 0.7)
    for sign, name, colour in ((1.0, "like charges", RED), (-1.0, "unlike charges", BLUE)):
        axes.line(r[:, 0].tolist(), pushes[sign].tolist(), colour, 1.8)
        canvas.text(300, 40 if sign > 0 else 156, name, 9, "end", colour)
    axes.labels("distance", "push")
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
    """The attention of an SE(3)-Transformer does not turn with space: the weights that one charged particle (ringed)
    gives to the others in the first layer, after 150 of the recipe's steps, in a test system as it is and turned by 90
    degrees, are the same. Red and blue: charges."""
    run = trained("nbody-se3", *steps(150))
    batch = next(iter(run.task.batches("test", 400, run.config.graph)))
    flat = batch.x[..., :2] - batch.x[..., :2].mean(1, keepdim=True)
    apart = torch.stack([torch.pdist(places).min() / places.norm(dim=-1).max() for places in flat])
    charges = batch.x[..., 6]
    apart[charges.amin(1) == charges.amax(1)] = 0
    x, v, q = batch.x[apart.argmax()].split([3, 3, 1], -1)  # the system with both charges that is best to see
    x = x - x.mean(0)
    canvas = Canvas()
    for k, angle in enumerate((0.0, pi / 2)):
        turn = torch.tensor([[cos(angle), -sin(angle), 0], [sin(angle), cos(angle), 0], [0, 0, 1.0]])
        turned = torch.cat([x @ turn.T, v @ turn.T, q], -1)
        with record() as seen, torch.no_grad():
            run.model.eval()(complete(len(x)).remove_self_loops(), turned)
        weights = dense(seen[0].graph, seen[0].weights).mean(-1)[0]
        scale = 62 / float(x[:, :2].norm(dim=-1).max())
        spots = [(80 + 160 * k + scale * p[0], 95 - scale * p[1]) for p in (x @ turn.T).tolist()]
        for j in range(1, len(x)):
            canvas.line([spots[j], spots[0]], PURPLE, 0.4 + 12 * float(weights[j]), 0.6)
            canvas.text(spots[j][0], spots[j][1] - 7, f"{float(weights[j]):.2f}", 8)
        for spot, charge in zip(spots, q[:, 0].tolist(), strict=True):
            canvas.node(spot, RED if charge > 0 else BLUE, 4, 0.95)
        canvas.node(spots[0], "currentColor", 7, 0)
        canvas.text(80 + 160 * k, 192, ("as it is", "turned by 90°")[k], colour=GREY)
    return canvas


def turning() -> Canvas:
    """A p4 network reads a digit with each filter in four poses. The strongest filter of its first layer after 100 of
    the recipe's steps: its four feature maps of a test digit, and of the same digit turned by 90 degrees. The maps turn
    along and change places; what the network makes of the digit stays."""
    run = trained("mnist-rotated-p4", *steps(100), ("evaluation.batch", "1000"))
    batch = next(iter(run.task.batches("test", 40, run.config.graph)))
    convolution, norm = run.model.convolutions[0], run.model.norms[0]
    image = batch.x[7].reshape(28, 28)
    canvas, maps, given = Canvas(), [], []
    for turned in (image, image.rot90()):
        with torch.no_grad():
            given.append(int(run.model.eval()(batch.graph, turned.reshape(1, 784, 1)).argmax()))
            _, y = halved(batch.graph, norm(convolution(batch.graph, turned.reshape(784, 1))).relu())
        maps.append(y.reshape(14, 14, 4, -1))
    channel = int(maps[0].std((0, 1)).mean(0).argmax())
    most = float(maps[0][..., channel].max())
    for k, turned in enumerate((image, image.rot90())):
        ink = turned.reshape(14, 2, 14, 2).amax((1, 3)) - image.min()
        canvas.heat(ink, (8, 14 + 94 * k, 70, 70), ("currentColor", RED))
        canvas.text(43, 96 + 94 * k, f"read as {given[k]}", colour=GREY)
        for g in range(4):
            canvas.heat(maps[k][..., g, channel], (92 + 56 * g, 18 + 94 * k, 52, 52), top=most)
            canvas.text(118 + 56 * g, 82 + 94 * k, f"{90 * g}°", colour=GREY)
    return canvas


def falling() -> Canvas:
    """Soft discs fall into a box and collide: where the physics engine has them (left) and where the simulator has
    them (right) that was trained for 600 of the recipe's steps, read the first six frames and went on by itself for
    200. The colour of a disc is how high it began."""
    run = trained("granular-gns", *steps(600))
    film = run.task.splits["test"][:1]
    with torch.no_grad():
        rolled = run.task.roll_out(run.model.eval(), film, steps=200)
    scene, canvas = rolled.scene, Canvas()
    scale = min(140 / scene.box[0], 165 / scene.box[1])
    rank = rolled.truth[0, 0, :, -1].argsort().argsort().tolist()
    for k, path in enumerate((rolled.truth[0], rolled.forecast[0])):
        left = 12 + 160 * k
        spots = [[(left + scale * x, 180 - scale * y) for x, y in frame] for frame in path[rolled.given - 1 :].tolist()]
        canvas.line(
            [(left, 20), (left, 180), (left + scale * scene.box[0], 180), (left + scale * scene.box[0], 20)], GREY
        )
        for n, order in enumerate(rank):
            colour = COLOURS[4 * order // len(rank)]
            canvas.line([frame[n] for frame in spots[::20]], colour, 0.6, 0.5)
            canvas.node(spots[-1][n], colour, scale * scene.radius, 0.8)
        canvas.text(left + scale * scene.box[0] / 2, 194, ("physics engine", "learned")[k], colour=GREY)
    return canvas
