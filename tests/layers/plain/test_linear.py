"""Linear maps of sparse features give the same numbers as of dense ones; what has no row is named."""

import numpy as np
import pytest
import torch
from scipy.sparse import csc_matrix, csr_matrix
from torch import nn
from torch.nn import functional

from edgewise import Graph, causal
from edgewise.errors import GraphError, ShapeError
from edgewise.layers import AngularHash, LSHAttention, SAGEMean
from edgewise.layers.plain.linear import Embedding, Linear, SparseFeatures, dropout, unit
from edgewise.models import GNN, Features, GNNSettings

DENSE = torch.tensor([[0.0, 2.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 4.0, 0.0]], dtype=torch.float64)


@pytest.fixture
def sparse() -> SparseFeatures:
    return SparseFeatures.from_scipy(csr_matrix(DENSE.numpy()), dtype=torch.float64)


def test_from_scipy_keeps_every_value(sparse: SparseFeatures) -> None:
    assert torch.equal(sparse.to_dense(), DENSE)
    assert sparse.shape == DENSE.shape
    assert (sparse.dtype, sparse.device) == (DENSE.dtype, DENSE.device)


@pytest.mark.parametrize("kind", [csr_matrix, csc_matrix])
def test_from_scipy_reads_any_order_and_adds_duplicates_up(kind: type) -> None:
    entries = ([1.0, 2.0, 5.0, 7.0], ([1, 0, 1, 1], [2, 1, 0, 2]))
    matrix = kind(entries, shape=(2, 3))
    if kind is csr_matrix:
        matrix = csr_matrix((np.array([2.0, 1.0, 5.0, 7.0]), [1, 2, 0, 2], [0, 1, 4]), shape=(2, 3))
    features = SparseFeatures.from_scipy(matrix)
    assert features.to_dense().tolist() == [[0, 2, 0], [5, 0, 8]]
    assert features.graph.num_edges == 3


def test_from_scipy_leaves_the_matrix_as_it_was() -> None:
    matrix = csr_matrix((np.array([1.0, 7.0]), [2, 2], [0, 2]), shape=(1, 3))
    SparseFeatures.from_scipy(matrix)
    assert matrix.nnz == 2


@pytest.mark.parametrize("bias", [True, False])
def test_linear_agrees_with_dense_forward_and_gradient(sparse: SparseFeatures, bias: bool) -> None:
    linear = Linear(4, 5, bias=bias, dtype=torch.float64)
    chosen = torch.randn(3, 5, dtype=torch.float64)
    gradients = []
    for x in (DENSE, sparse):
        linear.zero_grad()
        (linear(x) * chosen).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in linear.parameters()])
    torch.testing.assert_close(linear(sparse), linear(DENSE), rtol=0, atol=1e-12)
    for dense_gradient, sparse_gradient in zip(*gradients, strict=True):
        torch.testing.assert_close(sparse_gradient, dense_gradient, rtol=0, atol=1e-12)


def test_linear_reaches_the_words_of_a_learned_bag(sparse: SparseFeatures) -> None:
    weight = sparse.weight.clone().requires_grad_()
    linear = Linear(4, 2, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda w: linear(SparseFeatures(sparse.graph, w)), (weight,))


def test_one_number_per_word_is_required(sparse: SparseFeatures) -> None:
    with pytest.raises(ShapeError, match=r"\[3\]; expected \[4\]"):
        SparseFeatures(sparse.graph, torch.ones(3))


def test_dropout_drops_the_same_share_and_keeps_the_mean() -> None:
    words = SparseFeatures.from_scipy(csr_matrix(np.ones((100, 100))))
    for x in (words, torch.ones(10_000)):
        dropped = dropout(x, 0.2, training=True)
        values = dropped.weight if isinstance(dropped, SparseFeatures) else dropped
        assert values.unique().tolist() == [0.0, 1.25]
        assert values.mean().item() == pytest.approx(1, abs=0.03)


def test_to_changes_the_dtype_and_keeps_the_graph(sparse: SparseFeatures) -> None:
    single = sparse.to(dtype=torch.float32)
    assert single.dtype == torch.float32
    assert single.graph is sparse.graph
    assert sparse.to("cpu").graph.device == torch.device("cpu")


def test_rows_of_sparse_features_are_those_of_the_dense_ones():
    x = SparseFeatures.from_scipy(csr_matrix(np.arange(20.0).reshape(5, 4) % 3))
    mask = torch.tensor([True, False, False, True, False])
    for rows in (torch.tensor([3, 0, 3]), [4, 1], slice(1, 4), slice(None, None, 2), mask, ~mask, []):
        assert torch.equal(x[rows].to_dense(), x.to_dense()[rows])
    for rows in (torch.tensor([5]), [-1]):
        with pytest.raises(GraphError, match=r"entry 0: row .* is out of range: there are features of 5 nodes"):
            x[rows]
    with pytest.raises(GraphError, match=r"a mask of nodes must have shape \[5\], not \[6\]"):
        x[torch.ones(6, dtype=torch.bool)]


def test_it_is_pytorchs() -> None:
    torch.manual_seed(0)
    ours = Embedding(5, 3)
    torch.manual_seed(0)
    theirs, x = nn.Embedding(5, 3), torch.tensor([[0, 4], [2, 2]])
    assert torch.equal(ours(x), theirs(x))
    assert torch.equal(torch.compile(ours, backend="eager", fullgraph=True)(x), theirs(x))
    assert ours.state_dict().keys() == theirs.state_dict().keys()


def test_what_has_no_row_is_named() -> None:
    embed = Embedding(5, 3, of="atomic numbers")
    for x, message in (
        (torch.tensor([[0, 4], [2, 5]]), "atomic numbers must be from 0 to 4, but number 3 of them is 5"),
        (torch.tensor([1, -1]), "number 1 of them is -1"),
        (torch.tensor([1.0]), "atomic numbers must be int64, not float32"),
        ([1, 2], "atomic numbers must be a tensor of int64, not a list"),
        (None, "atomic numbers must be a tensor of int64, not a NoneType"),
    ):
        with pytest.raises(ShapeError, match=message):
            embed(x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_lengths_are_1_and_nothing_stays_nothing(dtype):
    x = torch.tensor([[3.0, -4.0], [0.0, 0.0], [60000.0, 60000.0], [1e-4, 0.0]]).to(dtype).requires_grad_()
    y = unit(x)
    assert y.dtype == dtype
    torch.testing.assert_close(y, functional.normalize(x.double(), dim=-1).to(dtype))
    (dx,) = torch.autograd.grad(y.sum(), x)
    assert dx.isfinite().all() and (dx[1] == 1).all()  # not 1e12: a node of zeros would outweigh all others


def test_nodes_of_zeros_stay_finite_in_float16():
    graph, zeros = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=3), torch.zeros(3, 2).half()
    assert (SAGEMean(2, 2, normalize=True).half()(graph, zeros) == 0).all()
    model = GNN(GNNSettings(layer="sage-mean", width=4, depth=2, norm="unit", dropout=0.0), Features(2, 2))
    assert model.half()(graph, zeros).isfinite().all()
    layer = LSHAttention(4, 2, AngularHash(2, buckets=2), size=2).half()
    assert layer(causal(3), torch.zeros(3, 4).half()).isfinite().all()
