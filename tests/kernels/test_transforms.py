"""Forward-mode derivatives and `torch.func`'s transforms go through every verb, and leave the graph as it was."""

import pytest
import torch
from torch.autograd import forward_ad

from edgewise import (
    Additive,
    BackendRefusal,
    Dot,
    EdgeVectors,
    GatedAdditive,
    Gaussian,
    Graph,
    Kernel,
    RelativeBias,
    ShapeError,
    aggregate,
    attend,
    blocks,
    causal,
    collect,
    complete,
    window,
)
from edgewise.graphs.checks import same_device
from edgewise.graphs.tracing import is_transformed
from edgewise.kernels import EdgeInput, Filter, dropout
from edgewise.layers import MLP, RGCN

# PyTorch's own rules for forward-mode derivatives are still written in it.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")

N, H, C = 12, 2, 3

GRAPHS = {
    "edges": lambda: Graph.from_edge_index(torch.randint(N, (2, 40), generator=torch.Generator().manual_seed(3)), N),
    "causal": lambda: causal(N),
    "window": lambda: window(N, 2),
    "complete": lambda: complete(N),
    "blocks": lambda: blocks([5, 0, 7]),
}


def weights_of(graph, s):
    """Softmax over edges, parallel ones counted, of dense scores [..., I, J, H]."""
    count = graph.multiplicity()[..., None]
    w = count * s.exp()
    total = w.sum(-2, keepdim=True)
    return w / torch.where(total == 0, 1, total)


def dense_attention(graph, x):
    s = torch.einsum("...ihc,...jhc->...ijh", x, x) / C**0.5
    return torch.einsum("...ijh,...jhc->...ihc", weights_of(graph, s), x.sin())


def dense_gaussian(graph, x):
    d = x.unsqueeze(-3) - x.unsqueeze(-4)
    return torch.einsum("...ijh,...jhc->...ihc", weights_of(graph, -(d * d).sum(-1) / 2), x)


def dense_sum(graph, x):
    return torch.einsum("ij,...jc->...ic", graph.multiplicity().to(x.dtype), x.flatten(-2).exp())


def dense_most(graph, x):
    rows = [x.flatten(-2)[..., graph.dense_mask()[i], :] for i in range(N)]
    return torch.stack([r.amax(-2) if r.shape[-2] else r.sum(-2) for r in rows], -2)


def dense_collected(graph, x):
    x = x.flatten(-2)
    m_ij = (x.unsqueeze(-2) * x.unsqueeze(-3)).tanh()
    return torch.einsum("ij,...ijc->...ic", graph.multiplicity().to(x.dtype), m_ij)


VERBS = {
    "attend": (lambda graph: lambda x: attend(graph, x, x, x.sin()), dense_attention),
    "gaussian": (lambda graph: lambda x: attend(graph, x, x, x, Gaussian()), dense_gaussian),
    "aggregate": (lambda graph: lambda x: aggregate(graph, x.flatten(-2).exp()), dense_sum),
    "largest": (lambda graph: lambda x: aggregate(graph, x.flatten(-2), reduce="max"), dense_most),
    "collect": (
        lambda graph: (
            lambda x: collect(
                graph, (x.flatten(-2)[..., graph.receivers, :] * x.flatten(-2)[..., graph.senders, :]).tanh()
            )
        ),
        dense_collected,
    ),
}


def dual(function, x, t):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, t))).tangent


TRANSFORMS = {
    "jvp": lambda f, x, t: torch.func.jvp(f, (x,), (t,))[1],
    "make_dual": dual,
    "vmap": lambda f, x, t: torch.func.vmap(f)(torch.stack([x, t])),
    "grad": lambda f, x, t: torch.func.grad(lambda x: (f(x) ** 2).sum())(x),
    "vjp": lambda f, x, t: torch.func.vjp(f, x)[1](f(t).detach())[0],
    "jacrev": lambda f, x, t: torch.func.jacrev(f)(x),
    "jacfwd": lambda f, x, t: torch.func.jacfwd(f)(x),
    "hessian": lambda f, x, t: torch.func.hessian(lambda x: (f(x) ** 2).sum())(x),
    "vmap of grad": lambda f, x, t: torch.func.vmap(torch.func.grad(lambda x: f(x).sum()))(torch.stack([x, t])),
}


