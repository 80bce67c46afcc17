"""The linear map of dense features and of sparse ones (a bag of words is a graph), and the embedding of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Natural
from edgewise.errors import ShapeError
from edgewise.graphs import Graph, forms
from edgewise.graphs.checks import in_range, index_tensor, node_list, same_device, shown
from edgewise.graphs.tracing import is_real
from edgewise.kernels import aggregate
from edgewise.kernels import dropout as dropout_dense
from edgewise.kernels.operator.layout import widened
from edgewise.layers.plain.layer import Layer


@dataclass(frozen=True, eq=False)
class SparseFeatures:
    """Node features x [N, C] of which only the non-zeros are stored, as a graph: document i listens to word c.

    Symbols     graph = N receivers (documents) and C senders (words), one edge per non-zero; weight [E] = the non-zeros

    Example
        >>> words = Graph.from_csr(torch.tensor([0, 2, 2]), torch.tensor([0, 2]), num_senders=3)
        >>> SparseFeatures(words, torch.tensor([0.5, 0.5])).to_dense()
        tensor([[0.5000, 0.0000, 0.5000],
                [0.0000, 0.0000, 0.0000]])
    """

    graph: Graph
    weight: Tensor

    def __post_init__(self) -> None:
        if not isinstance(self.weight, Tensor) or self.weight.shape != (self.graph.num_edges,):
            expected = f"[{self.graph.num_edges}], one number per edge"
            raise ShapeError(f"the weight of sparse features is {shown(self.weight)}; expected {expected}")

    @classmethod
    def from_scipy(cls, matrix: Any, dtype: torch.dtype = torch.float32) -> SparseFeatures:
        """Read any scipy sparse matrix [N, C]; duplicate entries are added up."""
        from scipy.sparse import csr_matrix

        try:
            rows = csr_matrix(matrix, copy=True)
        except (TypeError, ValueError) as error:
            raise ShapeError(f"sparse features are made of a matrix [N, C], not of {shown(matrix)}: {error}") from None
        if rows.dtype.kind == "c":
            raise ShapeError("sparse features are complex, but must be real numbers")
        rows.sum_duplicates()
        offsets, words = (torch.from_numpy(part.astype("int64")) for part in (rows.indptr, rows.indices))
        graph = Graph.from_csr(offsets, words, num_senders=rows.shape[1])
        return cls(graph, torch.from_numpy(rows.data).to(dtype))

    @property
    def shape(self) -> torch.Size:
        return torch.Size((self.graph.num_receivers, self.graph.num_senders))

    @property
    def dtype(self) -> torch.dtype:
        return self.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.weight.device

    def dropout(self, p: float, training: bool) -> SparseFeatures:
        """Drop each non-zero with probability p: the zeros would stay zeros, so this is dropout of the dense x."""
        if p == 0.0 or not training:
            return self
        return SparseFeatures(self.graph, dropout_dense(self.weight, p, training))

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> SparseFeatures:
        weight = self.weight.to(device=device, dtype=dtype)
        return SparseFeatures(self.graph if device is None else self.graph.to(device), weight)

    def __getitem__(self, rows: Tensor | slice | Sequence[int]) -> SparseFeatures:
        """The features of some nodes, by their numbers [M], a bool mask [N] or a slice; GraphError for other nodes."""
        count = self.graph.num_receivers
        if isinstance(rows, slice):
            rows = torch.arange(count, device=self.device)[rows]
        elif isinstance(rows, Tensor) and rows.dtype == torch.bool:
            rows = node_list(rows, count)
        else:
            rows = index_tensor(rows, "rows", axes=1)
            in_range(rows, count, "entry", "row", f"there are features of {count} nodes")
        starts, stops = self.graph.offsets[rows], self.graph.offsets[rows + 1]
        entries = forms.senders_of(starts[:, None], stops[:, None])
        shape = len(rows), self.graph.num_senders, 0, self.device
        words = Graph._of(*shape, offsets=forms.offsets_of(stops - starts), senders=self.graph.senders[entries])
        return SparseFeatures(words, self.weight[entries])

    def to_dense(self) -> Tensor:
        """The features as an ordinary tensor [N, C]."""
        dense = self.weight.new_zeros(self.shape)
        return dense.index_put((self.graph.receivers, self.graph.senders), self.weight, accumulate=True)


def check_one_kind(x: object) -> None:
    """Raise ShapeError for a pair (x_receivers, x_senders), which few layers read, and for what is no tensor."""
    if isinstance(x, (Tensor, SparseFeatures)):
        return
    if isinstance(x, tuple):
        raise ShapeError(
            "this layer reads nodes of one kind, x [*, N, C], and not a pair (x_receivers, x_senders): "
            "convolutions of graphs, such as GAT and SAGEMean, and MultiHeadAttention do"
        )
    if isinstance(x, Graph):
        raise ShapeError("the features are a Graph: the graph comes first, then the tensors")
    made = ": torch.as_tensor(x) makes one" if isinstance(x, list) or hasattr(x, "__array__") else ""
    raise ShapeError(f"features must be a tensor [*, N, C], not {shown(x)}{made}")


def check_dense(x: object) -> None:
    """Raise ShapeError for what is no tensor of features, sparse ones included."""
    check_one_kind(x)
    if isinstance(x, SparseFeatures) or (isinstance(x, Tensor) and x.layout != torch.strided):
        raise ShapeError("this layer reads dense features: x.to_dense() makes them of sparse ones")


@dataclass(frozen=True)
class Wide:
    """In an annotation: dense features of real numbers, as wide as the layer's attribute of that name says."""

    width: str = ""

    def __call__(self, layer: Any, graph: Any, name: str, x: Any) -> None:
        check_dense(x)
        check_real(x)
        if graph is not None:
            same_device(name, x, graph.device)
        if graph is not None and x.ndim < 2:
            raise ShapeError(f"{name} is {[*x.shape]}, but must be [*, N, C], a row for each node")
        if self.width and x.shape[-1:] != (getattr(layer, self.width),):
            raise ShapeError(f"{name} is {[*x.shape]}; this layer reads [..., {getattr(layer, self.width)}]")


