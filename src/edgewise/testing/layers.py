"""A layer's properties: what must hold for every one, whatever it computes."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.autograd.gradcheck import GradcheckError, gradcheck

from edgewise.errors import BackendRefusal, ConfigError
from edgewise.graphs import Graph
from edgewise.kernels import BACKENDS, use_backend

EXACT = 1e-9  # float64: the same equation, summed in another order


def assert_equivariant(
    function: Callable[..., Tensor],
    transform_in: Callable[..., tuple[Tensor, ...]],
    transform_out: Callable[[Tensor], Tensor],
    *inputs: Tensor,
    tolerance: float = EXACT,
) -> None:
    """Check that transforming the inputs transforms the output: f(T x) = T' f(x).

    Symbols     function = f; transform_in = T, takes all inputs and returns them all; transform_out = T'
    Errors      AssertionError with the difference, relative to the largest entry
    Edge cases  an invariant function has the identity as T'

    Example
        >>> import torch
        >>> assert_equivariant(torch.relu, lambda x: (x.flip(0),), lambda y: y.flip(0), torch.randn(3))
        >>> assert_equivariant(torch.relu, lambda x: (-x,), lambda y: -y, torch.tensor([1.0, -2.0]))
        Traceback (most recent call last):
            ...
        AssertionError: f(T x) and T' f(x) differ by 2.0e+00, at most 1e-09 expected
    """
    error = distance(function(*transform_in(*inputs)), transform_out(function(*inputs)))
    expect(error <= tolerance, f"f(T x) and T' f(x) differ by {error:.1e}, at most {tolerance:.0e} expected")


def with_gradients(y: Tensor, leaves: dict[str, Tensor], seed: int = 0) -> dict[str, Tensor]:
    """The output, and the gradients of a fixed random projection of it to the leaves, by name."""
    projection = torch.randn(y.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    total = (y * projection.to(y)).sum()
    grads = torch.autograd.grad(total, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return {"output": y.detach()} | {f"gradient of {name}": g for name, g in zip(leaves, grads, strict=True)}


def expect(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)


def same(actual: Tensor, expected: Tensor, message: str) -> None:
    error = distance(actual, expected)
    expect(error <= EXACT, f"{message} (by {error:.1e}, at most {EXACT:.0e} expected)")


def distance(actual: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest entry above 1; infinite for another shape or a NaN."""
    if actual.shape != expected.shape:
        return float("inf")
    if actual.numel() == 0:
        return 0.0
    actual, expected = actual.detach(), expected.detach()
    error = float((actual - expected).abs().max() / expected.abs().max().clamp(min=1))
    return float("inf") if error != error else error


DRAWS = 128  # of dropout


@dataclass(frozen=True)
class Trial:
    """A layer with a graph and inputs that suit it: what each property is checked on."""

    layer: nn.Module
    graph: Graph
    inputs: tuple[Tensor, ...]
    equivariant: bool

    def to(self, dtype: torch.dtype) -> Trial:
        """A copy in another precision; integers (tokens) stay integers."""
        inputs = tuple(x.detach().to(dtype) if x.is_floating_point() else x for x in self.inputs)
        return replace(self, layer=copy.deepcopy(self.layer).to(dtype), inputs=inputs)

    def on(self, graph: Graph, inputs: tuple[Tensor, ...] | None = None) -> Trial:
        """The same layer on another graph."""
        return replace(self, graph=graph, inputs=self.inputs if inputs is None else inputs)

    def output(self) -> Tensor:
        with torch.no_grad():
            return joined(self.layer(self.graph, *self.inputs))

    def seeded(self, seed: int) -> Trial:
        """A copy, for one call: what the layer changes in itself stays there, and random numbers start from a seed."""
        torch.manual_seed(seed)
        return replace(self, layer=copy.deepcopy(self.layer))

    def output_and_gradients(self, forward: AbstractContextManager[object] | None = None) -> dict[str, Tensor]:
        """The output and the gradients of a fixed random projection of it, by name of the input or parameter."""
        inputs = [x.detach().requires_grad_(x.is_floating_point()) for x in self.inputs]
        with forward or nullcontext():
            y = joined(self.layer(self.graph, *inputs))
        leaves = {f"input {n}": x for n, x in enumerate(inputs) if x.requires_grad} | dict(
            self.layer.named_parameters()
        )
        return with_gradients(y, leaves)