# Each verb on each kind of graph, and each transform several times.
CASES = [
    (kind, verb, list(TRANSFORMS)[(i + 2 * j) % len(TRANSFORMS)])
    for i, kind in enumerate(GRAPHS)
    for j, verb in enumerate(VERBS)
]


@pytest.mark.parametrize(("kind", "verb", "transform"), CASES)
def test_a_transform_as_the_first_call_on_a_graph_is_right_and_leaves_the_graph_usable(kind, verb, transform):
    generator = torch.Generator().manual_seed(len(kind) + len(verb))
    x, t = torch.randn(2, N, H, C, dtype=torch.float64, generator=generator)
    graph, other = GRAPHS[kind](), GRAPHS[kind]()
    ours, dense = VERBS[verb]
    found = TRANSFORMS[transform](ours(graph), x, t)
    expected = TRANSFORMS[transform](lambda x: dense(other, x), x, t)
    assert found.abs().max() > 0
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(ours(graph)(x), dense(other, x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["causal", "complete", "edges"])
def test_a_kernel_score_has_forward_derivatives(kind):
    generator = torch.Generator().manual_seed(1)
    x, t = torch.rand(2, N, H, C, dtype=torch.float64, generator=generator)
    graph = GRAPHS[kind]()

    def attended(x):
        return attend(graph, x, x, x, Kernel(torch.exp))

    found, step = torch.func.jvp(attended, (x,), (t,))[1], 1e-6
    ends = attended(x + step * t), attended(x - step * t)
    torch.testing.assert_close(found, (ends[0] - ends[1]) / (2 * step), rtol=1e-6, atol=1e-8)


def test_networks_of_messages_have_forward_derivatives():
    generator = torch.Generator().manual_seed(0)
    graph = GRAPHS["edges"]()
    x, t = torch.randn(2, N, 5, generator=generator, dtype=torch.float64)
    network = MLP([8, 5, 3], "silu").double()

    def summed(x):
        return collect(graph, network.message(x, x.sin()))

    found = torch.func.jvp(summed, (x,), (t,))[1]
    step = 1e-6
    torch.testing.assert_close(found, (summed(x + step * t) - summed(x - step * t)) / (2 * step), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", ["edges", "blocks"])
def test_compiled_kernels_named_under_a_transform_are_refused_aloud(kind):
    x = torch.randn(N, H, C)
    for name in ("native", "tiled"):
        graph = GRAPHS[kind]()
        with pytest.raises(BackendRefusal, match=r"no rules for torch\.func's transforms"):
            torch.func.jvp(lambda x: attend(graph, x, x, x, backend=name), (x,), (x,))  # noqa: B023
    assert not is_transformed()


class Attending(torch.nn.Module):
    def __init__(self, graph, fails=False):
        super().__init__()
        self.graph, self.fails = graph, fails

    def forward(self, x):
        y = attend(self.graph, x, x, x) + aggregate(self.graph, x.flatten(-2)).view_as(x)
        if self.fails:
            raise ArithmeticError("on purpose")
        return y


@pytest.mark.compiled
@pytest.mark.parametrize("kind", GRAPHS)
def test_an_export_that_fails_leaves_the_graph_usable_and_one_that_succeeds_is_right(kind):
    x, graph = torch.randn(N, H, C), GRAPHS[kind]()
    with pytest.raises(ArithmeticError):
        torch.export.export(Attending(graph, fails=True), (x,), strict=False)
    expected = Attending(GRAPHS[kind]())(x)
    torch.testing.assert_close(Attending(graph)(x), expected)
    exported = torch.export.export(Attending(GRAPHS[kind]()), (x,), strict=False)
    torch.testing.assert_close(exported.module()(x), expected)


@pytest.mark.parametrize("kind", GRAPHS)
def test_fake_tensors_as_the_first_call_leave_the_graph_usable(kind):
    from torch._subclasses.fake_tensor import FakeTensorMode

    x, graph = torch.randn(N, H, C), GRAPHS[kind]()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = attend(graph, *[mode.from_tensor(x)] * 3, Dot())
    assert fake.shape == x.shape
    torch.testing.assert_close(attend(graph, x, x, x), attend(GRAPHS[kind](), x, x, x))


def test_tensors_on_another_device_than_the_graph_are_refused():
    graph, x = GRAPHS["edges"](), torch.empty(N, H, C, device="meta")
    v, e, W, b = (torch.ones(*shape) for shape in ((N, H, C), (40, 3), (H * C, 3), (H * C,)))
    for call in (
        lambda: attend(graph, v, v, v, Dot() + RelativeBias(torch.ones(H, 3, device="meta"))),
        lambda: attend(graph, v, v, v, Dot() + EdgeVectors(EdgeInput((W.to("meta"), b), e))),
        lambda: attend(graph, v, v, v, Dot() + EdgeVectors(values=EdgeInput((W, b.to("meta")), e))),
        lambda: attend(graph, x, x, x),
        lambda: aggregate(graph, x.flatten(1)),
        lambda: aggregate(graph, torch.ones(N, 2), torch.ones(40, device="meta")),
        lambda: collect(graph, torch.empty(40, 2, device="meta")),
    ):
        with pytest.raises(ShapeError, match="is on meta, where no tensor holds numbers, and the graph on cpu"):
            call()
    with pytest.raises(ShapeError, match=r"x is on cpu and the graph on cuda:1: graph\.to\('cpu'\) moves the graph"):
        same_device("x", torch.ones(1), torch.device("cuda:1"))


SEVERAL = ["attend", "weighted", "mean", "max", "collect", "filter", "dropout", "RGCN"]


@pytest.mark.parametrize("kind", SEVERAL)
def test_several_gradients_at_once_are_those_of_one_after_the_other(kind):
    graph = Graph.from_edge_index(torch.randint(12, (2, 40), generator=torch.Generator().manual_seed(0)), 12)
    weight, types = torch.rand(40), torch.randint(2, (40,))
    relational = RGCN(8, 3, relations=2)

    def dropped(x):
        torch.manual_seed(0)
        return dropout(x, 0.5)

    call = {
        "attend": lambda x: attend(graph, *[x.view(12, 2, 4)] * 3).flatten(-2),
        "weighted": lambda x: aggregate(graph, x, weight),
        "mean": lambda x: aggregate(graph, x, reduce="mean"),
        "max": lambda x: aggregate(graph, x, reduce="max"),
        "collect": lambda x: collect(graph, x[graph.senders]),
        "filter": lambda x: collect(graph, Filter(x.repeat(4, 1)[:40].square(), x, both_ways=True)),
        "dropout": dropped,
        "RGCN": lambda x: relational(graph, x, types),
    }[kind]
    x = torch.randn(12, 8)
    whole, one_by_one = (torch.autograd.functional.jacobian(call, x, vectorize=batched) for batched in (True, False))
    torch.testing.assert_close(whole, one_by_one)


@pytest.mark.parametrize(
    ("kind", "score"),
    [("tensors", Dot()), ("maps", Additive()), ("one map", GatedAdditive(torch.ones(H, 1)))],
    ids=["dot", "additive", "gated"],
)
def test_gradients_of_vectors_of_edges_come_several_at_once(kind, score):
    graph = GRAPHS["edges"]()
    q, k, x, W, b = (torch.randn(*shape, requires_grad=True) for shape in ((N, H, 1), (N, H, 1), (40, 3), (H, 3), (H,)))
    v, keys, values = (torch.randn(*shape, requires_grad=True) for shape in ((N, H, 1), (40, H, 1), (40, H, 1)))
    vectors = {
        "tensors": EdgeVectors(keys, values),
        "maps": EdgeVectors(EdgeInput((W, b), x), EdgeInput((W, None), x)),
        "one map": EdgeVectors(values=EdgeInput((W, b), x)),
    }[kind]
    y = attend(graph, q, k, v, score + vectors, backend="native")
    leaves = [q, k, v, *([keys, values] if kind == "tensors" else [x, W, b])]
    dy = torch.randn(3, *y.shape)

    def gradients(dy, **several):
        return torch.autograd.grad(y, leaves, dy, retain_graph=True, **several)

    expected = [torch.stack(each) for each in zip(*map(gradients, dy), strict=True)]
    torch.testing.assert_close(gradients(dy, is_grads_batched=True), tuple(expected))
    torch.testing.assert_close(torch.func.vmap(gradients)(dy), tuple(expected))
