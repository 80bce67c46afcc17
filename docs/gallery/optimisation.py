"""Pictures of section A: networks without a graph, and how weights are trained."""

from functools import cache
from math import exp, pi, sqrt

import torch
from canvas import AMBER, BLUE, COLOURS, GREEN, GREY, PURPLE, RED, Axes, Canvas
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from trained import trained

from edgewise.layers import MLP, RandomizedLinear
from edgewise.layers.plain.low_rank import LowRank
from edgewise.models import VariationalAutoencoder
from edgewise.tasks import ImageReconstruction
from edgewise.training.optimizers.averaging import WeightAverage
from edgewise.training.optimizers.descent import AdaGrad, Adam, Descent, Momentum, RMSProp, optimizer_for
from edgewise.training.optimizers.langevin import SGLD
from edgewise.training.optimizers.schedules import Constant, Cosine, Linear, Polynomial
from edgewise.training.optimizers.variational import ConstantSGD


@cache
def digits() -> tuple[Tensor, Tensor]:
    """The 1,797 handwritten digits [N, 64] from 0 to 1, and their classes."""
    data = load_digits()
    return torch.tensor(data.data / 16, dtype=torch.float32), torch.tensor(data.target)


def perceptron() -> Canvas:
    """What the sixteen hidden units of a perceptron look for in a handwritten digit: their weights after 300 steps,
    blue where ink speaks for the unit, red where it speaks against it."""
    torch.manual_seed(0)
    x, y = digits()
    model = MLP([64, 16, 10])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-3)
    for _ in range(300):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    weights = next(p for p in model.parameters() if p.dim() == 2).detach().reshape(16, 8, 8)
    canvas = Canvas()
    for k, unit in enumerate(weights):
        canvas.heat(unit, (8 + 38.5 * (k % 8), 58 + 44 * (k // 8), 34, 34))
    canvas.text(160, 40, "64 pixels → 16 hidden units → 10 classes", 10)
    canvas.text(160, 164, f"{(model(x).argmax(1) == y).float().mean():.0%} of the training digits", 9, colour=GREY)
    return canvas


class Valley(nn.Module):
    """A narrow, bent valley: (1 - x)² + 8 (y - x²)²."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.tensor([-1.3, 1.2]))

    def height(self) -> Tensor:
        x, y = self.place
        return (1 - x) ** 2 + 8 * (y - x**2) ** 2


def optimisers() -> Canvas:
    """Five optimisers leave the same point of a bent valley, each for 150 steps; the minimum is the ring at the
    right."""
    canvas = Canvas()
    axes = Axes(canvas, (14, 12, 292, 164), (-1.7, 1.7), (-0.6, 2.0))
    for level in (0.3, 1.5, 5, 14):
        for branch in (1, -1):
            xs = [-1.7 + 3.4 * k / 80 for k in range(81)]
            inside = [(x, x * x + branch * sqrt((level - (1 - x) ** 2) / 8)) for x in xs if level >= (1 - x) ** 2]
            inside = [(x, y) for x, y in inside if -0.6 <= y <= 2]
            canvas.line([axes.at(x, y) for x, y in inside], GREY, 0.6, 0.6) if inside else None
    chosen: list[tuple[str, Descent]] = [
        ("SGD", Descent(learning_rate=0.01)),
        ("momentum", Momentum(learning_rate=0.01, momentum=0.85)),
        ("AdaGrad", AdaGrad(learning_rate=0.3)),
        ("RMSprop", RMSProp(learning_rate=0.03)),
        ("Adam", Adam(learning_rate=0.1)),
    ]
    for k, (name, settings) in enumerate(chosen):
        model = Valley()
        optimizer = optimizer_for(model, settings)
        path = [model.place.tolist()]
        for _ in range(150):
            optimizer.zero_grad()
            model.height().backward()
            optimizer.step()
            path.append(model.place.tolist())
        axes.line(*zip(*path, strict=True), COLOURS[k], 1.3)
        canvas.text(40 + 60 * k, 193, name, 9, colour=COLOURS[k])
    canvas.node(axes.at(1, 1), GREY, 4, 0)
    return canvas


def langevin() -> Canvas:
    """Langevin dynamics with noise of the right size visits a weight as often as it is probable: 4,000 chains after
    500 steps as bars, the posterior of two modes as the curve."""
    torch.manual_seed(0)
    w = nn.Parameter(2 * torch.rand(4000) - 1)
    chain = SGLD([w], lr=0.02, examples=1)
    for _ in range(500):
        w.grad = (8 * w * (w**2 - 1)).detach()
        chain.step()
    grid = [-2 + 4 * k / 120 for k in range(121)]
    heights = [exp(-2 * (x * x - 1) ** 2) for x in grid]
    area = sum(heights) * 4 / 120
    counts = torch.histc(w.detach(), bins=40, min=-2, max=2) / 4000 / 0.1
    canvas = Canvas()
    axes = Axes(canvas, (14, 16, 292, 160), (-2, 2), (0, 0.75))
    axes.bars(counts.tolist(), BLUE)
    axes.line(grid, [h / area for h in heights], RED)
    axes.labels("weight", "density")
    return canvas


def constant_rate() -> Canvas:
    """At the constant rate that its own noise calls for, SGD samples the posterior: its weights in blue, two standard
    deviations of the posterior as the red ring. At eight times that rate (grey) the samples spread too far."""
    canvas = Canvas()
    axes = Axes(canvas, (70, 10, 180, 180), (-6, 6), (-6, 6))
    for factor, colour in ((8.0, GREY), (1.0, BLUE)):
        torch.manual_seed(0)
        w = nn.Parameter(torch.zeros(2, 300))
        sgd = ConstantSGD([w], lr=0.01, examples=100, burn_in=50)
        for step in range(400):
            noise = torch.randn(2, 300)
            w.grad = (w + noise).detach() * 1.0
            sgd.step()
            if factor > 1 and step >= 50:
                w.data -= (factor - 1) * sgd.rate * w.grad
        axes.dots((10 * w[0]).tolist(), (10 * w[1]).tolist(), colour, 1.3, 0.7)
    circle = [
        (2 * torch.tensor(2 * pi * k / 60).cos().item(), 2 * torch.tensor(2 * pi * k / 60).sin().item())
        for k in range(61)
    ]
    axes.line(*zip(*circle, strict=True), RED)
    return canvas


def averaging() -> Canvas:
    """Stochastic gradient descent circles the minimum (grey); the mean of its weights from the cross on (blue) settles
    in it."""
    torch.manual_seed(2)
    canvas = Canvas()
    axes = Axes(canvas, (14, 10, 292, 180), (-3, 3), (-2, 2))
    for scale in (0.4, 0.9, 1.5, 2.2):
        circle = [
            (1.5 * scale * torch.tensor(k * pi / 30).cos().item(), scale * torch.tensor(k * pi / 30).sin().item())
            for k in range(61)
        ]
        axes.line(*zip(*circle, strict=True), GREY, 0.5)
    model = nn.Linear(2, 1, bias=False)
    w = model.weight
    w.data[:] = torch.tensor([-2.6, 1.7])
    optimizer = torch.optim.SGD([w], lr=0.12)
    average = WeightAverage(optimizer, start=30)
    path, means = w.tolist(), []
    for step in range(1, 151):
        w.grad = (w * torch.tensor([0.5, 1.0]) + 1.6 * torch.randn(1, 2)).detach()
        optimizer.step()
        path += w.tolist()
        if step >= 30:
            with average.applied(model):
                means += w.tolist()
    axes.line(*zip(*path, strict=True), GREY, 0.9)
    axes.line(*zip(*means, strict=True), BLUE, 2)
    x, y = axes.at(*path[30])
    canvas.lines([((x - 4, y - 4), (x + 4, y + 4)), ((x - 4, y + 4), (x + 4, y - 4))], RED, 1.6)
    return canvas


def schedules() -> Canvas:
    """The learning rate over a run of 200 steps, as a share of the largest: 20 steps of warm-up, then one of four
    decays."""
    canvas = Canvas()
    axes = Axes(canvas, (14, 16, 240, 160), (0, 200), (0, 1.05))
    for k, (name, schedule) in enumerate(
        [
            ("constant", Constant(20)),
            ("linear", Linear(20)),
            ("cosine", Cosine(20, minimum=0.1)),
            ("polynomial", Polynomial(20, minimum=0.3)),
        ]
    ):
        axes.line(range(201), [schedule(t, 200) for t in range(201)], COLOURS[k], name=name)
    axes.labels("step", "share of the learning rate")
    return canvas


def randomised() -> Canvas:
    """A gradient that remembers one activation in ten is noisy but right on average: one estimate of each weight's
    gradient (grey) and the mean of 400 (blue) over the exact one."""
    torch.manual_seed(0)
    layer = RandomizedLinear(40, 6, keep=0.1)
    x, g = torch.randn(20, 40), torch.randn(20, 6)
    exact = g.T @ x
    draws = []
    for _ in range(400):
        layer.zero_grad()
        (layer(x) * g).sum().backward()
        draws.append(layer.weight.grad.clone())
    most = exact.abs().max().item()
    canvas = Canvas()
    axes = Axes(canvas, (70, 10, 180, 176), (-1.6 * most, 1.6 * most), (-1.6 * most, 1.6 * most))
    axes.line((-1.6 * most, 1.6 * most), (-1.6 * most, 1.6 * most), RED, 0.8)
    axes.dots(exact.flatten().tolist(), draws[0].flatten().tolist(), GREY, 1.3, 0.7)
    axes.dots(exact.flatten().tolist(), torch.stack(draws).mean(0).flatten().tolist(), BLUE, 1.5)
    axes.labels("exact gradient", "estimate")
    return canvas


def low_rank() -> Canvas:
    """Low-rank adaptation: the frozen weights stay as they are, and all that is learned is the product of two thin
    matrices, here of rank 2, which was fitted to a change of all weights."""
    torch.manual_seed(0)
    wanted = torch.outer(torch.linspace(-1, 1, 24).sin(), torch.linspace(-2, 2, 24).cos()) + torch.outer(
        torch.linspace(0, 6, 24).sin(), torch.linspace(0, 5, 24).sin()
    )
    weight = torch.randn(24, 24)
    added = LowRank(weight, rank=2, alpha=2)
    optimizer = torch.optim.Adam(added.parameters(), lr=0.05)
    for _ in range(400):
        optimizer.zero_grad()
        (added(weight) - weight - wanted).square().mean().backward()
        optimizer.step()
    change = (added(weight) - weight).detach()
    thin = sorted((p.detach() for p in added.parameters()), key=lambda p: p.shape[0])
    canvas = Canvas()
    canvas.heat(weight, (10, 40, 84, 84), (GREY, GREY))
    canvas.text(52, 140, "W, frozen")
    canvas.text(106, 86, "+", 14)
    canvas.heat(thin[1], (120, 40, 12, 84), (GREEN, AMBER))
    canvas.heat(thin[0], (140, 40, 84, 12), (GREEN, AMBER))
    canvas.text(126, 140, "B")
    canvas.text(182, 66, "A")
    canvas.text(228, 86, "=", 14)
    canvas.heat(change, (236, 40, 78, 84))
    canvas.text(275, 140, "what was learned")
    canvas.text(160, 176, "576 weights, 96 of them trained", 9, colour=PURPLE)
    return canvas


def codes() -> Canvas:
    """A variational auto-encoder, trained by its recipe: what it makes of codes on a plane (left), and where the test
    images of each digit lie there (right, a colour and a number at the middle of each digit)."""
    run = trained("digits-vae")
    model, task = run.model.eval(), run.task
    assert isinstance(model, VariationalAutoencoder)
    assert isinstance(task, ImageReconstruction)
    side, steps = 8, torch.linspace(-2, 2, 8)
    with torch.no_grad():
        places = torch.stack([steps.expand(side, -1), -steps[:, None].expand(-1, side)], -1)
        images = model.decode(places).sigmoid().view(side, side, 8, 8)
        means, _ = model.encode(task.grey(task.splits["test"]))
    labels = task.images.labels[task.splits["test"]]
    canvas = Canvas()
    whole = (images * 5).round().div(5).transpose(1, 2).reshape(8 * side, 8 * side)
    canvas.heat(whole, (8, 22, 148, 148), ("currentColor", RED), 1.0)
    axes = Axes(canvas, (172, 22, 140, 148), (-2.6, 2.6), (-2.6, 2.6))
    for digit in range(10):
        own = means[labels == digit].clamp(-2.5, 2.5)
        axes.dots(own[:, 0].tolist(), own[:, 1].tolist(), COLOURS[digit % len(COLOURS)], 1.4)
    for digit in range(10):
        x, y = axes.at(*means[labels == digit].median(0).values.clamp(-2.4, 2.4).tolist())
        canvas.text(x, y + 4, str(digit), 12)
    return canvas
