"""Completing facts: scores, filtered ranks and what a step may read, against loops over sets of facts."""

from typing import Any

import pytest
import torch
from torch import nn

from edgewise.errors import DataError
from edgewise.models import GNN, GNNSettings
from edgewise.tasks import Facts, KnowledgeGraph
from edgewise.tasks.links.knowledge import complex_product, distmult, rotation

ENTITIES, KINDS = 7, 2


def task(decoder: str = "complex", width: int = 4) -> KnowledgeGraph:
    draw = torch.Generator().manual_seed(0)
    codes = torch.randperm(ENTITIES * KINDS * ENTITIES, generator=draw)[:40]
    facts = torch.stack([codes // (KINDS * ENTITIES), codes // ENTITIES % KINDS, codes % ENTITIES], 1)
    splits = {"train": facts[:28], "valid": facts[28:34], "test": facts[34:]}
    names = tuple(f"e{n}" for n in range(ENTITIES))
    return KnowledgeGraph("small", Facts(names, ("likes", "knows"), splits), width, decoder)


class Given(nn.Module):
    """A model whose outputs are known."""

    def __init__(self, outputs: torch.Tensor) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, *_: Any) -> torch.Tensor:
        return self.outputs


def outputs(width: int = 4) -> torch.Tensor:
    return torch.randn(ENTITIES + 2 * KINDS, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_the_decoders_are_their_equations() -> None:
    h, r = torch.randn(2, 3, 6, dtype=torch.float64)
    t = torch.randn(5, 6, dtype=torch.float64)
    right = torch.stack([torch.stack([(h[m] * r[m] * t[n]).sum() for n in range(5)]) for m in range(3)])
    torch.testing.assert_close(distmult(h, r, t), right)
    (a, b, c) = (torch.complex(x[:, :3], x[:, 3:]) for x in (h, r, t))
    right = torch.stack([torch.stack([(a[m] * b[m] * c[n].conj()).sum().real for n in range(5)]) for m in range(3)])
    torch.testing.assert_close(complex_product(h, r, t), right)
    h_c, r_c, t_c = (torch.complex(*side.chunk(2, -1)) for side in (h, r, t))
    turned = h_c * r_c / r_c.abs()
    apart = torch.stack([-(turned - tail).abs().square().sum(-1) for tail in t_c], 1)
    torch.testing.assert_close(rotation(h, r, t), apart)


@pytest.mark.parametrize("decoder", ["complex", "distmult", "rotate"])
def test_ranks_leave_out_what_is_known_and_put_ties_first(decoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known, z = task(decoder), outputs()
    z[2] = z[5]  # two entities that always score the same
    facts = {tuple(fact) for split in known.splits.values() for fact in split.tolist()}
    right, batch = [], next(known.batches("test", 1))
    for (h, r), sought in zip(batch.queries.tolist(), batch.target.tolist(), strict=True):
        s = known.scores_of(z, torch.tensor([[h, r]]))[0]
        as_fact = (lambda n, h=h, r=r: (h, r, n)) if r < KINDS else (lambda n, h=h, r=r: (n, r - KINDS, h))
        others = [n for n in range(ENTITIES) if n != sought and as_fact(n) not in facts]
        right.append(1 + sum(bool(s[n] >= s[sought]) for n in others))
    ranks = torch.tensor(right).double()
    for rows in (1 << 22, 1):  # all queries at once, or one after the other
        monkeypatch.setattr("edgewise.tasks.links.knowledge.ROWS", rows)
        found = known.score(z, batch)
        assert found["count"] == 12 and found["mrr"].item() == pytest.approx((1 / ranks).sum().item())
        assert found["hits@1"] == (ranks <= 1).sum() and found["hits@10"] == 12
        assert found["loss"].item() == pytest.approx(12 * known.loss(z, batch).item())


def test_a_step_reads_no_edge_of_its_own_facts() -> None:
    known = task()
    batch = known.train_batch(9, torch.Generator().manual_seed(3))
    assert len(batch.queries) == len(batch.target) == 18 and batch.graph.num_edges == len(batch.e) == 2 * 19
    edges = set(zip(batch.graph.senders.tolist(), batch.e.tolist(), batch.graph.receivers.tolist(), strict=True))
    sought = {(h, r, t) for (h, r), t in zip(batch.queries.tolist(), batch.target.tolist(), strict=True)}
    assert not edges & sought
    train = {tuple(fact) for fact in known.splits["train"].tolist()}
    inverse = {(t, r + KINDS, h) for h, r, t in train}
    assert edges | sought == train | inverse
    whole = known.train_batch(1000, torch.Generator().manual_seed(3))
    assert whole.graph is known.graph() and whole.graph.num_edges == 56
    again = known.train_batch(9, torch.Generator().manual_seed(3))
    assert torch.equal(again.queries, batch.queries) and torch.equal(again.e, batch.e)


def test_a_prediction_names_entities_and_what_is_known() -> None:
    known, model = task(), Given(outputs())
    h, r, t = known.splits["train"][0].tolist()
    request = f"e{h}, {known.facts.relations[r]}, ?"
    found = known.predict(model, None, request, "cpu")
    assert found["query"] == request and len(found["entities"]) == ENTITIES
    assert {row["entity"]: row["known"] for row in found["entities"]}[f"e{t}"]
    assert sum(row["probability"] for row in found["entities"]) == pytest.approx(1)
    scores = known.scores_of(outputs(), torch.tensor([[t, r + KINDS]]))[0]
    back = known.predict(model, None, f"?\t{known.facts.relations[r]}\te{t}", "cpu")
    assert back["entities"][0]["entity"] == f"e{int(scores.argmax())}"
    subject = known.subject(GNN(GNNSettings("rgcn"), known.signature), None, request)
    assert "as the answer to" in subject.what


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ("e0, likes", "is no query: give HEAD, RELATION"),
        ("e0, likes, e1", "is no query"),
        ("?, likes, ?", "is no query"),
        ("e9, likes, ?", "no entity 'e9' in small"),
        ("e0, hates, ?", "no relation 'hates' in small"),
    ],
)
def test_what_is_no_query_is_said(request_: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        task().predict(Given(outputs()), None, request_, "cpu")
