import pytest
import torch

from benchmarks.studies.claims import lottery
from benchmarks.studies.claims.common.kept import Kept


def test_a_node_has_as_many_neighbours_as_asked_for_most_of_its_own_community() -> None:
    graph, x, labels = lottery.drawn(128, 8)
    assert graph.in_degrees().tolist() == [8] * 128 and x.shape == (128, 4)
    assert (labels[graph.senders] == labels[graph.receivers]).double().mean() > 0.8
    assert lottery.drawn(16, 16)[0].num_edges == 256


@pytest.mark.parametrize("neighbours", [3, 32])
def test_three_ways_compute_the_same_attention_and_gradient(neighbours) -> None:
    pytest.importorskip("torch_geometric.utils")
    graph = lottery.drawn(32, neighbours)[0]
    q, k, v = (torch.randn(32, 2, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    results = [way(graph)(q, k, v) for way in lottery.WAYS.values()]
    gradients = [torch.autograd.grad(y.square().sum(), [q, k, v]) for y in results]
    assert all(torch.allclose(y, results[0], atol=1e-10) for y in results[1:])
    assert all(
        torch.allclose(a, b, atol=1e-10) for own in gradients[1:] for a, b in zip(own, gradients[0], strict=True)
    )


def test_the_crossover_lies_between_two_measured_numbers() -> None:
    def row(dense: float, edges: float) -> dict[str, float]:
        return {"dense": dense, "gather-scatter": edges}

    assert lottery.crossover((4, 16), [row(2.0, 1.0), row(1.0, 2.0)]) == pytest.approx(8.0)
    assert lottery.crossover((4, 16), [row(2.0, 1.0), row(2.0, 1.5)]) is None


def test_a_table_is_printed_and_drawn(capsys) -> None:
    pytest.importorskip("torch_geometric.utils")
    sizes = {32: (2, 8, 32), 64: (2, 64)}
    table = lottery.measure(Kept(), sizes, steps=3)
    assert all(row["apart"] <= lottery.SAME for rows in table.values() for row in rows)
    assert "| 64 | 2 | 3.12 % |" in capsys.readouterr().out
    assert [len(axes.lines) for axes in lottery.picture(table, sizes).axes] == [3, 3]


@pytest.mark.accuracy
@pytest.mark.timeout(3600)
def test_losses_agree_and_who_wins_depends_on_the_density() -> None:
    pytest.importorskip("torch_geometric.utils")
    torch.set_num_threads(1)
    table = lottery.measure(Kept())
    assert max(row["apart"] for rows in table.values() for row in rows) <= lottery.SAME == 1e-4
    found = {nodes: lottery.crossover(lottery.SIZES[nodes], rows) for nodes, rows in table.items()}
    assert all(found.values())
    rows = [row for own in table.values() for row in own]
    assert lottery.SLOWER == 1.15
    assert all(row["chosen"] <= 1.15 * min(row["dense"], row["gather-scatter"]) for row in rows)