def joined(y: object) -> Tensor:
    """What a layer returns as one tensor: where it returns several, features and positions, side by side."""
    parts = y if isinstance(y, tuple) else (y,)
    wrong = [type(part).__name__ for part in parts if not isinstance(part, Tensor)]
    expect(not wrong, f"the layer returns {', '.join(wrong)}, expected tensors")
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


def check_layer(
    layer: nn.Module, graph: Graph, *inputs: Tensor, equivariant: bool | None = None, skip: Collection[str] = ()
) -> None:
    """Check every property in PROPERTIES of a layer called `layer(graph, *inputs)`.

    Symbols     inputs = tensors with one row per node, [N, ...]; the output has one row per node, or per graph of a
                batch, and so has each where there are several (features and positions); equivariant = whether the
                order of the nodes must not matter, by default the layer's attribute `equivariant`, else True; skip =
                names of PROPERTIES to leave out. A layer whose nodes attend to others than those that the graph gives
                them says so by the attribute `local` = False, and one in which something nonlinear follows dropout, so
                that the mean of its results is another in training, by `unbiased` = False
    Errors      AssertionError, which names the layer and the property
    Edge cases  the layer is copied and checked in evaluation mode, and for the property "training" in training mode
                with the dropout that it has: the caller's is left as it is
    Cost        several hundred forward passes: use a graph of some five nodes

    Example
        >>> from edgewise.layers import GCN
        >>> check_layer(*GCN.example()[:2], *GCN.example()[2], skip=["compile"])
    """
    unknown = set(skip) - set(PROPERTIES)
    if unknown:
        raise ConfigError(f"skip names {sorted(unknown)}, which are no properties: choose from {', '.join(PROPERTIES)}")
    if equivariant is None:
        equivariant = getattr(layer, "equivariant", True)
    trial = Trial(copy.deepcopy(layer).eval(), graph, inputs, equivariant).to(torch.float64)
    for name, check in PROPERTIES.items():
        if name in skip:
            continue
        try:
            check(trial)
        except AssertionError as failure:
            raise AssertionError(f"{type(layer).__name__}: {name}: {failure}") from failure
        except Exception as error:
            raise AssertionError(f"{type(layer).__name__}: {name}: raised {type(error).__name__}: {error}") from error


def _permutation(trial: Trial) -> None:
    """f(P graph, P x) = P f(graph, x); a layer that says it is not equivariant must not be."""
    y = trial.output()
    generator = torch.Generator().manual_seed(0)
    worst = 0.0
    for _ in range(8):
        perm = torch.cat([first + torch.randperm(n, generator=generator) for first, n in _members(trial.graph)])
        permuted = trial.on(trial.graph.permute(perm), tuple(x[perm] for x in trial.inputs))
        expected = y[perm] if len(y) == trial.graph.num_receivers else y
        worst = max(worst, distance(permuted.output(), expected))
    if trial.equivariant:
        expect(worst <= EXACT, f"numbering the nodes in another order changes the result by {worst:.1e}")
    else:
        expect(worst > EXACT, "the layer says equivariant = False, yet the order of the nodes does not matter")


def _leading_batch(trial: Trial) -> None:
    """Inputs [2, N, ...] are two independent inputs on one graph."""
    other = tuple(x.flip(0) for x in trial.inputs)
    both = trial.on(trial.graph, tuple(torch.stack(pair) for pair in zip(trial.inputs, other, strict=True))).output()
    each = torch.stack([trial.output(), trial.on(trial.graph, other).output()])
    same(both, each, "two inputs in one batch give another result than one after the other")


def _isolated_nodes(trial: Trial) -> None:
    """A node without edges has a finite result and gradient, and no other depends on it; so has a graph without any."""
    graph, first = trial.graph, _members(trial.graph)[0][0]
    index = graph.edge_index()
    rest = index[:, (index != first).all(0)]
    for edges, whose in ((rest, "an isolated node"), (index[:, :0], "a graph without edges")):
        for name, value in trial.on(_like(graph, edges)).output_and_gradients().items():
            expect(bool(value.isfinite().all()), f"{whose} makes the {name} infinite or NaN")
    cut = trial.on(_like(graph, rest))
    y = cut.output()
    if len(y) != graph.num_receivers:
        return  # a readout reads every node of its graph
    moved = cut.on(cut.graph, tuple(_with_first_row_changed(x, first) for x in cut.inputs)).output()
    others = [n for n in range(len(y)) if n != first]
    if getattr(trial.layer, "local", True):
        same(moved[others], y[others], "other nodes depend on a node that has no edges")
    else:
        depend = distance(moved[others], y[others]) > EXACT
        expect(depend, "the layer says local = False, yet no other node depends on a node that has no edges")


