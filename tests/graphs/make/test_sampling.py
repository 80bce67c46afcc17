"""Samples against the graph they come from, in C++ and in plain PyTorch; their chances against the exact ones."""

import itertools
import os
import re
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from edgewise import native
from edgewise.data import build_store
from edgewise.errors import DataError, GraphError, ShapeError
from edgewise.graphs import Graph, Sample, causal, complete, importance, sample_layers, sample_neighbors, sample_past
from edgewise.graphs.layout import START, Manifest, Stored
from graphs.examples import random_graphs

compiled = pytest.mark.skipif(native.library is None, reason="edgewise was installed without its C++ kernels")


@pytest.fixture(params=["c++", "pytorch"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The test runs with the C++ library, and without it."""
    if request.param == "c++" and native.library is None:
        pytest.skip("edgewise was installed without its C++ kernels")
    if request.param == "pytorch":
        monkeypatch.setattr(native, "library", None)
    return str(request.param)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def large_graph(edges: int = 200_000, nodes: int = 20_000) -> Graph:
    """With hubs, parallel edges and isolated nodes."""
    draw = seeded(3)
    receivers = (torch.rand(edges, generator=draw) ** 3 * nodes).long()
    return Graph.from_edge_index(torch.stack([torch.randint(0, nodes, (edges,), generator=draw), receivers]), nodes)


def equal(a: Sample, b: Sample) -> bool:
    return (
        torch.equal(a.nodes, b.nodes)
        and a.graphs == b.graphs
        and all(torch.equal(mine, other) for mine, other in zip(a.edges, b.edges, strict=True))
    )


def check(graph: Graph, seeds: Tensor, fanouts: list[int], sample: Sample, weight: Tensor | None = None) -> None:
    """Everything that is true of any sample."""
    assert len(sample.graphs) == len(sample.edges) == len(fanouts)
    assert sample.nodes[: len(seeds)].equal(seeds)
    assert len(sample.nodes.unique()) == len(sample.nodes)
    known = len(seeds)
    for fanout, hop, edges in zip(fanouts, reversed(sample.graphs), reversed(sample.edges), strict=True):
        assert hop.num_receivers == known
        known = hop.num_senders
        assert hop.senders.unique().numel() >= known - hop.num_receivers  # only nodes that someone listens to are added
        assert hop == Graph.from_csr(hop.offsets, hop.senders, hop.num_senders)  # checked, and in order
        assert len(edges.unique()) == len(edges) == hop.num_edges  # without replacement
        parallel = (hop.receivers.diff() == 0) & (hop.senders.diff() == 0)
        assert bool((edges.diff()[parallel] > 0).all())  # parallel edges keep their order
        assert graph.senders[edges].equal(sample.nodes[hop.senders])
        assert graph.receivers[edges].equal(sample.nodes[hop.receivers])
        eligible = graph.in_degrees()
        if weight is not None:
            assert bool((weight[edges] > 0).all())
            eligible = torch.zeros_like(eligible).index_add(0, graph.receivers, (weight > 0).long())
        wanted = eligible[sample.nodes[: hop.num_receivers]]
        assert hop.in_degrees().equal(wanted if fanout < 0 else wanted.clamp(max=fanout))
    assert known == len(sample.nodes)


@pytest.mark.parametrize("weighted", [False, True])
def test_samples_of_small_graphs(either: str, weighted: bool) -> None:
    for number, graph in enumerate([*random_graphs(30), causal(9), complete(4)]):
        draw = seeded(number)
        seeds = torch.randperm(graph.num_receivers, generator=draw)[: number % 5]
        weight = torch.randint(0, 4, (graph.num_edges,), generator=draw).float() if weighted else None
        for fanouts in ([2], [1, 3], [0, 2], [-1, 2, -1], [100], []):
            sample = sample_neighbors(graph, seeds, fanouts, draw, weight)
            check(graph, seeds, fanouts, sample, weight)


def test_all_neighbours_of_everyone_are_the_graph(either: str) -> None:
    graph = large_graph(3000, 200)
    sample = sample_neighbors(graph, torch.arange(200), [-1])
    assert sample.graphs[0] == graph
    assert sample.edges[0].equal(torch.arange(3000))


def test_the_generator_decides_the_draw(either: str) -> None:
    graph, seeds = large_graph(), torch.arange(0, 20_000, 40)
    first = sample_neighbors(graph, seeds, [5, 5], seeded(1))
    assert equal(first, sample_neighbors(graph, seeds, [5, 5], seeded(1)))
    assert not equal(first, sample_neighbors(graph, seeds, [5, 5], seeded(2)))
    again = seeded(1)
    assert not equal(sample_neighbors(graph, seeds, [5, 5], again), sample_neighbors(graph, seeds, [5, 5], again))
    torch.manual_seed(4)
    default = sample_neighbors(graph, seeds, [5, 5])
    torch.manual_seed(4)
    assert equal(default, sample_neighbors(graph, seeds, [5, 5]))


@compiled
@pytest.mark.parametrize("weighted", [False, True])
def test_the_same_sample_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch, weighted: bool) -> None:
    graph, seeds = large_graph(edges=600_000), torch.arange(20_000)
    weight = torch.rand(graph.num_edges, generator=seeded(1)) if weighted else None
    samples = []
    for threads in (1, 2, 4):
        monkeypatch.setattr(native, "threads", lambda threads=threads: threads)
        samples.append(sample_neighbors(graph, seeds, [30, 10], seeded(7), weight))
    assert max(graph.num_edges for graph in samples[0].graphs) > 1 << 18  # enough for several threads
    assert equal(samples[0], samples[1])
    assert equal(samples[0], samples[2])


@compiled
def test_a_sampler_forgets_the_sample_before() -> None:
    graph = large_graph(edges=200_000, nodes=100_000)
    for seeds, fanouts in (([], [5]), ([7], [2, 2]), (range(3000), [10, 10]), (range(50), [-1]), ([3, 1], [4, 0])):
        first, again = (sample_neighbors(graph, seeds, fanouts, seeded(1)) for _ in range(2))
        assert equal(first, again)
    with pytest.raises(GraphError, match="seed 1: node 5 is a seed already"):
        sample_neighbors(graph, [5, 5], [1])


def test_threads_of_python_sample_side_by_side(either: str) -> None:
    graph, seeds = large_graph(), torch.arange(0, 20_000, 20)
    expected = [sample_neighbors(graph, seeds, [10, 5], seeded(n)) for n in range(24)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: sample_neighbors(graph, seeds, [10, 5], seeded(n)), range(24)))
    assert all(equal(a, b) for a, b in zip(found, expected, strict=True))


@compiled
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_samples_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "threads", lambda: 4)
    graph, seeds = large_graph(), torch.arange(0, 20_000, 5)
    weight = torch.rand(graph.num_edges, generator=seeded(1))
    expected = sample_neighbors(graph, seeds, [20, 10], seeded(7), weight)  # OpenMP has its threads by now
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        torch.set_num_threads(1)  # as a data loader's workers do: PyTorch's own threads do not survive a fork either
        os._exit(0 if equal(expected, sample_neighbors(graph, seeds, [20, 10], seeded(7), weight)) else 1)
    assert os.waitpid(child, 0)[1] == 0


def chi_square(counts: Tensor, chances: Tensor) -> float:
    expected = chances * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize(("degree", "fanout"), [(5, 2), (70, 2), (70, 60)])
def test_every_neighbour_is_as_likely(either: str, degree: int, fanout: int) -> None:
    """Sets of two by their own counts; from many neighbours, single ones. Receivers are independent experiments."""
    receivers = 3000
    graph = Graph.from_csr(torch.arange(receivers + 1) * degree, torch.arange(degree).repeat(receivers), receivers)
    sample = sample_neighbors(graph, torch.arange(receivers), [fanout], seeded(0))
    picks = graph.senders[sample.edges[0]].view(receivers, fanout)
    if degree == 5:
        sets = {pair: n for n, pair in enumerate(itertools.combinations(range(degree), 2))}
        counts = torch.bincount(torch.tensor([sets[a, b] for a, b in picks.sort().values.tolist()]), minlength=10)
    else:
        counts = torch.bincount(picks.flatten(), minlength=degree)
    free = len(counts) - 1
    assert chi_square(counts, torch.full((len(counts),), 1 / len(counts))) < free + 5 * (2 * free) ** 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_neighbours_are_drawn_by_weight(either: str, dtype: torch.dtype) -> None:
    """One: P(a) = w_a / Σ w. Two, one after the other: P({a, b}) = p_a p_b / (1 - p_a) + p_b p_a / (1 - p_b)."""
    receivers, w = 4000, torch.tensor([1, 2, 0, 4, 3])
    graph = Graph.from_csr(torch.arange(receivers + 1) * 5, torch.arange(5).repeat(receivers), receivers)
    weight, p = w.repeat(receivers).to(dtype), w / w.sum()
    one = sample_neighbors(graph, torch.arange(receivers), [1], seeded(0), weight)
    counts = torch.bincount(graph.senders[one.edges[0]], minlength=5)
    assert counts[2] == 0
    assert chi_square(counts[w > 0], p[w > 0]) < 22  # 3 degrees of freedom: one in 10,000
    two = sample_neighbors(graph, torch.arange(receivers), [2], seeded(0), weight)
    picks = graph.senders[two.edges[0]].view(receivers, 2).sort().values
    pairs = list(itertools.combinations([0, 1, 3, 4], 2))
    counts = torch.tensor([int((picks == torch.tensor(pair)).all(1).sum()) for pair in pairs])
    chances = torch.tensor([float(p[a] * p[b] * (1 / (1 - p[a]) + 1 / (1 - p[b]))) for a, b in pairs])
    assert chi_square(counts, chances) < 27  # 5 degrees of freedom


RING = Graph.from_edge_index([[0, 1, 2, 3], [1, 2, 3, 0]], num_nodes=4)
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"seeds": [0, 4]}, "seed 1: node 4 is out of range: the graph has 4 nodes"),
    ({"seeds": [-1]}, "seed 0: node -1 is out of range: the graph has 4 nodes"),
    ({"seeds": [2, 1, 2, 1]}, "seed 2: node 2 is a seed already: seeds must be distinct"),
    ({"seeds": [0.5]}, "seeds must hold integers (int64), not float64"),
    ({"seeds": [[1]]}, "seeds must have 1 axis, not shape [1, 1]"),
    ({"fanouts": [3, -2]}, "fanouts[1] must be a number of neighbours, or -1 for all of them, not -2"),
    ({"fanouts": [1.5]}, "fanouts[0] must be a whole number, not 1.5"),
    ({"fanouts": 3}, "fanouts must list how many neighbours to draw in each hop, as [10, 10], not 3"),
    ({"weight": torch.tensor([1.0, 1.0, -0.5, 1.0])}, "edge 2: weight -0.5 must be finite and at least 0"),
    ({"weight": torch.tensor([1.0, 1.0, torch.nan, 1.0])}, "edge 2: weight nan must be finite and at least 0"),
    ({"weight": torch.tensor([1.0, 1.0, torch.inf, 1.0])}, "edge 2: weight inf must be finite and at least 0"),
    ({"weight": torch.ones(3)}, "weight must have shape [4], one for each edge, not [3]"),
    ({"weight": [1.0] * 4}, "weight must be a tensor with a number for each edge, not list"),
    ({"weight": torch.ones(4, dtype=torch.complex64)}, "weight must hold real numbers, not complex64"),
    ({"graph": complete(2, 3)}, "sample_neighbors needs receivers and senders to be the same nodes"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_what_is_refused(either: str, wrong: dict[str, Any], message: str) -> None:
    arguments = {"graph": RING, "seeds": [2, 3], "fanouts": [2, 1]} | wrong
    with pytest.raises((GraphError, ShapeError), match=re.escape(message)):
        sample_neighbors(**arguments)
    check(RING, torch.tensor([2]), [1, 1], sample_neighbors(RING, [2], [1, 1]))  # the next sample is right again


@compiled
@pytest.mark.parametrize("weighted", [False, True])
def test_a_sample_of_a_store_has_the_bits_of_one_from_memory(tmp_path: Path, weighted: bool) -> None:
    graph = large_graph()
    build_store(tmp_path / "store", [(graph.senders.numpy(), graph.receivers.numpy(), None)], 20_000)
    stored, seeds = Graph.open(tmp_path / "store"), torch.arange(0, 20_000, 11)
    weight = torch.rand(graph.num_edges, generator=seeded(1)) if weighted else None
    for fanouts in ([10, 10], [60, -1], [3], [0, 5]):
        mine = sample_neighbors(stored, seeds, fanouts, seeded(5), weight)
        assert equal(mine, sample_neighbors(graph, seeds, fanouts, seeded(5), weight))
    assert "senders" not in vars(stored)


def beyond(folder: Path, rows: int, degree: int, before: int) -> tuple[Path, Tensor]:
    """A sparse store whose row 0 has `before` edges, and whose other rows lie behind those; their senders."""
    arrays = {
        "offsets": Stored(folder / "offsets.safetensors", torch.int64, (rows + 2,)),
        "senders": Stored(folder / "senders.safetensors", torch.int32, (before + rows * degree,)),
    }
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), before + degree * torch.arange(rows + 1)])
    senders = torch.randint(1, rows + 1, (rows, degree), generator=seeded(0)).sort(1).values.int()
    folder.mkdir()
    for (name, stored), values, place in zip(arrays.items(), (offsets, senders), (0, 4 * before), strict=True):
        with stored.path.open("wb") as file:
            file.write(stored.header(name))
            file.truncate(START + stored.nbytes)
            file.seek(START + place)
            file.write(values.numpy().tobytes())
    (folder / "manifest.json").write_text(Manifest(rows + 1, before + rows * degree, arrays).to_json())
    return folder, senders


@compiled
@pytest.mark.skipif(sys.platform == "win32", reason="files are not sparse there unless one asks for it")
def test_edges_beyond_the_range_of_32_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = 2**31 + 12_345
    folder, senders = beyond(tmp_path / "store", 300, 20, before)
    graph = Graph.open(folder)
    assert graph.num_edges > 2**31
    sample = sample_neighbors(graph, torch.arange(200, 301), [7, 3], seeded(0))
    for hop, edges in zip(sample.graphs, sample.edges, strict=True):
        assert bool((edges >= before).all())
        assert sample.nodes[hop.senders].equal(senders.flatten()[edges - before].long())
        assert ((edges - before) // 20 + 1).equal(sample.nodes[hop.receivers])
    assert graph.rows(300, 301).senders.equal(senders[299].long())
    monkeypatch.setattr("edgewise.memory.machine", lambda: 8 << 30)
    with pytest.raises(GraphError, match="listing 2,147,501,993 edges of a store of "):
        graph.edge_index()


@compiled
def test_a_damaged_store_is_not_followed_out_of_memory(tmp_path: Path) -> None:
    folder, _ = beyond(tmp_path / "store", 50, 4, 0)
    for name, content in (("senders", 51), ("senders", -1), ("offsets", 10**9), ("offsets", -5)):
        path = folder / f"{name}.safetensors"
        before = path.read_bytes()
        size = 4 if name == "senders" else 8
        place = START + 6 * size
        path.write_bytes(before[:place] + content.to_bytes(size, "little", signed=True) + before[place + size :])
        with pytest.raises(
            DataError, match=r"store: a row's offsets or senders are out of range; `edgewise store check`"
        ):
            sample_neighbors(Graph.open(folder), torch.arange(51), [-1, 2])
        path.write_bytes(before)
        assert sample_neighbors(Graph.open(folder), torch.arange(51), [-1]).graphs[0].num_edges == 200


def test_a_sample_without_no_edges_is_itself():
    sample = sample_neighbors(Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], 3), torch.tensor([0]), [2])
    assert sample.without(torch.empty(0, dtype=torch.int64)) is sample
    assert sample.without(sample.edges[0]).graphs[0].num_edges == 0


DRAWS = 300


def skewed() -> tuple[Graph, torch.Tensor, torch.Tensor]:
    """Twelve nodes of which the first are heard by most, with weights and features at random."""
    generator = torch.Generator().manual_seed(0)
    senders = (12 * torch.rand(60, generator=generator) ** 3).long()
    graph = Graph.from_edge_index(torch.stack([senders, torch.randint(12, (60,), generator=generator)]), 12).coalesce()
    weight = torch.rand(graph.num_edges, generator=generator, dtype=torch.float64) + 0.1
    return graph, weight, torch.randn(12, 3, generator=generator, dtype=torch.float64)


def estimates(graph: Graph, weight: torch.Tensor, x: torch.Tensor, chance: torch.Tensor, size: int) -> torch.Tensor:
    """[draws, seeds, channels]."""
    generator, seeds, drawn = torch.Generator().manual_seed(1), [3, 0, 7], []
    for _ in range(DRAWS):
        sample = sample_layers(graph, weight, chance, seeds, [size], generator)
        dense = torch.zeros(3, len(sample.nodes), dtype=torch.float64)
        hop = sample.graphs[0]
        dense[hop.receivers, hop.senders] = sample.weights[0]
        drawn.append(dense @ x[sample.nodes])
    return torch.stack(drawn)


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_the_estimate_is_unbiased_and_has_the_variance_of_its_formula(power: float) -> None:
    """E = Σ_u Â(v,u) x_u;  Var = 1/t (Σ_u Â(v,u)² x_u² / q(u) - (Σ_u Â(v,u) x_u)²)."""
    graph, weight, x = skewed()
    size, chance = 5, importance(graph, weight, power)
    found = estimates(graph, weight, x, chance, size)
    A = torch.zeros(12, 12, dtype=torch.float64)
    A[graph.receivers, graph.senders] = weight
    A = A[[3, 0, 7]]
    expected = A @ x
    q = torch.where(chance > 0, chance, 1)
    variance = ((A.square() / q) @ x.square() - expected.square()) / size
    error = (found.mean(0) - expected).abs()
    assert (error <= 4 * (variance / DRAWS).sqrt() + 1e-12).all()  # nine of them: 4 standard errors
    assert torch.allclose(found.var(0), variance, rtol=0.4, atol=1e-9)


def test_the_generator_decides_and_nodes_without_chance_are_never_drawn() -> None:
    graph, weight, _ = skewed()
    chance = importance(graph, weight)
    first, again = (sample_layers(graph, weight, chance, [0], [6], torch.Generator().manual_seed(2)) for _ in range(2))
    assert torch.equal(first.nodes, again.nodes) and torch.equal(first.weights[0], again.weights[0])
    only = torch.zeros(12, dtype=torch.float64)
    only[[0, 4]] = 1
    assert set(sample_layers(graph, weight, only, [0], [200]).nodes.tolist()) == {0, 4}


def test_whole_numbers_as_weights_are_not_cut_off() -> None:
    graph, _, _ = skewed()
    weight = torch.arange(graph.num_edges) % 4 + 1
    whole, real = (
        sample_layers(graph, w, importance(graph, weight), [3, 0], [5], torch.Generator().manual_seed(1))
        for w in (weight, weight.float())
    )
    assert torch.equal(whole.weights[0], real.weights[0]) and whole.weights[0].dtype == torch.float32


def test_what_cannot_be_sampled_is_refused() -> None:
    graph, weight, _ = skewed()
    chance = importance(graph, weight)
    with pytest.raises(GraphError, match="no sender can be drawn"):
        importance(graph, 0 * weight)
    with pytest.raises(GraphError, match="no sender can be drawn"):
        importance(graph, weight / 0)
    for wrong in (torch.nan, torch.inf):
        with pytest.raises(GraphError, match="no sender can be drawn"):
            importance(graph, torch.where(graph.senders == 3, wrong, weight), 0)
    empty = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), 0)
    with pytest.raises(GraphError, match="chance must hold numbers"):
        sample_layers(empty, torch.ones(0), torch.ones(0), [], [2])
    with pytest.raises(ShapeError, match="one for each edge"):
        importance(graph, weight[1:])
    with pytest.raises(ShapeError, match=r"must have shape \[1[0-9]\], one for each"):
        sample_layers(graph, weight, chance[1:], [0], [3])
    with pytest.raises(GraphError, match="chance"):
        sample_layers(graph, weight, -chance, [0], [3])
    with pytest.raises(GraphError, match="seed"):
        sample_layers(graph, weight, chance, [12], [3])
    with pytest.raises(GraphError, match=r"sizes\[0\]"):
        sample_layers(graph, weight, chance, [0], [0])
    with pytest.raises(GraphError, match="same nodes"):
        sample_layers(Graph.from_edge_index([[0], [0]], 2, 1), torch.ones(1), torch.ones(2), [0], [1])


def test_the_past_of_a_seed_holds_no_later_edge() -> None:
    for number, graph in enumerate(random_graphs(30)):
        draw = seeded(number)
        time = torch.randint(0, 6, (graph.num_edges,), generator=draw)
        seeds = torch.randint(0, max(graph.num_receivers, 1), (min(4, graph.num_receivers),), generator=draw)
        until = torch.randint(0, 6, seeds.shape, generator=draw)
        for fanouts, latest in (([-1, -1], False), ([2, 1], False), ([2, 3], True)):
            sample = sample_past(graph, seeds, fanouts, time, until, draw, latest)
            assert sample.seeds is not None
            assert sample.nodes[: len(seeds)].equal(seeds)
            assert sample.seeds[: len(seeds)].equal(torch.arange(len(seeds)))
            assert len({*zip(sample.seeds.tolist(), sample.nodes.tolist(), strict=True)}) == len(sample.nodes)
            for fanout, hop, edges in zip(fanouts, reversed(sample.graphs), reversed(sample.edges), strict=True):
                assert graph.senders[edges].equal(sample.nodes[hop.senders])
                assert sample.seeds[hop.senders].equal(sample.seeds[hop.receivers])
                for i in range(hop.num_receivers):
                    node, last = int(sample.nodes[i]), int(until[sample.seeds[i]])
                    own = torch.arange(int(graph.offsets[node]), int(graph.offsets[node + 1]))
                    past = own[time[own] <= last]
                    found = edges[int(hop.offsets[i]) : int(hop.offsets[i + 1])]
                    assert len(found.unique()) == len(found) == (len(past) if fanout < 0 else min(len(past), fanout))
                    assert {*found.tolist()} <= {*past.tolist()}
                    if latest:
                        assert {*found.tolist()} == {*past[time[past].argsort(stable=True)][-fanout:].tolist()}


def test_each_set_of_past_neighbours_is_as_likely() -> None:
    star = Graph.from_edge_index([[1, 2, 3, 4], [0, 0, 0, 0]], 5)
    seeds, until = torch.zeros(6000, dtype=torch.int64), torch.full((6000,), 3.0)
    sample = sample_past(star, seeds, [2], torch.tensor([1.0, 2.0, 3.0, 4.0]), until, seeded(0))
    pairs = sample.edges[0].view(-1, 2)
    counts = torch.bincount(pairs[:, 0] * 4 + pairs[:, 1])[[1, 2, 6]]
    assert int(counts.sum()) == 6000
    assert (counts - 2000).abs().max() < 5 * (6000 * 2 / 9) ** 0.5


@pytest.mark.parametrize(
    ("until", "message"),
    [(torch.tensor([torch.nan]), "seed 0: its time is no number"), (torch.ones(2), "a time for each")],
)
def test_a_seed_has_one_time(until: Tensor, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        sample_past(complete(3), [0], [1], torch.ones(9), until)
