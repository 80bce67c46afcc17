"""What an open store says of its nodes."""

from pathlib import Path

import pytest
import torch

from edgewise import Graph, aggregate
from edgewise.data import build_store
from edgewise.errors import DataError, GraphError
from edgewise.graphs import Store
from edgewise.graphs.make.links import edges_between
from graphs.store.stores import NODES, edge_list, in_memory, labelled


def test_an_open_store(tmp_path: Path) -> None:
    store = Store.open(labelled(tmp_path / "store"))
    labels, train = store.labels(), store.nodes_of("train")
    assert labels is not None and labels[:5].tolist() == [0, 1, 2, 0, 1]
    assert train is not None and train.tolist() == list(range(0, NODES, 4))
    assert store.e is not None and store.e.shape == (len(edge_list()[0]), 2)
    assert store.graph == in_memory()
    assert store.name(12) == "12"
    with pytest.raises(DataError, match="there is no node 500 of 500"):
        store.name(NODES)


def test_a_store_of_more_nodes_than_fit_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_store(tmp_path / "store", [([0], [1], None)], nodes=1_000_000)
    graph = Graph.open(tmp_path / "store")
    monkeypatch.setattr("edgewise.memory.machine", lambda: 40_000_000)
    with pytest.raises(GraphError, match=r"listing 1 edges of a store of 1,000,000 nodes, .* takes 24\.0 MB"):
        graph.edge_index()


@pytest.mark.parametrize("backend", [None, "segment"])
@pytest.mark.parametrize("sender", [2_000_000_000, 3_000, -1])
def test_edges_that_lead_out_of_a_store_are_followed_by_no_verb(
    tmp_path: Path, sender: int, backend: str | None
) -> None:
    """Kernels read memory that was not the features', or ended the process."""
    i = torch.arange(1000)
    build_store(tmp_path / "ring", [(i, (i + 1) % 1000, None)])
    path = tmp_path / "ring" / "senders.safetensors"
    content = bytearray(path.read_bytes())
    content[-4 * 10 : -4 * 9] = sender.to_bytes(4, "little", signed=True)
    path.write_bytes(content)
    with pytest.raises(DataError, match="ring: a row's offsets or senders are out of range"):
        aggregate(Graph.open(tmp_path / "ring"), torch.ones(1000, 8), backend=backend)


@pytest.mark.parametrize(("name", "number", "size"), [("senders", 2_000_000_000, 4), ("offsets", 2**40, 8)])
def test_rows_that_lead_out_of_a_store_are_refused_and_others_read(
    tmp_path: Path, name: str, number: int, size: int
) -> None:
    """`aggregate` on such rows ended the process."""
    i = torch.arange(1000)
    build_store(tmp_path / "ring", [(i, (i + 1) % 1000, None)])
    path = tmp_path / "ring" / f"{name}.safetensors"
    content = bytearray(path.read_bytes())
    content[-size * 10 : -size * 9] = number.to_bytes(size, "little")
    path.write_bytes(content)
    graph = Graph.open(tmp_path / "ring")
    with pytest.raises(DataError, match="ring: a row's offsets or senders are out of range"):
        graph.rows(900, 1000)
    if name == "offsets":
        for read in (
            Graph.in_degrees,
            lambda graph: graph.receivers,
            lambda graph: edges_between(graph, torch.tensor([991]), torch.tensor([0])),
            lambda graph: edges_between(graph, torch.tensor([990]), torch.tensor([0])),
        ):
            with pytest.raises(DataError, match="ring: a row's offsets or senders are out of range"):
                read(graph)
    found = edges_between(graph, torch.tensor([5]), torch.tensor([4]))
    assert [int(bound) for bound in found] == [5, 6]
    assert (aggregate(graph.rows(0, 900), torch.ones(1000, 1)) == 1).all()
    assert graph.rows(1000, 1000).num_edges == 0