Dense = Annotated[Tensor, Wide()]


def check_features(x: Tensor | SparseFeatures, weight: Tensor) -> None:
    """Raise ShapeError unless x is of the width, device and dtype of the weights [..., C] that read it."""
    check_width(x, weight)
    if isinstance(x, Tensor):
        check_alike(x, weight)


def check_width(x: Tensor | SparseFeatures, weight: Tensor, reader: str = "this linear map") -> None:
    """Raise ShapeError for features of another width than the weights [..., C]."""
    check_one_kind(x)
    if x.shape[-1:] != weight.shape[-1:]:
        raise ShapeError(f"features are {list(x.shape)}; {reader} reads [..., {weight.shape[-1]}]")


def check_real(x: Tensor | SparseFeatures) -> None:
    """Raise ShapeError for whole numbers, to which weights between 0 and 1 would be rounded, and for complex ones."""
    if not x.dtype.is_floating_point:
        made = "x.real, x.imag or x.abs()" if x.dtype.is_complex else "x.float()"
        kind = str(x.dtype).removeprefix("torch.")
        raise ShapeError(f"features are {kind}, but must be real numbers: hand over {made}")


def check_device(x: Tensor, weight: Tensor) -> None:
    """Raise ShapeError for features on another device than the weights, which may be on meta until they are fetched."""
    if x.device != weight.device and not weight.is_meta:
        raise ShapeError(f"features are on {x.device} and this layer's weights on {weight.device}: move one of them")


def check_alike(x: Tensor, weight: Tensor) -> None:
    """Raise ShapeError for features of another device or dtype than the weights; autocast may change the latter."""
    check_device(x, weight)
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        given, own = (str(t.dtype).removeprefix("torch.") for t in (x, weight))
        what = f"features are {given} and this layer's weights {own}"
        raise ShapeError(f"{what}: hand over x.to(torch.{own}), or change the layer by layer.to(x.dtype)")


