"""Pictures of section B: attention and transformers."""

from math import log

import torch
from canvas import BLUE, COLOURS, GREEN, GREY, RED, Axes, Canvas
from torch import nn
from torch.nn import functional
from trained import attention, steps, trained

from edgewise import complete, explain
from edgewise.graphs import EncoderDecoderGraph
from edgewise.graphs.patterns.plane import squares
from edgewise.layers import FeedForward, MultiHeadAttention, PostNormBlock, PreNormBlock, Rotary
from edgewise.layers.attention.positions import sinusoids
from edgewise.layers.attention.relative import slopes
from edgewise.models import EncoderDecoder, EncoderDecoderSettings
from edgewise.models.signature import TokenPairs
from edgewise.tasks.text.denoising import Noise


def recurrent() -> Canvas:
    """The state of an LSTM as it reads a line of text, after 150 of the recipe's steps: a column for each character, a
    row for each of 24 channels, positive in blue and negative in red. Some channels count, others forget at a
    space."""
    run = trained("shakespeare-lstm", ("task.source", "topics"), ("model.width", "64"), *steps(150))
    batch = next(iter(run.task.batches("valid", 1, run.config.graph)))
    states: list[torch.Tensor] = []
    cell = next(module for module in run.model.modules() if isinstance(module, nn.RNNBase))
    cell.register_forward_hook(lambda module, inputs, output: states.append(output[0].detach()))
    with torch.no_grad():
        run.model.eval()(*batch.inputs)
    state = states[0].reshape(-1, states[0].shape[-1])[:36, :24]
    canvas = Canvas()
    canvas.heat(state.T, (16, 24, 288, 150))
    for n, token in enumerate(batch.x.flatten()[:36].tolist()):
        canvas.text(20 + 8 * n, 18, run.task.decode(torch.tensor([token])).replace("\n", "↵"))
    return canvas


def kernel_regression() -> Canvas:
    """Nadaraya-Watson attention averages noisy points by their distance. The recipe begins with a width of 0.2 (red,
    too flat) and learns one (blue) with which it recovers the function (grey)."""
    run = trained("kernel-regression")
    batch = next(iter(run.task.batches("test", 1, run.config.graph)))
    places, train = batch.x[:, 0], run.task.splits["train"]
    chosen = run.task.splits["test"][::2]
    canvas = Canvas()
    axes = Axes(canvas, (14, 10, 292, 172), (0, 3), (-2, 2))
    axes.line(places[chosen].tolist(), (2 * torch.pi * places[chosen]).sin().tolist(), GREY, 3)
    axes.dots(places[train].tolist(), batch.x[train, 1].tolist(), GREY, 1.4)
    width = run.model.regression.log_sigma
    learned = float(width.detach().exp())
    for sigma, colour in ((0.2, RED), (learned, BLUE)):
        with torch.no_grad():
            width.fill_(log(sigma))
            fit = run.model.eval()(*batch.inputs)[chosen, 0]
        axes.line(places[chosen].tolist(), fit.tolist(), colour, 1.5)
    canvas.text(306, 194, f"learned width {learned:.3f}", colour=BLUE, anchor="end")
    return canvas


def heads() -> Canvas:
    """Multi-head attention among the sixteen patches of a handwritten digit, after the recipe's training: a row for
    each patch that attends, a column for each that it attends to, a panel for each head."""
    run = trained("demo-digits")
    batch = next(iter(run.task.batches("valid", 1, run.config.graph)))
    first = attention(run.model, *batch.inputs)[0]
    canvas = Canvas()
    shown = min(4, first.shape[-1])
    for h in range(shown):
        canvas.heat(first[:, :, h], (8 + 78 * h, 60, 70, 70))
        canvas.text(43 + 78 * h, 146, f"head {h + 1}", colour=GREY)
    return canvas


