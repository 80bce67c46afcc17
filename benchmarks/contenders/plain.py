"""An epoch on Cora in plain PyTorch: sparse features, a CSR product for GCN, gather and index_add for GAT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.contenders import cora
from benchmarks.inputs import Epoch, Inputs


def refuses(inputs: Inputs) -> str | None:
    """Takes epochs."""
    return None if isinstance(inputs, Epoch) else "takes epochs"


def prepare(inputs: Inputs) -> Callable[[], Any]:
    """The paper's model, written out."""
    assert isinstance(inputs, Epoch)
    data = cora.load()
    x = data.x.to_dense().to_sparse_coo().coalesce()
    model = (PlainGCN if inputs.layer == "gcn" else PlainGAT)(data, x)
    return cora.epoch(data, inputs.layer, model, model)


class SparseMap(torch.autograd.Function):
    """X W for a sparse X: the gradient to W alone is Xᵀ G."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, transposed: Tensor, weight: Tensor) -> Tensor:
        """[N, F] and [F, C] -> [N, C]."""
        ctx.transposed = transposed
        return x @ weight

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[None, None, Tensor]:
        """Gradient to the weight."""
        return None, None, ctx.transposed @ grad[0]


def _with_self_loops(data: cora.Cora) -> tuple[Tensor, Tensor]:
    nodes = torch.arange(data.graph.num_receivers)
    i, j = torch.cat([data.graph.receivers, nodes]), torch.cat([data.graph.senders, nodes])
    order = torch.argsort(i, stable=True)
    return i[order], j[order]


class _Features(nn.Module):
    """Dropout on the entries that are there, then a linear map."""

    def __init__(self, x: Tensor, outputs: int, dropout: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(x.shape[1], outputs)))
        self.x, self.dropout = x, dropout
        rows, columns = x.indices()
        self.values = x.values()
        self.offsets = functional.pad(torch.bincount(rows, minlength=x.shape[0]).cumsum(0), (1, 0))
        self.columns = columns
        self.order = torch.argsort(columns, stable=True)
        self.column_offsets = functional.pad(torch.bincount(columns, minlength=x.shape[1]).cumsum(0), (1, 0))
        self.rows = rows[self.order]

    def forward(self) -> Tensor:
        values = functional.dropout(self.values, self.dropout, self.training)
        shape = self.x.shape
        x = torch.sparse_csr_tensor(self.offsets, self.columns, values, shape)
        transposed = torch.sparse_csr_tensor(self.column_offsets, self.rows, values[self.order], shape[::-1])
        y: Tensor = SparseMap.apply(x, transposed, self.weight)  # type: ignore[no-untyped-call]
        return y


class PlainGCN(nn.Module):
    """Two layers of D̃^−½ Ã D̃^−½ H W, width 16; the matrix is symmetric and serves its own backward pass."""

    def __init__(self, data: cora.Cora, x: Tensor) -> None:
        super().__init__()
        i, j = _with_self_loops(data)
        nodes = data.graph.num_receivers
        degree = torch.bincount(i, minlength=nodes)
        weight = (degree[i] * degree[j]).float().rsqrt()
        offsets = functional.pad(degree.cumsum(0), (1, 0))
        self.matrix = torch.sparse_csr_tensor(offsets, j, weight, (nodes, nodes))
        self.features = _Features(x, 16, 0.5)
        self.bias = nn.Parameter(torch.zeros(16))
        self.second = nn.Linear(16, data.signature.outputs)
        nn.init.xavier_uniform_(self.second.weight)

    def forward(self) -> Tensor:
        h = functional.relu(self._sum(self.features()) + self.bias)
        h = functional.dropout(h, 0.5, self.training)
        return self._sum(h @ self.second.weight.T) + self.second.bias

    def _sum(self, h: Tensor) -> Tensor:
        y: Tensor = SparseMap.apply(self.matrix, self.matrix, h)  # type: ignore[no-untyped-call]
        return y


class PlainGAT(nn.Module):
    """Eight heads of 8, then one: scores by halves, a softmax per receiver, index_add."""

    def __init__(self, data: cora.Cora, x: Tensor) -> None:
        super().__init__()
        self.i, self.j = _with_self_loops(data)
        self.nodes = data.graph.num_receivers
        self.features = _Features(x, 64, 0.6)
        self.second = nn.Parameter(nn.init.xavier_uniform_(torch.empty(64, data.signature.outputs)))
        self.halves = nn.ParameterList(nn.init.xavier_uniform_(torch.empty(2, 8, 8)) for _ in range(1))
        self.halves.append(nn.init.xavier_uniform_(torch.empty(2, 1, data.signature.outputs)))
        self.biases = nn.ParameterList([torch.zeros(64), torch.zeros(data.signature.outputs)])

    def forward(self) -> Tensor:
        h = functional.elu(self._attend(self.features().view(-1, 8, 8), self.halves[0]) + self.biases[0])
        h = functional.dropout(h, 0.6, self.training) @ self.second
        return self._attend(h.unsqueeze(1), self.halves[1]) + self.biases[1]

    def _attend(self, h: Tensor, a: Tensor) -> Tensor:
        q, k = (h * a[0]).sum(-1), (h * a[1]).sum(-1)
        s = functional.leaky_relu(q.index_select(0, self.i) + k.index_select(0, self.j), 0.2)
        w = (s - s.detach().max()).exp()  # one shift for all: scores of one layer differ by far less than 80
        total = w.new_zeros(self.nodes, w.shape[1]).index_add(0, self.i, w)
        p = functional.dropout(w / total.index_select(0, self.i), 0.6, self.training)
        y = h.new_zeros(h.shape).index_add(0, self.i, p.unsqueeze(-1) * h.index_select(0, self.j))
        return y.flatten(1)
