"""Pictures of sections G and H: tasks, and networks beyond message passing."""

import networkx
import torch
from canvas import BLUE, COLOURS, GREEN, GREY, RED, Axes, Canvas, fitted, ring
from club import club, pairs, places
from trained import pretrained, steps, trained

from edgewise import Graph, explain, sample_neighbors
from edgewise.graphs.refinement import refine, refine_pairs
from edgewise.tasks import kinship


def nodes() -> Canvas:
    """Node classification on a karate club, of whose members two were labelled: the faction that the recipe's
    transformer gives each, crossed out where it is wrong."""
    run = trained("karate")
    batch = next(iter(run.task.batches("test", 34, run.config.graph)))
    with torch.no_grad():
        given = run.model.eval()(*batch.inputs).argmax(-1)
    truth = torch.tensor([int(data["club"] != "Mr. Hi") for _, data in networkx.karate_club_graph().nodes(data=True)])
    if (given == truth).float().mean() < 0.5:
        truth = 1 - truth
    spots, canvas = places(), Canvas()
    canvas.graph(pairs(club()), spots)
    for spot, label, true in zip(spots, given.tolist(), truth.tolist(), strict=True):
        canvas.node(spot, COLOURS[label], 5, 0.95)
        if label != true:
            x, y = spot
            canvas.lines([((x - 5, y - 5), (x + 5, y + 5)), ((x - 5, y + 5), (x + 5, y - 5))], "currentColor", 1.5)
    return canvas


