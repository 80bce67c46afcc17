"""Planted motifs and words: what is planted is there, and a method that reads it finds it."""

import pytest
import torch
from torch import Tensor, nn

from benchmarks.studies import planted
from edgewise import Graph, aggregate
from edgewise.explanations import Explained
from edgewise.layers import GCN


@pytest.mark.parametrize("name", planted.MOTIFS)
def test_motifs_are_attached_to_a_tree(name: str) -> None:
    graph, inside, edges = planted.motifs(name)
    assert int(inside.sum()) == planted.PLANTED * planted.SIZE
    assert int(edges.sum()) == 2 * planted.PLANTED * len(planted.MOTIFS[name])
    tree = int((inside[graph.receivers] + inside[graph.senders] == 0).sum())
    assert tree == 2 * (planted.BASE - 1)
    assert graph.num_edges == tree + int(edges.sum()) + 2 * planted.PLANTED


def test_a_method_finds_the_edges_that_a_model_reads() -> None:
    class Reads(nn.Module):
        def forward(self, graph: Graph, x: Tensor) -> Tensor:
            return aggregate(graph, x)

    star = Graph.from_edge_index([[1, 2, 3, 4], [0, 0, 0, 0]], num_nodes=5)
    explained = Explained(Reads(), (star, torch.tensor([[0.0], [1.0], [0.0], [1.0], [0.0]])), (0, 0))
    case = planted.Case("star", "edges", [(explained, torch.tensor([True, False, True, False]))], 1.0)
    judged = planted.judge(case, "gradient")
    assert judged["auc"] == 1.0 and judged["fidelity"] > 0


def test_both_directions_of_a_link_count_as_one() -> None:
    link = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], num_nodes=3)
    explained = Explained(GCN(1, 1), (link, torch.ones(3, 1)), torch.sum)
    towards = link.receivers == 0
    inside = (link.receivers < 2) & (link.senders < 2)
    case = planted.Case("path", "edges", [(explained, inside)], 1.0)
    assert planted.agreement(case, [towards.float()]) == 1.0


def test_several_seeds_are_one_case() -> None:
    explained = Explained(GCN(1, 1), (Graph.from_edge_index([[0], [1]], num_nodes=2), torch.ones(2, 1)), (0, 0))
    parts = [planted.Case("pair", "edges", [(explained, torch.tensor([True]))] * n, n / 2) for n in (1, 2)]
    whole = planted.together(parts)
    assert (len(whole.subjects), whole.accuracy, whole.name) == (3, 0.75, "pair")


def test_the_study_has_a_table_for_each_case(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planted, "STEPS", 40)
    monkeypatch.setattr(planted, "EXPLAINED", 1)
    monkeypatch.setattr(planted, "SEEDS", (0,))
    monkeypatch.setattr(planted, "MOTIFS", {"houses": planted.HOUSE})
    monkeypatch.setattr(planted, "EXPLANATIONS", {"attention": None, "gradient": None})
    planted.main()
    houses, words = capsys.readouterr().out.strip().split("\n\n")
    assert houses.startswith("| houses") and "attention" not in houses and "`gradient`" in houses
    assert words.startswith("| words") and "`attention`" in words
