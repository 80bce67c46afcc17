"""Encodings of nodes by the shape of the graph around them: what a transformer on a graph reads for positions."""

import functools
import hashlib
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar, TypeVar, cast

import numpy
import torch
from torch import Tensor

from edgewise.configuration import Bounds, Count, Natural
from edgewise.errors import GraphError
from edgewise.files import Tensors
from edgewise.files import cached as stored
from edgewise.graphs import Graph, Partition
from edgewise.graphs.checks import whole_number
from edgewise.graphs.derived import cached
from edgewise.graphs.make.regular import clique_counts
from edgewise.graphs.make.spectral import DENSE, Spectrum, component_spectra
from edgewise.kernels import aggregate
from edgewise.kernels.gates import gated
from edgewise.layers.graph.gcn import mixed_orders
from edgewise.layers.plain.layer import Example, Layer
from edgewise.layers.plain.linear import Linear
from edgewise.layers.plain.mlp import MLP
from edgewise.layers.plain.running import uncompiled
from edgewise.layers.plain.sides import Rows

Found = TypeVar("Found", Tensor, Spectrum)
Encoded = Annotated[Tensor, Rows("width")]  # features that get a vector of their width added


# Measured on an AMD EPYC (Zen 3).
FEW, MANY = 4096, 32  # walks that are followed at once while they reach few nodes, and once they reach many
SPARSE = 40  # multiplications of a dense product that take the time of one of a sparse product
LONG, TOO_LONG = 60, 600  # seconds from which a computation is announced, and refused
SLOW, FORMAT = 2.0, 1  # seconds from which a result is written to the cache on disk; the version of what is written


def random_walk_returns(graph: Graph, steps: int) -> Tensor:
    """How likely a random walk is back where it began after 1, 2, ..., `steps` steps.

    Equation    r_it = (P^t)_ii,  P = D^-1 A,  t = 1..steps: from i to one of N(i), each alike
    Shapes      -> [N, steps], float64
    Errors      GraphError for a graph whose receivers are not its senders, and for what would take over ten minutes by
                the time of its first part; a RuntimeWarning for what would take over one
    Edge cases  a node without senders stays nowhere: 0; parallel edges and self-loops count as often as they occur;
                a graph of more than 2,000 nodes is computed in float32, with errors below 1e-6
    Cost        O(steps n E) time, half of that where every edge goes both ways, less while walks reach few nodes;
                n = nodes of the largest member. 20,000 nodes and 100,000 edges, 16 steps: 3 to 5 s on one
                thread of an AMD EPYC, 0.1 GB; a grid of 200,000 nodes: 6 s
    Reference   Dwivedi et al., "Graph neural networks with learnable structural and positional representations", 2022

    >>> path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], num_nodes=3)
    >>> random_walk_returns(path, 2).tolist()
    [[0.0, 0.5], [0.0, 1.0], [0.0, 0.5]]
    """
    from tqdm import tqdm

    graph.require_square("a random walk")
    walks, start = _Walks(graph, whole_number(steps, "steps")), time.perf_counter()
    with gated(None), torch.no_grad(), tqdm(total=walks.widest, desc="random walks", delay=2, disable=None) as bar:
        for number, width in enumerate(walks.follow()):
            bar.update(width)
            if number == 1:
                _check_time((time.perf_counter() - start) * walks.widest / width, f"{steps} steps of all random walks")
            start = time.perf_counter()
    return walks.returns.to(graph.device)


def _check_time(seconds: float, what: str) -> None:
    takes = f"{what} would take about {seconds / 60:.0f} minutes on this machine"
    if seconds > TOO_LONG:
        raise GraphError(f"{takes}, and {TOO_LONG // 60} are the most: ask for fewer steps, or take parts of the graph")
    if seconds > LONG:
        warnings.warn(takes, RuntimeWarning, stacklevel=3)