def links() -> Canvas:
    """Link prediction on Cora: the probability that the auto-encoder gives to citations that were held out (blue) and
    to pairs without one (red), after 60 of the recipe's steps."""
    run = trained("cora-vgae", *steps(60))
    batch = next(iter(run.task.batches("test", 1, run.config.graph)))
    with torch.no_grad():
        out = run.model.eval()(*batch.inputs)
    z = out[0] if isinstance(out, tuple) else out
    z = z[..., : z.shape[-1] // 2] if z.shape[-1] % 2 == 0 and z.shape[-1] > 32 else z
    canvas = Canvas()
    axes = Axes(canvas, (14, 12, 292, 164), (0, 1), (0, 0.35))
    graph = batch.graph
    generator = torch.Generator().manual_seed(0)
    linked = torch.stack([graph.receivers, graph.senders])
    none = torch.randint(graph.num_receivers, linked.shape, generator=generator)
    for ends, colour in ((linked, BLUE), (none, RED)):
        chance = torch.sigmoid((z[ends[0]] * z[ends[1]]).sum(-1))
        shares = torch.histc(chance, bins=25, min=0, max=1) / len(chance)
        axes.bars(shares.tolist(), colour, 0.45, gap=0.1)
    axes.labels("predicted probability", "share of the pairs")
    return canvas


def molecules() -> Canvas:
    """Graph classification on MUTAG: six molecules of the test fold, each with what GIN makes of it after 100 steps
    (green: right, red: wrong), its atoms in the colour of their element."""
    run = trained("mutag-gin", *steps(100))
    batch = next(iter(run.task.batches("test", 12, run.config.graph)))
    with torch.no_grad():
        given = run.model.eval()(*batch.inputs).argmax(-1).tolist()
    canvas = Canvas()
    first = 0
    for k, member in enumerate(batch.members[:6]):
        links = networkx.Graph(pairs(member))
        spots_ = networkx.kamada_kawai_layout(links)
        count = member.num_receivers
        spots = fitted([spots_[n].tolist() for n in range(count)], (16 + 104 * (k % 3), 12 + 96 * (k // 3), 78, 62))
        canvas.graph(pairs(member), spots, width=1)
        for spot, atom in zip(spots, batch.x[first : first + count].argmax(-1).tolist(), strict=True):
            canvas.node(spot, COLOURS[atom % len(COLOURS)], 3, 0.95)
        right = given[k] == int(batch.target[k])
        words = ("not mutagenic", "mutagenic")[given[k]]
        canvas.text(55 + 104 * (k % 3), 92 + 96 * (k // 3), words, colour=GREEN if right else RED)
        first += count
    return canvas


def generation() -> Canvas:
    """Graphs of two communities that a causal transformer wrote, token by token, after 400 of the recipe's steps: none
    of them is among those that it was trained on."""
    run = trained("communities-transformer", *steps(400))
    drawn = [g for g in run.task.sample(run.model.eval(), 6, run.config.graph, seed=1) if g is not None]
    canvas = Canvas()
    for k, graph in enumerate(drawn[:3]):
        links = networkx.Graph(pairs(graph))
        spots_ = networkx.spring_layout(links, seed=1, iterations=200)
        spots = fitted(
            [spots_[n].tolist() if n in spots_ else [0, 0] for n in range(graph.num_receivers)],
            (12 + 104 * k, 40, 90, 110),
        )
        canvas.graph(pairs(graph), spots, BLUE, 0.5)
        canvas.dots(spots, "currentColor", 2)
        canvas.text(57 + 104 * k, 172, f"{graph.num_receivers} nodes", colour=GREY)
    return canvas


def surprise() -> Canvas:
    """Language modelling: a line of held-out text, and below each character how little the model expected it, in nats
    (after 200 of the recipe's steps). Beginnings of words are hardest."""
    run = trained("demo-text", *steps(200))
    batch = next(iter(run.task.batches("valid", 2, run.config.graph)))
    with torch.no_grad():
        log_p = run.model.eval()(*batch.inputs).log_softmax(-1)
    target = batch.target.reshape(log_p.shape[:-1])[1, :56]
    lost = -log_p[1, :56].gather(-1, target[:, None])[:, 0]
    canvas = Canvas()
    for row in range(2):
        part = slice(28 * row, 28 * row + 28)
        axes = Axes(canvas, (14, 30 + 92 * row, 292, 52), (0, 28), (0, 6))
        axes.bars(lost[part].tolist(), BLUE, 0.6)
        for n, token in enumerate(target[part].tolist()):
            character = run.task.decode(torch.tensor([token]))
            canvas.text(19.5 + 10.43 * n, 24 + 92 * row, "␣" if character.isspace() else character, 10)
    return canvas


def fine_tuning() -> Canvas:
    """Pre-training, then fine-tuning: how well test molecules dissolve in water (log mol/l), as guessed by a network
    with 100 labels and as measured; left it learned from masked characters of SMILES before, right it begins from drawn
    weights. The nearer to the line the better; below, the root mean square error of this one seed."""
    canvas = Canvas()
    with pretrained("esol-bert") as folder:
        starts = (("pre-trained", folder, BLUE), ("from drawn weights", "", RED))
        for k, (name, start, colour) in enumerate(starts):
            run = trained("esol-bert-100", ("start.run", start))
            batch = next(iter(run.task.batches("test", 200, run.config.graph)))
            with torch.no_grad():
                guessed = run.task.mean + run.task.deviation * run.model.eval()(*batch.inputs).flatten()
            error = (guessed - batch.target.flatten()).square().mean().sqrt()
            axes = Axes(canvas, (18 + 156 * k, 24, 136, 136), (-9, 2), (-9, 2))
            axes.line([-9, 2], [-9, 2], GREY, 1)
            axes.dots(batch.target.flatten().tolist(), guessed.tolist(), colour, 1.8, 0.8)
            axes.labels("measured", "guessed")
            canvas.text(86 + 156 * k, 188, f"{name}: error {float(error):.2f}", colour=colour)
    return canvas


def store() -> Canvas:
    """A graph larger than memory lies on disk, and a step reads only what its sample needs: 2,000 nodes in the order
    of the file, the eight seeds of a batch (red), their sampled neighbours (blue) and theirs (green)."""
    links = networkx.random_regular_graph(8, 2000, seed=0)
    graph = Graph.from_networkx(links)
    sample = sample_neighbors(
        graph, [7, 311, 402, 633, 901, 1204, 1502, 1911], [4, 4], torch.Generator().manual_seed(0)
    )
    canvas = Canvas()
    inner = sample.graphs[-1].num_senders
    groups = ((sample.nodes[inner:], GREEN), (sample.nodes[8:inner], BLUE), (sample.nodes[:8], RED))
    for row in range(10):
        canvas.box((10, 10 + 17 * row, 300, 11), GREY, 0.5)
    for rows, colour in groups:
        for node in rows.tolist():
            line, place = divmod(node, 200)
            canvas.box((10 + 1.5 * place, 10 + 17 * line, 1.5, 11), "none", 0, colour)
    canvas.text(160, 194, f"{len(sample.nodes)} of 2,000 rows are read", colour=GREY)
    return canvas


def explanation() -> Canvas:
    """Why the recipe's transformer gives one member (ringed) its faction: what each edge contributes by integrated
    gradients, blue for the prediction and red against it, the thicker the more."""
    run = trained("karate")
    batch = next(iter(run.task.batches("test", 34, run.config.graph)))
    graph, x = batch.inputs[:2]
    with torch.no_grad():
        label = int(run.model.eval()(graph, x)[8].argmax())
    why = explain(run.model, graph, x, (8, label))
    spots, canvas = places(), Canvas()
    canvas.graph(pairs(club()), spots, opacity=0.35)
    most = float(why.edges.abs().max())
    for (i, j), value in zip(pairs(why.graph), why.edges.tolist(), strict=True):
        if i != j and abs(value) > 0.02 * most:
            canvas.line([spots[j], spots[i]], BLUE if value > 0 else RED, 0.6 + 5 * abs(value) / most, 0.8)
    for spot, value in zip(spots, why.nodes.tolist(), strict=True):
        canvas.node(spot, BLUE if value > 0 else RED, 4, min(1, abs(value) / float(why.nodes.abs().max())) ** 0.5)
    canvas.node(spots[8], "currentColor", 7, 0)
    return canvas


def beyond() -> Canvas:
    """A hexagon and two triangles: every node has two neighbours, so message passing gives all nodes one colour
    (left). Colours of pairs of nodes, which PPGN computes (right, a matrix for each graph), differ."""
    hexagon = Graph.from_networkx(networkx.cycle_graph(6))
    triangles = Graph.from_networkx(networkx.disjoint_union(networkx.cycle_graph(3), networkx.cycle_graph(3)))
    both = refine_pairs(Graph.batch([hexagon, triangles]))
    canvas = Canvas()
    spots = (ring(6, (60, 54), 34), ring(3, (36, 142), 24) + ring(3, (92, 142), 24))
    for k, graph in enumerate((hexagon, triangles)):
        canvas.graph(pairs(graph), spots[k], opacity=1, width=1.2)
        for spot, colour in zip(spots[k], refine(graph).tolist(), strict=True):
            canvas.node(spot, COLOURS[colour], 5, 0.95)
        matrix = both[6 * k : 6 * k + 6, 6 * k : 6 * k + 6]
        for i in range(6):
            for j in range(6):
                colour = COLOURS[int(matrix[i, j]) % len(COLOURS)]
                canvas.box((170 + 15 * j, 8 + 96 * k + 14.5 * i, 14, 13.5), "none", 0, colour, 0.85)
    return canvas


def kin() -> Canvas:
    """A family of the recipe's (left): couples red, parents and children blue, siblings green. Right: how well a
    relational convolution completes held-out facts of each relation, as mean reciprocal ranks from 0 to 1."""
    run = trained("kinship-rgcn")
    facts = torch.cat(list(run.task.splits.values()))
    people = kinship(families=1).count  # the first of the recipe's forty
    first = facts[facts[:, 0] < people].tolist()
    spots, canvas = ring(people, (74, 96), 62), Canvas()
    for colour, relations in ((GREEN, (6, 7)), (BLUE, (2, 3)), (RED, (0,))):
        ends = [(spots[a], spots[b]) for a, relation, b in first if relation in relations]
        canvas.lines(ends, colour, 1.2, 0.7)
    for spot in spots:
        canvas.node(spot, GREY, 4, 0.95)
    table = run.task.by_relation(run.model.eval(), None)
    axes = Axes(canvas, (166, 24, 144, 108), (0, len(table.rows)), (0, 1))
    axes.bars([float(row[2]) for row in table.rows], BLUE, 0.6)
    for k, row in enumerate(table.rows):
        canvas.text(166 + 12 * k + 6, 144 + 9 * (k % 4), row[0], 7)
    axes.labels("", "mean reciprocal rank")
    return canvas
