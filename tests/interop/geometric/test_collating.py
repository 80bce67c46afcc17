"""A converted loader gives the batches that PyTorch Geometric's gives: every attribute, every dtype, every draw."""

import pickle
import warnings
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, SequentialSampler, Subset, SubsetRandomSampler, WeightedRandomSampler

import edgewise
from edgewise.interop.geometric import collating
from edgewise.native import library

pytestmark = pytest.mark.skipif(library is None, reason="the C++ kernels are not built")
data = pytest.importorskip("torch_geometric.data")
loading = pytest.importorskip("torch_geometric.loader")

SIZES = (3, 1, 5, 2, 4, 6, 3, 2, 7, 1, 4)


class Graphs(data.InMemoryDataset):
    def __init__(self, graphs: list[Any], transform: Any = None) -> None:
        super().__init__(transform=transform)
        self._data, self.slices = self.collate(graphs)


def edges(nodes: int, draw: torch.Generator) -> Tensor:
    return torch.randint(nodes, (2, 2 * nodes - 2), generator=draw)


def molecule(number: int, nodes: int, draw: torch.Generator) -> dict[str, Any]:
    index = edges(nodes, draw)
    return {"x": torch.rand(nodes, 3, generator=draw), "edge_index": index,
            "edge_attr": torch.rand(index.shape[1], 2, generator=draw), "y": torch.tensor([number])}  # fmt: skip


def annotated(number: int, nodes: int, draw: torch.Generator) -> dict[str, Any]:
    of_nodes = {"z": torch.arange(nodes), "mask": torch.arange(nodes) < 2}
    of_graphs = {"target": torch.rand(1, 4, generator=draw).half(), "scalar": torch.tensor(number)}
    plain = {"name": f"graph {number}", "charge": number, "energy": 0.5 * number}
    return molecule(number, nodes, draw) | of_nodes | of_graphs | plain


def without_features(number: int, nodes: int, draw: torch.Generator) -> dict[str, Any]:
    return {"edge_index": edges(nodes, draw), "num_nodes": nodes, "y": torch.tensor([number / 2])}


def cloud(number: int, nodes: int, draw: torch.Generator) -> dict[str, Any]:
    face = torch.randint(nodes, (3, number), generator=draw)
    return {"pos": torch.rand(nodes, 3, generator=draw).double(), "face": face, "label": torch.tensor([[number, 1]])}


def numbered_in_32_bits(number: int, nodes: int, draw: torch.Generator) -> dict[str, Any]:
    lists = {"root_index": torch.tensor([nodes - 1]), "node_kind": torch.arange(nodes, dtype=torch.int16)}
    return {"edge_index": edges(nodes, draw).int()} | lists


def stated_beside_features(number: int, nodes: int, draw: torch.Generator) -> dict[str, Any]:
    return {"num_nodes": nodes + 1} | molecule(number, nodes, draw)


KINDS = (molecule, annotated, without_features, cloud, numbered_in_32_bits, stated_beside_features)


def graphs(kind: Any = molecule) -> list[Any]:
    draw = torch.Generator().manual_seed(0)
    return [data.Data(**kind(number, nodes, draw)) for number, nodes in enumerate(SIZES)]


def batches(loader: Any) -> list[Any]:
    torch.manual_seed(5)
    return list(loader)


def assert_same(own: Any, theirs: Any) -> None:
    if isinstance(theirs, Tensor):
        assert own.dtype == theirs.dtype
        assert own.shape == theirs.shape
        assert own.is_contiguous() == theirs.is_contiguous()
        assert torch.equal(own, theirs)
    elif isinstance(theirs, dict):
        assert list(own) == list(theirs)
        for name, value in theirs.items():
            assert_same(own[name], value)
    elif isinstance(theirs, list):
        for one, other in zip(own, theirs, strict=True):
            assert_same(one, other)
    else:
        assert type(own) is type(theirs)
        assert own == theirs


