"""A bibliography of known structure, and models that read the types of its nodes and links, or do not."""

import pytest
import torch

from edgewise.configuration import Choice
from edgewise.errors import ConfigError
from edgewise.graphs import sample_neighbors
from edgewise.models import GNN, GNNSettings
from edgewise.tasks import bibliography
from edgewise.tasks.typed.bibliography import KINDS, RELATIONS

SMALL = {"authors": 120, "papers": 300, "venues": 12, "topics": 4}


def ends_of(kind: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Senders and receivers of the edges of a kind."""
    task = bibliography(**SMALL)
    graph, e = task.graph(), task.nodes.e
    return graph.senders[e == kind], graph.receivers[e == kind]


def test_links_mean_what_their_kind_says() -> None:
    task = bibliography(**SMALL)
    types = task.signature.types(task.nodes.x)
    assert torch.bincount(types).tolist() == [120, 300, 12] and task.signature.edges == len(RELATIONS)
    topic = torch.arange(120) % 4
    assert torch.equal(task.nodes.labels[:120], topic) and (task.nodes.labels[120:] == -1).all()
    between = {0: (0, 1), 1: (1, 0), 2: (0, 1), 3: (1, 0), 4: (2, 1), 5: (1, 2)}
    for kind, (of_senders, of_receivers) in between.items():
        senders, receivers = ends_of(kind)
        assert (types[senders] == of_senders).all() and (types[receivers] == of_receivers).all()
    writers, papers = ends_of(0)
    assert torch.bincount(papers - 120)[:300].tolist() == [2] * 300
    reviewers, reviewed = ends_of(2)
    assert torch.bincount(reviewed - 120)[:300].tolist() == [3] * 300
    back, forth = ends_of(1)
    assert torch.equal(torch.stack([back, forth]).sort().values, torch.stack([papers, writers]).sort().values)
    pairs = topic[writers].view(300, 2) if torch.equal(papers, papers.sort().values) else None
    assert pairs is not None
    same = (pairs[:, 0] == pairs[:, 1]).double().mean().item()
    assert same == pytest.approx(0.8 + 0.2 / 4, abs=0.08)  # a standard error of 0.02
    topics = {int(paper): set(row.tolist()) for paper, row in zip(papers[::2], pairs, strict=True)}
    for paper, who in zip(reviewed.tolist(), topic[reviewers].tolist(), strict=True):
        assert topics[paper] != {who}  # where both writers agree, that is the paper's topic, and no reviewer has it


def test_words_are_those_of_the_topic_and_a_seed_alone_decides() -> None:
    task = bibliography(**SMALL, signal=5.0, words=8)
    x, topic = task.nodes.x, torch.arange(120) % 4
    assert (x[:120, :8] == 0).all() and (x[420:, :8] == 0).all() and (x[:, 8:].sum(1) == 1).all()
    writers, papers = ends_of(0)
    agree = topic[writers].view(300, 2)
    alike = agree[:, 0] == agree[:, 1]
    mean = torch.stack([x[papers[::2][alike & (agree[:, 0] == t)], :8].mean(0) for t in range(4)])
    nearest = torch.cdist(x[papers[::2][alike], :8], mean).argmin(1)
    assert (nearest == agree[alike, 0]).all()
    again, other = bibliography(**SMALL), bibliography(**SMALL, generated=1)
    assert torch.equal(bibliography(**SMALL).nodes.x, again.nodes.x) and not torch.equal(other.nodes.x, again.nodes.x)
    rows = torch.cat(list(again.nodes.splits.values()))
    assert rows.sort().values.tolist() == list(range(120))


@pytest.mark.parametrize("layer", ["hgt", "rgat", "rgcn", "gat", "gcn"])
def test_models_with_and_without_types(layer: str) -> None:
    """Those that read edges see their kinds; on a sample of all neighbours each gives what it gives on the graph."""
    task = bibliography(**SMALL)
    options = {"heads": 2} if layer in ("hgt", "rgat", "gat") else {}
    settings = GNNSettings(Choice(layer, options), width=8, depth=2, dropout=0.0)
    nodes, graph = task.nodes, task.graph()
    if layer == "gcn":
        with pytest.raises(ConfigError, match="'gcn' reads no edge features"):
            GNN(settings, task.signature)
        return
    model = GNN(settings, task.signature).eval()
    y = model(graph, nodes.x, nodes.e)
    changed = model(graph, nodes.x, (nodes.e + 1) % len(RELATIONS))
    assert y.shape == (432, 4) and not torch.allclose(y, changed)
    seeds = torch.arange(5)
    sample = sample_neighbors(graph, seeds, [-1, -1])
    torch.testing.assert_close(model(sample, nodes.x[sample.nodes], nodes.e), y[:5], rtol=1e-4, atol=1e-5)
    if layer == "hgt":
        x = nodes.x.clone()
        x[300, -len(KINDS) :] = torch.tensor([1.0, 0.0, 0.0])  # a paper among authors
        assert not torch.allclose(model(graph, x, nodes.e), y)


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(ConfigError, match="10 authors of each topic"):
        bibliography(authors=20)
    with pytest.raises(ConfigError, match=r"task.focus must be from 0 to 1"):
        bibliography(focus=2.0)
    settings = GNNSettings("hgt", width=8, edge_dropout=0.5)
    with pytest.raises(ConfigError, match="edge_dropout cannot leave out edges"):
        GNN(settings, bibliography(**SMALL).signature)