def _empty_graph(trial: Trial) -> None:
    """No nodes: no rows (a readout: one finite row per graph), and a backward pass that works."""
    nothing = trial.on(
        Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), num_nodes=0), tuple(x[:0] for x in trial.inputs)
    )
    actual = nothing.output_and_gradients()
    rows, expected = len(actual["output"]), 0 if len(trial.output()) == trial.graph.num_receivers else 1
    expect(rows == expected, f"the output has {rows} rows, expected {expected}")
    for name, value in actual.items():
        expect(bool(value.isfinite().all()), f"the {name} is infinite or NaN")


def _gradients(trial: Trial) -> None:
    """Gradients to inputs and parameters agree with finite differences."""
    _same_gradients(trial)


def _same_gradients(trial: Trial, seed: int | None = None) -> None:
    names = [name for name, _ in trial.layer.named_parameters()]
    places = [n for n, x in enumerate(trial.inputs) if x.is_floating_point()]

    def function(*leaves: Tensor) -> Tensor:
        inputs = list(trial.inputs)
        for place, leaf in zip(places, leaves, strict=False):
            inputs[place] = leaf
        parameters = dict(zip(names, leaves[len(places) :], strict=True))
        layer = trial.layer if seed is None else trial.seeded(seed).layer
        return joined(torch.func.functional_call(layer, parameters, (trial.graph, *inputs)))

    leaves = [trial.inputs[n] for n in places] + [p.detach() for p in trial.layer.parameters()]
    for leaf in leaves:
        leaf.requires_grad_()
    try:
        gradcheck(function, leaves, fast_mode=True)  # along random directions
    except GradcheckError as error:
        raise AssertionError(f"autograd and finite differences disagree: {error}") from error
    finally:
        for leaf in leaves:
            leaf.requires_grad_(False)


def _training(trial: Trial) -> None:
    """In training mode a seed decides the result and its gradients; dropout changes the result, but not its mean."""
    train = replace(trial, layer=copy.deepcopy(trial.layer).train())
    plain = replace(train, layer=_without_dropout(train.layer))
    with torch.random.fork_rng(devices=[]):
        first, second = (train.seeded(0).output_and_gradients() for _ in range(2))
        for name, value in first.items():
            expect(torch.equal(value, second[name]), f"the same seed gives another {name} the second time")
        expected = plain.seeded(0).output()
        if plain.layer is train.layer or not torch.equal(expected, plain.seeded(1).output()):
            return  # nothing is dropped, or other random numbers are drawn as well
        _same_gradients(train, seed=0)  # the backward pass drops what the forward pass did
        results = torch.stack([train.seeded(seed).output() for seed in range(DRAWS)])
    expect(bool(((results - expected).abs() > EXACT).any()), "dropout changes nothing")
    if getattr(trial.layer, "unbiased", True):
        error = (results.mean(0) - expected).abs() / (results.std(0) / DRAWS**0.5 + EXACT)
        worst = f"{float(error.max()):.0f} standard errors, at most 5 expected"
        expect(bool((error <= 5).all()), f"dropout moves the mean of {DRAWS} results by {worst}")


def _without_dropout(layer: nn.Module) -> nn.Module:
    """A copy in which no module drops anything; the layer itself where none does."""
    copied = copy.deepcopy(layer)
    dropping = [
        (module, name)
        for module in copied.modules()
        for name in ("p" if isinstance(module, nn.modules.dropout._DropoutNd) else "dropout",)
        if isinstance(getattr(module, name, None), float) and getattr(module, name) > 0
    ]
    for module, name in dropping:
        setattr(module, name, 0.0)
    return copied if dropping else layer