class Linear(Layer, nn.Linear):
    """The linear map, which also reads sparse features without ever building the dense ones.

    Equation    y_i = W x_i + b, over the words of a document: y_i = Σ_c x_ic W_c + b.
    Symbols     `weight` = W [C', C] (W_c is its column c), `bias` = b.
    Shapes      x [*, N, C] -> [*, N, C']; `SparseFeatures` [N, C] -> [N, C'].
    Cost        time N·C·C' dense and E·C' sparse, for E non-zeros.

    Example
        >>> words = SparseFeatures.from_scipy(__import__("scipy").sparse.eye(3))
        >>> linear = Linear(3, 2, bias=False)
        >>> torch.equal(linear(words), linear.weight.T)
        True
    """

    def __init__(
        self, in_features: Natural, out_features: Natural, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)

    def forward(self, x: Tensor | SparseFeatures) -> Tensor:
        check_features(x, self.weight)
        if isinstance(x, Tensor):
            return functional.linear(x, self.weight, self.bias)
        y = aggregate(x.graph, self.weight.T, x.weight)
        return y if self.bias is None else y + self.bias

    def parts(self, x: Tensor | SparseFeatures, count: int) -> tuple[Tensor, ...]:
        """Equal parts of the result, each a tensor of its own, whose rows lie closer together than in the whole."""
        if isinstance(x, SparseFeatures):
            return self(x).chunk(count, -1)
        check_features(x, self.weight)
        biases = [None] * count if self.bias is None else self.bias.chunk(count)
        return tuple(functional.linear(x, W, b) for W, b in zip(self.weight.chunk(count), biases, strict=True))


def dropout(x: Tensor | SparseFeatures, p: float, training: bool) -> Tensor | SparseFeatures:
    """Dropout of dense or of sparse features: each entry becomes 0 with probability p, the rest grow by 1/(1 - p)."""
    if isinstance(x, Tensor):
        return dropout_dense(x, p, training)
    check_one_kind(x)
    return x.dropout(p, training)


def root(square: Tensor, least: float) -> Tensor:
    """The square root; 0, with no gradient, of what is no more than rounding."""
    return torch.where(square > least, square.clamp(min=least).sqrt(), 0)


def unit(x: Tensor) -> Tensor:
    """Vectors along the last axis divided by their length; 0 stays 0.

    Equation    y = x / ‖x‖
    Shapes      x [*, C] -> [*, C]
    Edge cases  0 has the gradient of y = x; no vector is divided by less than 1e-12. Half precisions go through
                float32, since in float16 that is 0 itself

    >>> unit(torch.tensor([[0.0, -5.0], [0.0, 0.0]])).tolist()
    [[0.0, -1.0], [0.0, 0.0]]
    """
    wide = widened(x)
    length = wide.norm(dim=-1, keepdim=True)
    return (wide / torch.where(length > 0, length.clamp(min=1e-12), 1)).to(x.dtype)


class Embedding(nn.Embedding):
    """PyTorch's, which names a number without a row where it lies on the CPU: cards read their numbers too late.

    Equation    y_i = E_(x_i)
    Symbols     weight = E [rows, width]; of = what is numbered, as an error names it
    Shapes      x [*] int64 -> [*, width]
    Errors      ShapeError for no tensor, numbers that are no integers, or below 0, or above the last row
    Cost        that of PyTorch's: numbers are looked at where it fails

    Example
        >>> Embedding(3, 2)(torch.tensor([0, 3]))
        Traceback (most recent call last):
        edgewise.errors.ShapeError: tokens must be from 0 to 2, but number 1 of them is 3
    """

    def __init__(self, rows: int, width: int, of: str = "tokens") -> None:
        super().__init__(rows, width)
        self.of = of

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return super().forward(x)
        try:
            return super().forward(x)
        except TypeError:
            raise ShapeError(f"{self.of} must be a tensor of int64, not {shown(x)}") from None
        except (IndexError, RuntimeError):
            if is_real(x) and x.device.type == "cpu":
                self._check(x)
            raise

    def _check(self, x: Tensor) -> None:
        if x.dtype not in (torch.int32, torch.int64):
            raise ShapeError(f"{self.of} must be int64, not {str(x.dtype).removeprefix('torch.')}") from None
        wrong = ((x < 0) | (x >= self.num_embeddings)).flatten()
        if bool(wrong.any()):
            first = int(wrong.int().argmax())
            what = f"number {first} of them is {int(x.flatten()[first])}"
            raise ShapeError(f"{self.of} must be from 0 to {self.num_embeddings - 1}, but {what}") from None