class _Walks:
    """Walks from one node of each member at once: M^t[:, (those nodes)] in one column.

    Symbols     M = P; or D^-½ A D^-½ where A is symmetric and large: its powers have the diagonals of P's, and
                (M^{s+t})_ii = Σ_j (M^s)_ji (M^t)_ji, so that half the steps suffice
    Shapes      M^t [N, walks], a SciPy matrix while it has few entries, or else a tensor; returns [N, steps]
    """

    def __init__(self, graph: Graph, steps: int) -> None:
        sizes, degrees = graph.sizes.cpu(), graph.in_degrees().clamp(min=1).double()
        self.widest, a = max(sizes.tolist(), default=0), graph.to_scipy()
        symmetric = self.widest > DENSE and abs(a - a.T).sum() == 0
        d_i, d_j = degrees[graph.receivers], degrees[graph.senders]
        self.graph, self.steps, self.made = graph, steps, -(-steps // 2) if symmetric else steps
        weight = (d_i * d_j).rsqrt() if symmetric else 1 / d_i
        self.weight = weight if self.widest <= DENSE else weight.float()
        self.matrix = graph.to_scipy(self.weight)
        self.members, self.member = graph.membership().to_scipy(), torch.repeat_interleave(sizes).numpy()
        self.number = numpy.arange(len(self.member)) - (sizes.cumsum(0) - sizes).numpy()[self.member]
        self.returns = torch.zeros(len(self.member), steps, dtype=torch.float64)

    def follow(self) -> Iterator[int]:
        """Fill `returns`, and give how many walks from each member were followed since; first a few, to be timed."""
        from scipy.sparse import csr_array

        senders, first = self.matrix.indices, 0
        while first < self.widest:
            width = min(FEW if first else 2 * MANY, self.widest - first)
            nodes, columns = self._starts(first, width)
            starts = numpy.ones(len(nodes), self.matrix.dtype), (nodes, columns)
            x: Any = csr_array(starts, shape=(len(self.member), width))
            t = 0
            while t < self.made and SPARSE * numpy.diff(x.indptr)[senders].sum() < len(senders) * width:
                t, before, x = t + 1, x, self.matrix @ x
                self._read(t, nodes, columns, before, x)
            if t == self.made:
                yield width
            else:
                sparse = x.tocsc()
                for column in range(0, width, MANY):
                    part = sparse[:, column : column + MANY].toarray(order="C")
                    yield self._densely(t, first + column, torch.from_numpy(part).to(self.graph.device))
            first += width

    def _densely(self, t: int, first: int, x: Tensor) -> int:
        """The same from M^t on, of which x are the walks from `first` on."""
        nodes, columns = self._starts(first, x.shape[1])
        while t < self.made:
            t, before, x = t + 1, x, aggregate(self.graph, x, self.weight)
            self._read(t, nodes, columns, before, x)
        return x.shape[1]

    def _starts(self, first: int, width: int) -> tuple[Any, Any]:
        """The nodes where the walks begin, and in which column each."""
        inside = (self.number >= first) & (self.number < first + width)
        return inside.nonzero()[0], self.number[inside] - first

    def _read(self, t: int, nodes: Any, columns: Any, before: Any, x: Any) -> None:
        """Read the returns after t steps from M^t, and those that are sums of it and of M^{t-1}."""
        found = {t: x[nodes, columns]}
        for steps, y in ((2 * t - 1, before), (2 * t, x)):
            if self.made < steps <= self.steps:
                found[steps] = self._sums(y, x)[self.member[nodes], columns]
        for steps, returns in found.items():
            self.returns[nodes, steps - 1] = torch.as_tensor(returns).double().cpu()

    def _sums(self, y: Any, x: Any) -> Any:
        """Σ_j y_j x_j over the nodes j of each member, [members, walks]."""
        if not isinstance(x, Tensor):
            return (self.members @ y.multiply(x)).toarray()
        several = self.graph.membership() if self.members.shape[0] > 1 else None
        return aggregate(several, y * x) if several else torch.linalg.vecdot(y, x, dim=0)[None]


def of_own_nodes(compute: Callable[[Graph, int], Found]) -> Callable[[Graph, int], Found]:
    """What is computed of a graph; of a partition the rows of its own nodes, each rank computing that of the whole."""

    def rows_of(graph: Graph, count: int) -> Found:
        if not isinstance(graph, Partition):
            return compute(graph, count)
        return compute(graph.whole, count)[graph.offset : graph.offset + graph.num_receivers]

    return rows_of


def on_disk(compute: Callable[[Graph, int], Found]) -> Callable[[Graph, int], Found]:
    """What is computed of a graph; where that took seconds, later processes read it from the cache on disk."""

    @functools.wraps(compute)
    def read(graph: Graph, count: int) -> Found:
        if max(graph.sizes.tolist(), default=0) <= DENSE:
            return compute(graph, count)
        sha256 = hashlib.sha256()
        for part in (graph.sizes, graph.offsets, graph.senders):
            sha256.update(part.cpu().numpy().tobytes())

        def make() -> Tensors:
            found = compute(graph, count)
            return {"returns": found} if isinstance(found, Tensor) else dict(vars(found))

        made = stored("encodings", (compute.__name__, count, FORMAT, sha256.hexdigest()), make, worth=SLOW)
        made = {name: tensor.to(graph.device) for name, tensor in made.items()}
        found: Any = made["returns"] if "returns" in made else Spectrum(**made)
        return cast(Found, found)

    return read


# Computed once for each batch, by solvers that are not PyTorch's.
spectra_of = uncompiled(of_own_nodes(cached(on_disk(component_spectra))))
returns_of = uncompiled(of_own_nodes(cached(on_disk(random_walk_returns))))
counts_of = uncompiled(of_own_nodes(cached(clique_counts)))


class DiffusionEncoding(Layer):
    """Diffusion: in place of its own features a node has the mean of those that reach it in 0 to k steps.

    Equation    x_i' = 1/(k + 1) Σ_{t=0..k} (Â^t X)_i    (`mixed_orders`)
    Symbols     steps = k; Â: `renormalised`
    Shapes      x [*, N, width] -> [*, N, width]
    Cost        O(k E width); no weights
    Reference   Feng et al., "Graph random neural networks", 2020, (1); in front of attention: Wu et al., 2021

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> DiffusionEncoding(1)(pair, torch.tensor([[2.0], [4.0]])).tolist()
        [[2.5], [3.5]]
    """

    def __init__(self, steps: Natural) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        return mixed_orders(graph, x, self.steps)

    @staticmethod
    def example() -> Example:
        return DiffusionEncoding(2), _lopsided(), (torch.randn(6, 4),)


class LaplacianEncoding(Layer):
    """Laplacian positional encoding: adds a linear map of the eigenvectors after the first to the features.

    Equation    x_i + W [s_1 v_2(i), ..., s_k v_{k+1}(i)],  L v_l = λ_l v_l; s = ±1, drawn anew at each training step
    Symbols     linear = W; count = k; v, λ, s = those of i's connected component, as if it were a graph of its own
    Shapes      x [*, N, width] -> [*, N, width]
    Errors      GraphError for a graph whose receivers are not its senders
    Edge cases  a component of fewer than k + 1 nodes has zeros for the rest. Outside training the largest entry of each
                vector is positive: that depends on the order of the nodes, unlike `SignInvariantEncoding`
    Cost        O(N k width); the eigenvectors are computed once for each batch
    Reference   Dwivedi & Bresson, "A generalization of transformer networks to graphs", 2021; Baggag & Saad, §5.5

    Example
        >>> layer = LaplacianEncoding(1, count=1)
        >>> for p in layer.parameters(): _ = p.data.fill_(1.0)
        >>> path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], num_nodes=3)
        >>> layer.eval()(path, torch.zeros(3, 1)).detach().round(decimals=4).flatten().abs()  # (1, 0, -1) / √2
        tensor([0.7071, 0.0000, 0.7071])
    """

    equivariant: ClassVar[bool] = False

    def __init__(self, width: Count, count: Count) -> None:
        super().__init__()
        self.linear = Linear(count, width, bias=False)
        self.width, self.count = width, count

    def forward(self, graph: Graph, x: Encoded) -> Tensor:
        spectra = spectra_of(graph, self.count + 1)
        v = spectra.vectors[:, 1:].to(x.dtype)
        if self.training:
            signs = torch.randint(2, (len(spectra.values), self.count), device=v.device).to(v) * 2 - 1
            signs = graph.agreed(signs) if isinstance(graph, Partition) else signs
            v = v * signs[spectra.part]
        return x + self.linear(v)

    @staticmethod
    def example() -> Example:
        return LaplacianEncoding(4, count=3), _lopsided(), (torch.randn(6, 4),)


class SignInvariantEncoding(Layer):
    """Laplacian encoding whose network does not see the eigenvectors' signs (SignNet).

    Equation    x_i + ρ(‖_l [φ(v_l(i), λ_l) + φ(-v_l(i), λ_l)]),  l = 2..k+1
    Symbols     phi, rho = φ, ρ; count = k; hidden = width of φ; v, λ = those of i's connected component
    Shapes      x [*, N, width] -> [*, N, width]
    Errors      GraphError for a graph whose receivers are not its senders
    Edge cases  where an eigenvalue repeats, the choice of its eigenvectors still shows: `EigenspaceEncoding` has none
    Cost        O(N k hidden (hidden + width)); the eigenvectors are computed once for each batch
    Differs     there φ may be a graph network; here it is an MLP that also reads the eigenvalue
    Reference   Lim et al., "Sign and basis invariant networks for spectral graph representation learning", 2022

    Example
        >>> path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], num_nodes=3)
        >>> y = SignInvariantEncoding(4, count=2)(path, torch.zeros(3, 4))
        >>> torch.allclose(y[0], y[2])  # the two ends differ by a sign only
        True
    """

    def __init__(self, width: Count, count: Count, hidden: Count = 16) -> None:
        super().__init__()
        self.phi = MLP([2, hidden, hidden], "gelu")
        self.rho = MLP([count * hidden, width, width], "gelu")
        self.width, self.count = width, count

    def forward(self, graph: Graph, x: Encoded) -> Tensor:
        spectra = spectra_of(graph, self.count + 1)
        v = spectra.vectors[:, 1:].to(x.dtype)
        values = spectra.values[:, 1:].to(x.dtype)[spectra.part]
        both = self.phi(torch.stack([v, values], -1)) + self.phi(torch.stack([-v, values], -1))
        return x + self.rho(both.flatten(-2))

    @staticmethod
    def example() -> Example:
        return SignInvariantEncoding(4, count=3, hidden=3), _lopsided(), (torch.randn(6, 4),)


class EigenspaceEncoding(Layer):
    """Laplacian encoding by eigenspaces: invariant to signs and to the choice of a repeated eigenvalue's vectors.

    Equation    x_i + ρ(Σ_l φ(λ_l, Σ_{l': λ_l' = λ_l} v_l'(i)²)),  l = 1..k
    Symbols     phi, rho = φ, ρ; count = k; hidden = width of φ; v, λ = those of i's connected component
    Shapes      x [*, N, width] -> [*, N, width]
    Errors      GraphError for a graph whose receivers are not its senders
    Edge cases  an eigenvalue of which only some copies are among the first k is left out whole, and so is padding
    Cost        O(N k hidden²); the eigenvectors are computed once for each batch
    Differs     of a space's projection V Vᵀ it reads the diagonal only
    Reference   Lim et al., "Sign and basis invariant networks for spectral graph representation learning", 2022

    Example
        >>> ring = Graph.from_edge_index([[0, 1, 2, 3, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 2, 3]], num_nodes=4)
        >>> y = EigenspaceEncoding(4, count=4)(ring, torch.zeros(4, 4))
        >>> torch.allclose(y[1:], y[0])  # all nodes of a ring are alike
        True
    """

    def __init__(self, width: Count, count: Natural, hidden: Count = 16) -> None:
        super().__init__()
        self.phi = MLP([2, hidden, hidden], "gelu")
        self.rho = MLP([hidden, width, width], "gelu")
        self.width, self.count = width, count

    def forward(self, graph: Graph, x: Encoded) -> Tensor:
        spectra = spectra_of(graph, self.count + 1)
        values = spectra.values[spectra.part]
        last = (values > 2 - 1e-6) & (spectra.vectors != 0)  # occurs once, and its vector is nowhere 0 as padding is
        whole = ((values[:, -1:] - values > 1e-6) | last)[:, :-1]
        read = torch.stack([values, spectra.projections()], -1)[:, :-1].to(x.dtype)
        return x + self.rho((self.phi(read) * whole.to(x.dtype).unsqueeze(-1)).sum(-2))

    @staticmethod
    def example() -> Example:
        return EigenspaceEncoding(4, count=3, hidden=3), _lopsided(), (torch.randn(6, 4),)


class RandomWalkEncoding(Layer):
    """Random-walk structural encoding: adds a linear map of the probabilities to be back after 1, 2, ..., k steps.

    Equation    x_i + W [P_ii, (P²)_ii, ..., (P^k)_ii] + b,  P = D^-1 A
    Symbols     linear = W, b; steps = k
    Shapes      x [*, N, width] -> [*, N, width]
    Errors      GraphError for a graph whose receivers are not its senders
    Edge cases  a node without senders has zeros
    Cost        O(N k width); the probabilities are computed once for each batch
    Reference   Dwivedi et al., 2022; Rampášek et al., 2022

    Example
        >>> layer = RandomWalkEncoding(1, steps=2)
        >>> for p in layer.parameters(): _ = p.data.fill_(1.0)
        >>> path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], num_nodes=3)
        >>> layer(path, torch.zeros(3, 1)).flatten().tolist()
        [1.5, 2.0, 1.5]
    """

    def __init__(self, width: Count, steps: Count) -> None:
        super().__init__()
        self.linear = Linear(steps, width)
        self.width, self.steps = width, steps

    def forward(self, graph: Graph, x: Encoded) -> Tensor:
        return x + self.linear(returns_of(graph, self.steps).to(x.dtype))

    @staticmethod
    def example() -> Example:
        return RandomWalkEncoding(4, steps=3), _lopsided(), (torch.randn(6, 4),)


class CliqueEncoding(Layer):
    """Structural encoding by the cliques that a node is in: it distinguishes graphs that 2-WL does not.

    Equation    x_i + W [log(1 + number of cliques of 3, 4, ..., k nodes that i is in)] + b
    Symbols     linear = W, b; largest = k
    Shapes      x [*, N, width] -> [*, N, width]
    Errors      GraphError for a graph whose receivers are not its senders
    Edge cases  directions and self-loops do not count
    Cost        O(N k width); the cliques are listed once for each batch
    Reference   Bouritsas et al., "Improving graph neural network expressivity via subgraph isomorphism counting", 2020

    Example
        >>> layer = CliqueEncoding(1, largest=3)
        >>> for p in layer.parameters(): _ = p.data.fill_(1.0)
        >>> from edgewise.graphs import complete
        >>> layer(complete(3), torch.zeros(3, 1))[0]  # one triangle: log 2 + 1
        tensor([1.6931], grad_fn=<SelectBackward0>)
    """

    def __init__(self, width: Count, largest: Annotated[int, Bounds(at_least=3)] = 5) -> None:
        super().__init__()
        self.width = width
        self.linear = Linear(largest - 2, width)
        self.largest = largest

    def forward(self, graph: Graph, x: Encoded) -> Tensor:
        return x + self.linear(counts_of(graph, self.largest).log1p().to(x.dtype))

    @staticmethod
    def example() -> Example:
        return CliqueEncoding(4, largest=4), _lopsided(), (torch.randn(6, 4),)


def _lopsided() -> Graph:
    """Six nodes whose Laplacian has no repeated eigenvalue."""
    ends = torch.tensor([[0, 0, 1, 1, 2, 3, 4], [1, 2, 2, 3, 3, 4, 5]])
    return Graph.from_edge_index(torch.cat([ends, ends.flip(0)], 1), num_nodes=6)
