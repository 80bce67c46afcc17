"""What the kernels of a GPU are launched with: grids, numbers, and how each tensor lies in memory; they do not run."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from edgewise import (
    Additive,
    Dot,
    EdgeBias,
    EdgeVectors,
    GatedAdditive,
    Graph,
    SenderBias,
    Uniform,
    aggregate,
    attend,
    blocks,
    collect,
    complete,
    window,
)
from edgewise.kernels.backends.cuda import attention as launching
from edgewise.kernels.backends.cuda.programs import attention, bitmap, building, products, ragged, tiles
from recorded import check_recorded, shown

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels would have to run")
KERNELS = {
    attention: ("attend", "merge", "pair", "by_sender", "by_receiver"),
    bitmap: ("_forward", "_backward"),
    products: ("_reduce", "_multiply"),
    ragged: ("attend_kernel",),
}
DRAWN = torch.Generator().manual_seed(0)
HUB = torch.cat(
    [torch.randint(9, (2, 30), generator=DRAWN), torch.stack([torch.arange(200) % 9, torch.full((200,), 3)])], 1
)
GRAPH, HUBS = Graph.from_edge_index(HUB[:, :30], 9), Graph.from_edge_index(HUB, 9)


@dataclass
class Launches:
    """In place of a kernel: it notes how it is launched."""

    kernel: Any
    lines: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kernel, name)

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*arguments: Any, **options: Any) -> None:
            given = dict(zip(self.kernel.arg_names, arguments, strict=False)) | options
            words = [f"{name}={word(value)}" for name, value in given.items()]
            self.lines.append(f"    {self.kernel.fn.__name__}{list(grid)} {' '.join(words)}")

        return launch


def word(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return shown(value)
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}/{list(value.stride())}".replace(" ", "")


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=DRAWN).to(dtype).requires_grad_()


def ends(graph: Graph, heads: int, channels: int, values: int, **options: Any) -> list[torch.Tensor]:
    batch = options.pop("batch", ())
    rows = (graph.num_receivers, channels), (graph.num_senders, channels), (graph.num_senders, values)
    return [draw(*batch, count, heads, width, **options) for count, width in rows]


def attentions() -> Iterator[tuple[str, Any]]:
    half = {"dtype": torch.bfloat16}
    yield "dot", lambda: attend(GRAPH, *ends(GRAPH, 2, 8, 16), backend="triton")
    yield "dot, half, batch", lambda: attend(GRAPH, *ends(GRAPH, 2, 12, 6, batch=(2,), **half), backend="triton")
    yield "dot, wide", lambda: attend(GRAPH, *ends(GRAPH, 16, 128, 128), backend="triton")
    yield "dot, hubs", lambda: attend(HUBS, *ends(HUBS, 3, 5, 7), backend="triton")
    yield "dot, hubs, half", lambda: attend(HUBS, *ends(HUBS, 2, 8, 8, batch=(3,), **half), backend="triton")
    yield "dot, dropout", lambda: attend(GRAPH, *ends(GRAPH, 2, 8, 8), dropout=0.25, backend="triton")
    score = Dot() + EdgeBias(draw(2, 30, 1))
    yield "dot, biases of members", lambda: attend(GRAPH, *ends(GRAPH, 2, 8, 8, batch=(2,)), score, backend="triton")
    shared = Dot(scale=0.5) + EdgeBias(draw(30, 4)) + EdgeVectors(draw(30, 4, 8), draw(30, 4, 2))
    yield "dot, bias, vectors", lambda: attend(GRAPH, *ends(GRAPH, 4, 8, 2, batch=(2,)), shared, backend="triton")
    yield "additive", lambda: attend(GRAPH, *ends(GRAPH, 4, 1, 8), Additive(0.3), backend="triton")
    yield "gated", lambda: attend(HUBS, *ends(HUBS, 4, 8, 8), GatedAdditive(draw(4, 8)), backend="triton")
    yield "uniform", lambda: attend(GRAPH, None, None, draw(9, 4, 8), Uniform(), backend="triton")


def sums() -> Iterator[tuple[str, Any]]:
    def summed(graph: Graph, reduce: str, x: torch.Tensor, weight: torch.Tensor | None = None) -> Any:
        return lambda: aggregate(graph, x, weight, reduce, backend="triton")

    for name, graph in (("edges", GRAPH), ("hubs", HUBS), ("rows of one length", window(9, 1).rows(1, 8))):
        n, e = graph.num_senders, graph.num_edges
        half = {"dtype": torch.float16}
        for reduce in ("mean", "max"):
            yield f"{name}, {reduce}", summed(graph, reduce, draw(n, 12))
            yield f"{name}, {reduce}, weights", summed(graph, reduce, draw(n, 7), draw(e))
            by_heads = draw(2, n, 4, 24, **half), draw(2, e, 4, **half)
            yield f"{name}, {reduce}, half, heads", summed(graph, reduce, *by_heads)
            yield f"{name}, {reduce}, a weight for each channel", summed(graph, reduce, draw(n, 40, 1), draw(e, 40))
    yield "wide", summed(GRAPH, "sum", draw(9, 700), draw(30))
    yield "messages", lambda: collect(GRAPH, draw(2, 30, 6), "min", backend="triton")


def pairs() -> Iterator[tuple[str, Any]]:
    some, unlike = blocks([5, 40, 100]), blocks([5, 20], senders=[9, 0])
    half = {"dtype": torch.bfloat16}
    yield "blocks", lambda: attend(some, *ends(some, 2, 8, 16), backend="ragged")
    yield "small blocks", lambda: attend(unlike, *ends(unlike, 2, 3, 5), dropout=0.5, backend="ragged")
    edge = Dot() + EdgeBias(draw(2, some.num_edges, 1))
    yield "blocks, edge bias", lambda: attend(some, *ends(some, 2, 8, 8, batch=(2,), **half), edge, backend="ragged")
    sender = Dot(scale=2.0) + SenderBias(draw(145, 2))
    yield "blocks, sender bias", lambda: attend(some, *ends(some, 2, 8, 8), sender, backend="ragged")
    many = blocks([3] * 600)
    bias = Dot() + EdgeBias(draw(many.num_edges, 8))
    yield "many blocks", lambda: attend(many, *ends(many, 8, 4, 4), bias, backend="ragged")
    for name, graph in (("window", window(70, 3)), ("complete", complete(40, 90)), ("edges", GRAPH.coalesce())):
        yield f"{name}, bits", lambda g=graph: attend(g, *ends(g, 2, 8, 12), backend="bitmap")
        yield (
            f"{name}, bits, half",
            lambda g=graph: attend(g, *ends(g, 3, 64, 64, batch=(2,), **half), backend="bitmap"),
        )


CALLS = {"attention": attentions, "sums": sums, "pairs": pairs}


@pytest.mark.parametrize("part", CALLS)
def test_launches_are_those_on_record(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[str] = []
    for module, names in KERNELS.items():
        for name in names:
            monkeypatch.setattr(module, name, Launches(getattr(module, name), noted))
    monkeypatch.setattr(tiles, "INTERPRETED", False)
    monkeypatch.setattr(products, "WARPS", 4)  # the tests' interpreter has other tiles
    monkeypatch.setattr(products, "LANES", 128)
    monkeypatch.setattr(building, "CHUNK", 40)
    measured = launching.with_best_tile

    def chosen(key: str, candidates: list[Any], moved: int, *rest: Any) -> Any:
        noted.append(f"    {key}: {len(candidates)} tiles")
        return measured(key, candidates, moved, *rest)

    monkeypatch.setattr(launching, "with_best_tile", chosen)
    torch.manual_seed(0)
    for name, call in CALLS[part]():
        noted.append(name)
        y = call()
        y.sum().backward()
    check_recorded(f"launches/{part}", noted)