def _dtypes(trial: Trial) -> None:
    """float64, float32 and bfloat16 run, keep their dtype and agree within their precision."""
    exact = trial.output_and_gradients()
    for dtype, tolerance in ((torch.float64, EXACT), (torch.float32, 1e-4), (torch.bfloat16, 0.1)):
        for name, value in trial.to(dtype).output_and_gradients().items():
            expect(value.dtype == dtype, f"the {name} is {value.dtype} for {dtype} inputs")
            error = distance(value.double(), exact[name])
            expect(error <= tolerance, f"in {dtype} the {name} is off by {error:.1e}, at most {tolerance} expected")


def _mixed_precision(trial: Trial) -> None:
    """float32 weights under torch.autocast: the result agrees, and gradients come back in float32."""
    exact, single = trial.output_and_gradients(), trial.to(torch.float32)
    actual = single.output_and_gradients(torch.autocast(trial.graph.device.type, torch.bfloat16))
    for name, value in actual.items():
        expect(name == "output" or value.dtype == torch.float32, f"the {name} is {value.dtype}, not torch.float32")
        error = distance(value.double(), exact[name])
        expect(error <= 0.1, f"under torch.autocast the {name} is off by {error:.1e}, at most 0.1 expected")


def _backends(trial: Trial) -> None:
    """Every backend that does not refuse agrees with `reference`, forward and backward."""
    with use_backend("reference"):
        expected = trial.output_and_gradients()
    for backend in BACKENDS:
        try:
            with use_backend(backend):
                actual = trial.output_and_gradients()
        except BackendRefusal:
            continue
        for name, value in actual.items():
            same(value, expected[name], f"backend {backend!r} disagrees with reference: the {name}")


def _state_dict(trial: Trial) -> None:
    """Weights survive a round trip through a safetensors file, and there is no state besides them."""
    for path, module in trial.layer.named_modules():
        for name, value in vars(module).items():
            where = f"{path}.{name}".lstrip(".")
            expect(not isinstance(value, Tensor), f"{where} is a tensor that state_dict() leaves out: register it")
    saved = safetensors.torch.save(trial.layer.state_dict())
    fresh = copy.deepcopy(trial.layer)
    with torch.no_grad():
        for value in fresh.state_dict().values():
            value.logical_not_() if value.dtype == torch.bool else value.add_(1)
    fresh.load_state_dict(safetensors.torch.load(saved))
    actual = replace(trial, layer=fresh).output()
    expect(torch.equal(actual, trial.output()), "another result after its weights were saved and loaded")


def _compile(trial: Trial) -> None:
    """torch.compile runs forward and backward, graph breaks allowed, with the same result."""
    expected = trial.output_and_gradients()
    torch._dynamo.reset()
    compiled = torch.compile(trial.layer, backend="aot_eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own: it reads .grad of tensors inside the graph
        actual = replace(trial, layer=compiled).output_and_gradients()  # type: ignore[arg-type]
    for name, value in actual.items():
        same(value, expected[name.replace("_orig_mod.", "")], f"torch.compile changes the {name}")


PROPERTIES: dict[str, Callable[[Trial], None]] = {
    "permutation": _permutation,
    "leading batch": _leading_batch,
    "isolated nodes": _isolated_nodes,
    "empty graph": _empty_graph,
    "gradients": _gradients,
    "training": _training,
    "dtypes": _dtypes,
    "mixed precision": _mixed_precision,
    "backends": _backends,
    "state dict": _state_dict,
    "compile": _compile,
}


def _members(graph: Graph) -> list[tuple[int, int]]:
    """First node and number of nodes of each graph in a batch."""
    sizes = graph.sizes.tolist()
    return [(sum(sizes[:number]), size) for number, size in enumerate(sizes)]


def _like(graph: Graph, edge_index: Tensor) -> Graph:
    """The same nodes, batched as in `graph`, with other edges."""
    members = []
    for first, size in _members(graph):
        inside = ((edge_index >= first) & (edge_index < first + size)).all(0)
        members.append(Graph.from_edge_index(edge_index[:, inside] - first, num_nodes=size))
    return Graph.batch(members)


def _with_first_row_changed(x: Tensor, row: int) -> Tensor:
    changed = x.clone()
    changed[row] = changed[row] + 1 if x.is_floating_point() else changed[(row + 1) % len(x)]
    return changed
