"""A bibliography of known structure, and models that read the types of its nodes and links, or do not."""

import pytest
import torch

from edgewise.tasks import bibliography
from edgewise.tasks.nodes.planted import RELATIONS

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