def assert_same_batch(own: Any, theirs: Any) -> None:
    assert type(own) is type(theirs)
    assert_same(own.to_dict(), theirs.to_dict())
    assert_same(own._slice_dict, theirs._slice_dict)
    assert_same(own._inc_dict, theirs._inc_dict)
    assert own.num_graphs == theirs.num_graphs
    assert own.num_nodes == theirs.num_nodes
    for one, other in zip(own.to_data_list(), theirs.to_data_list(), strict=True):
        assert_same(one.to_dict(), other.to_dict())
    assert_same(own[1].to_dict(), theirs[1].to_dict())
    assert_same(own[[1, 0]][0].to_dict(), theirs[[1, 0]][0].to_dict())


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many graphs each batch had that was gathered here."""
    sizes: list[int] = []
    own = collating.Stored.batch
    monkeypatch.setattr(
        collating.Stored, "batch", lambda self, numbers: sizes.append(len(numbers)) or own(self, numbers)
    )
    return sizes


@pytest.mark.parametrize("kind", KINDS)
def test_batches_hold_what_they_held(kind: Any, gathered: list[int]) -> None:
    dataset = Graphs(graphs(kind))
    theirs = batches(loading.DataLoader(dataset, 4, shuffle=True))
    after = torch.get_rng_state()
    loader = loading.DataLoader(dataset, 4, shuffle=True)
    assert edgewise.convert(loader) is loader
    own = batches(loader)
    assert torch.equal(torch.get_rng_state(), after)
    assert gathered == [4, 4, 3]
    for one, other in zip(own, theirs, strict=True):
        assert_same_batch(one, other)


SAMPLERS: dict[str, Any] = {
    "in order": lambda dataset: {"batch_size": 3},
    "without the last": lambda dataset: {"batch_size": 4, "shuffle": True, "drop_last": True},
    "of a generator": lambda dataset: {"batch_size": 4, "shuffle": True, "generator": torch.Generator().manual_seed(1)},
    "with repetition": lambda dataset: {"batch_size": 5, "sampler": WeightedRandomSampler([1.0] * len(dataset), 9)},
    "some": lambda dataset: {"batch_size": 2, "sampler": SubsetRandomSampler([4, 2, 0, 3])},
    "in batches": lambda dataset: {"batch_sampler": BatchSampler(SequentialSampler(dataset), 3, False)},
}
PARTS: dict[str, Any] = {
    "all": lambda dataset: dataset,
    "a slice": lambda dataset: dataset[:0.7],
    "shuffled": lambda dataset: dataset.shuffle()[2:][torch.tensor([0, 3, 2, 5, 1])],
    "a subset": lambda dataset: Subset(Subset(dataset[1:], [3, 1, 8, 2, 5]), torch.tensor([4, 0, 2, 1, 3])),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_samplers_and_parts_of_data_stay_what_they_are(part: str, sampler: str, gathered: list[int]) -> None:
    torch.manual_seed(2)
    dataset = PARTS[part](Graphs(graphs()))
    theirs = batches(loading.DataLoader(dataset, **SAMPLERS[sampler](dataset)))
    loader = edgewise.convert(loading.DataLoader(dataset, **SAMPLERS[sampler](dataset)))
    own = batches(loader)
    assert gathered
    for one, other in zip(own, theirs, strict=True):
        assert_same(one.to_dict(), other.to_dict())
    assert len(loader) == len(theirs)


def test_a_batch_of_one_graph_is_put_together_by_pyg(gathered: list[int]) -> None:
    dataset = Graphs(graphs())
    theirs = batches(loading.DataLoader(dataset, 10))
    own = batches(edgewise.convert(loading.DataLoader(dataset, 10)))
    assert gathered == [10]
    assert_same(own[1].to_dict(), theirs[1].to_dict())
    assert_same(own[1]._inc_dict, theirs[1]._inc_dict)


def test_graphs_without_nodes_or_edges_have_no_rows() -> None:
    made = graphs()
    none = {"x": torch.zeros(0, 3), "edge_index": torch.zeros(2, 0, dtype=torch.int64), "edge_attr": torch.zeros(0, 2)}
    made[2] = data.Data(**none, y=torch.tensor([7]))
    dataset = Graphs(made)
    theirs = batches(loading.DataLoader(dataset, 3))
    for one, other in zip(batches(edgewise.convert(loading.DataLoader(dataset, 3))), theirs, strict=True):
        assert_same(one.to_dict(), other.to_dict())


class Own(Graphs):
    def get(self, number: int) -> Any:
        graph = super().get(number)
        graph.extra = torch.tensor([number])
        return graph


class Pairs(data.Data):
    def __inc__(self, key: str, value: Any, *args: Any) -> Any:
        return 100 if key == "edge_index" else super().__inc__(key, value, *args)


def doubled(graph: Any) -> Any:
    graph.x = 2 * graph.x
    return graph


def with_lists() -> list[Any]:
    made = graphs()
    for graph in made:
        graph.parts = [graph.x, graph.x + 1]
    return made


STAY: dict[str, tuple[Any, str]] = {
    "a list": (lambda: loading.DataLoader(graphs(), 4), "its data set is no InMemoryDataset but of type list"),
    "a transform": (lambda: loading.DataLoader(Graphs(graphs(), doubled), 4), "its data set has a transform"),
    "a method": (lambda: loading.DataLoader(Own(graphs()), 4), "Own has a method get of its own"),
    "a class": (
        lambda: loading.DataLoader(Graphs([Pairs(**graph.to_dict()) for graph in graphs()]), 4),
        r"graphs of a class of their own \(Pairs\)",
    ),
    "one graph": (lambda: loading.DataLoader(Graphs(graphs()[:1]), 1), "its data set holds one graph"),
    "follow_batch": (lambda: loading.DataLoader(Graphs(graphs()), 4, follow_batch=["x"]), "it has follow_batch or"),
    "exclude_keys": (lambda: loading.DataLoader(Graphs(graphs()), 4, exclude_keys=["x"]), "or exclude_keys"),
    "lists": (lambda: loading.DataLoader(Graphs(with_lists()), 4), "an attribute 'parts', which is gathered in a way"),
    "no numbers": (
        lambda: loading.DataLoader(Graphs(graphs()), None, sampler=BatchSampler(range(11), 4, False)),
        "its sampler draws whole batches",
    ),
    "no nodes": (
        lambda: loading.DataLoader(Graphs([data.Data(y=torch.tensor([n])) for n in range(4)]), 2),
        "no attribute of its graphs says how many nodes they have",
    ),
    "workers": (lambda: loading.DataLoader(Graphs(graphs()), 4, num_workers=1), "it has 1 workers"),
}


@pytest.mark.parametrize("bounds", [[], [0, 3, 2], [-1, 2], [0, 10_000]])
def test_rows_that_no_graph_can_have_are_left_to_pyg_and_named(bounds: list[int]) -> None:
    dataset = Graphs(graphs())
    dataset.slices["y"] = torch.tensor(bounds, dtype=torch.int64)
    with pytest.warns(UserWarning, match="an attribute 'y', which is gathered in a way of its own"):
        edgewise.convert(loading.DataLoader(dataset, 4))


@pytest.mark.filterwarnings("ignore:Unable to accurately infer 'num_nodes'")
@pytest.mark.parametrize("kind", STAY)
def test_what_is_gathered_otherwise_stays_and_is_named(kind: str, gathered: list[int]) -> None:
    make, why = STAY[kind]
    loader = make()
    with pytest.warns(UserWarning, match=f"the loader's batches are put together as before: .*{why}"):
        assert edgewise.convert(loader) is loader
    for one, other in zip(batches(loader), batches(make()), strict=True):
        assert_same(one.to_dict(), other.to_dict())
    assert not gathered


def test_what_becomes_otherwise_is_put_together_by_pyg_from_then_on(gathered: list[int]) -> None:
    dataset = Graphs(graphs())
    loader = edgewise.convert(loading.DataLoader(dataset, 4))
    batches(loader)
    del gathered[:]
    dataset.transform = doubled
    assert torch.equal(batches(loader)[0].x[:3], 2 * graphs()[0].x)
    assert not gathered
    dataset.transform = None
    dataset._data.x, dataset._data_list = dataset._data.x + 1, None
    assert torch.equal(batches(loader)[0].x[:3], graphs()[0].x + 1)
    assert gathered == [4, 4, 3]


def test_elements_that_the_data_set_has_cached(gathered: list[int]) -> None:
    dataset = Graphs(graphs())
    loader = edgewise.convert(loading.DataLoader(dataset, 4))
    assert [graph.num_nodes for graph in dataset] == list(SIZES)  # all are cached, as views of what is stored
    theirs = batches(loading.DataLoader(dataset, 4))
    assert_same_batch(batches(loader)[1], theirs[1])
    assert gathered == [4, 4, 3]
    dataset._data_list[5] = data.Data(**graphs()[5].to_dict() | {"x": torch.zeros(6, 3)})
    assert not batches(loader)[1].x[4:10].any()
    assert gathered == [4, 4, 3, 4, 3]


def test_a_loader_keeps_its_class_and_options_and_can_be_copied(gathered: list[int]) -> None:
    loader = edgewise.convert(edgewise.convert(loading.DataLoader(Graphs(graphs()), 4, shuffle=True)))
    assert isinstance(loader, loading.DataLoader)
    assert type(loader).__name__ == "DataLoader"
    assert len(loader.dataset) == len(SIZES)
    right = batches(loader)
    for other in (deepcopy(loader), pickle.loads(pickle.dumps(loader))):  # noqa: S301
        assert type(other) is type(loader)
        for one, first in zip(batches(other), right, strict=True):
            assert_same(one.to_dict(), first.to_dict())
    assert gathered == [4, 4, 3] * 3


def test_several_things_are_converted_at_once() -> None:
    nn = pytest.importorskip("torch_geometric.nn")
    model, loader = nn.GCNConv(3, 3), loading.DataLoader(Graphs(graphs()), 4)
    optimizer = torch.optim.Adam(model.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert edgewise.convert(model, loader, optimizer) == (model, loader, optimizer)
    assert hasattr(type(model), "twin_of")
    assert hasattr(type(loader), "twin_of")
    assert optimizer.param_groups[0]["fused"]


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        nn = pytest.importorskip("torch_geometric.nn")
        self.convs = torch.nn.ModuleList([nn.GINConv(nn.MLP([width, 8, 8])) for width in (3, 8, 8)])
        self.head, self.pool = nn.MLP([8, 8, 2], norm=None), nn.global_add_pool

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        y: Tensor = self.head(self.pool(x, batch))
        return y


def test_training_goes_as_it_went() -> None:
    def trained(convert: bool) -> tuple[list[float], list[Tensor], Tensor]:
        torch.manual_seed(0)
        model, dataset = Net().double(), Graphs(graphs())
        loader, losses = loading.DataLoader(dataset, 4, shuffle=True, drop_last=True), list[float]()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        if convert:
            edgewise.convert(model, loader, optimizer)
        for _ in range(4):
            for batch in loader:
                optimizer.zero_grad()
                y = model(batch.x.double(), batch.edge_index, batch.batch)
                loss = torch.nn.functional.cross_entropy(y, batch.y % 2)
                loss.backward()
                optimizer.step()
                losses.append(float(loss.detach()))
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        return losses, gradients, model.eval()(batch.x, batch.edge_index, batch.batch).detach()

    (own, own_gradients, y), (theirs, gradients, right) = trained(True), trained(False)
    assert own == pytest.approx(theirs, rel=1e-8)
    torch.testing.assert_close(y, right, rtol=1e-7, atol=1e-7)
    for one, other in zip(own_gradients, gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7)