def blocks() -> Canvas:
    """Pre-norm adds to a stream that grows with depth; post-norm normalises it after every block. Mean length of a
    token's vector in 32 untrained blocks, and of the gradient that reaches each block (dashed)."""
    canvas = Canvas()
    for k, (name, kind, colour) in enumerate((("pre-norm", PreNormBlock, BLUE), ("post-norm", PostNormBlock, RED))):
        torch.manual_seed(0)
        layers = nn.ModuleList(kind(32, MultiHeadAttention(32, 4), FeedForward(32, 128)) for _ in range(32))
        x = torch.randn(12, 32, requires_grad=True)
        states = [x]
        for layer in layers:
            states.append(layer(complete(12), states[-1]))
            states[-1].retain_grad()
        (states[-1] * torch.randn(12, 32)).sum().backward()
        sizes = [float(s.detach().norm(dim=-1).mean()) for s in states]
        slopes_ = [float(s.grad.norm(dim=-1).mean()) for s in states[1:]]
        axes = Axes(canvas, (14 + 158 * k, 24, 138, 146), (0, 32), (1, 60), "y")
        axes.line(range(33), sizes, colour)
        axes.line(range(1, 33), slopes_, colour, 1.2, dash="3 3")
        axes.labels("block", name)
    return canvas


def reversal() -> Canvas:
    """Cross-attention of an encoder-decoder that has learned to write a sequence backwards: a row for each token that
    it writes, a column for each token that it reads. The alignment is the other diagonal."""
    torch.manual_seed(0)
    length, words = 8, 12
    model = EncoderDecoder(
        EncoderDecoderSettings(width=32, encoder_depth=1, decoder_depth=1, heads=1, dropout=0.0),
        TokenPairs(words, words),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    pairs = EncoderDecoderGraph.of([length] * 32, [length] * 32)
    for _ in range(400):
        source = torch.randint(1, words, (32, length))
        target = source.flip(1)
        inputs = torch.cat([torch.zeros(32, 1, dtype=torch.int64), target[:, :-1]], 1)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(pairs, torch.cat([source.flatten(), inputs.flatten()])), target.flatten())
        loss.backward()
        optimizer.step()
    source = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    inputs = torch.cat([torch.zeros(1, 1, dtype=torch.int64), source.flip(1)[:, :-1]], 1)
    seen = attention(model, EncoderDecoderGraph.of([length], [length]), torch.cat([source.flatten(), inputs.flatten()]))
    canvas = Canvas()
    canvas.heat(seen[-1][:, :, 0], (90, 24, 144, 144))
    for k, token in enumerate(source[0].tolist()):
        canvas.text(99 + 18 * k, 18, str(token))
        canvas.text(82, 36 + 18 * (length - 1 - k), str(token))
    canvas.text(162, 182, f"loss {loss.item():.2f} after 400 steps", colour=GREY)
    return canvas


def decoder() -> Canvas:
    """A causal language model's attention on a line of its text, a panel for each of two heads: below the diagonal is
    the past, above it nothing is read."""
    run = trained("demo-text", *steps(200))
    batch = next(iter(run.task.batches("valid", 1, run.config.graph)))
    graph, x = batch.inputs[:2]
    weights = attention(run.model, graph, x)[0][:24, :24]
    canvas = Canvas()
    for h in range(2):
        canvas.heat(weights[:, :, h].sqrt(), (12 + 156 * h, 24, 140, 140))
        canvas.text(82 + 156 * h, 178, f"head {h + 1}", colour=GREY)
    return canvas


def vision() -> Canvas:
    """Which patches of six digits speak for the class that the transformer gives them (integrated gradients, after the
    recipe's training): blue for it, red against it, over the ink."""
    run = trained("demo-digits")
    batch = next(iter(run.task.batches("test", 6, run.config.graph)))
    canvas = Canvas()
    for k, x in enumerate(batch.x[:6]):
        left, top = 20 + 98 * (k % 3), 8 + 96 * (k // 3)
        with torch.no_grad():
            label = int(run.model(batch.graph, x[None]).argmax())
        why = explain(run.model, batch.graph, x, (0, label) if run.model(batch.graph, x).dim() > 1 else (label,))
        image = x.reshape(4, 4, 2, 2).permute(0, 2, 1, 3).reshape(8, 8)
        canvas.heat(why.nodes.reshape(4, 4), (left, top, 80, 80))
        canvas.heat(0.7 * image / image.max(), (left, top, 80, 80), ("currentColor", RED), 1.0, frame=False)
        canvas.text(left + 88, top + 10, str(label), 10)
    return canvas


def windows() -> Canvas:
    """Who a pixel (ringed) attends to in a Swin transformer, in blue: the window that it lies in, then the window of
    the next layer, shifted by half its size."""
    canvas = Canvas()
    for k, shift in enumerate((0, 2)):
        graph = squares(8, 8, 4, shift=shift)
        senders = set(graph.senders[graph.receivers == 27].tolist())
        for p in range(64):
            y, x = divmod(p, 8)
            canvas.box(
                (20 + 150 * k + 16 * x, 26 + 16 * y, 15, 15),
                "none",
                0,
                BLUE if p in senders else GREY,
                0.75 if p in senders else 0.25,
            )
        canvas.node((20 + 150 * k + 16 * 3 + 7.5, 26 + 16 * 3 + 7.5), RED, 4.5, 1)
        canvas.text(84 + 150 * k, 172, ("windows", "shifted windows")[k], colour=GREY)
    return canvas


def positions() -> Canvas:
    """Left: sinusoids for 48 positions (rows) and 32 channels. Right: how much a rotary query prefers a key at a
    distance, and what four heads of ALiBi subtract there (dashed)."""
    canvas = Canvas()
    canvas.heat(sinusoids(torch.arange(48), 32), (10, 16, 110, 160))
    axes = Axes(canvas, (150, 16, 156, 160), (0, 40), (-1.0, 1.0))
    q = torch.ones(41, 1, 32)
    turned = Rotary(32)(complete(41), q)[:, 0]
    axes.line(range(41), (turned @ turned[0] / 32).tolist(), BLUE, 1.8)
    for k, slope in enumerate(slopes(4)):
        axes.line(range(41), [max(-1, -slope * d) for d in range(41)], COLOURS[1 + k], 1, dash="3 2")
    axes.labels("distance", "score")
    return canvas


def masked() -> Canvas:
    """Masked-token pre-training on molecules written as SMILES, after 300 of the recipe's steps: the hidden characters
    of four molecules that it has not seen are boxed, and show what the network takes for the most probable (green:
    right, red: wrong)."""
    run = trained("esol-bert", *steps(300))
    canvas = Canvas()
    texts = [tokens for tokens in run.task.tokens["valid"] if 16 < len(tokens) < 34][:4]
    generator = torch.Generator().manual_seed(2)
    for k, tokens in enumerate(texts):
        batch = run.task._masked([tokens], generator, run.config.graph)
        with torch.no_grad():
            guessed = run.model.eval()(*batch.inputs)
        guessed = (guessed if len(guessed) == len(batch.rows) else guessed[batch.rows]).argmax(-1)
        guesses = dict(zip(batch.rows.tolist(), guessed.tolist(), strict=True))
        for n, token in enumerate(tokens.tolist()[1:-1], 1):
            at = (18 + 9 * n, 40 + 38 * k)
            text = run.task.tokenizer.decode([guesses.get(n, token)])
            colour = "currentColor" if n not in guesses else GREEN if guesses[n] == token else RED
            if n in guesses:
                canvas.box((at[0] - 4.5, at[1] - 10, 9, 13), colour, 0.9)
            canvas.text(*at, text, 10, colour=colour)
    return canvas


def denoising() -> Canvas:
    """BART's noise: spans of a text are replaced by one mask each, whatever their length, and the network learns to
    write the text as it was. Two draws of the noise on one line."""
    words = [
        "two",
        "young",
        "men",
        "are",
        "looking",
        "at",
        "their",
        "hands",
        "while",
        "hanging",
        "out",
        "in",
        "the",
        "yard",
    ]
    canvas = Canvas()
    generator = torch.Generator().manual_seed(5)
    rows = [list(range(10, 10 + len(words)))] + [
        Noise(infill=0.35)(range(10, 10 + len(words)), (), generator) for _ in range(2)
    ]
    y = 40.0
    for k, tokens in enumerate(rows):
        x = 12.0
        for token in tokens:
            word = words[token - 10] if 10 <= token < 10 + len(words) else "▒▒"
            if x + 4.6 * len(word) > 310:
                x, y = 12.0, y + 15
            canvas.text(x, y, word, 9, "start", RED if word == "▒▒" else "currentColor")
            x += 4.9 * len(word) + 5
        y += 26 if k < 2 else 0
        if k == 0:
            canvas.text(12, y - 8, "damaged:", 8, "start", GREY)
            y += 6
    return canvas
