"""Every layer of the table passes every check: a new line in LAYERS is tested here without another word."""

import contextlib
import inspect

import pytest
import torch
from scipy.sparse import csr_matrix

from edgewise import LAYERS
from edgewise.errors import EdgewiseError
from edgewise.layers import SparseFeatures
from edgewise.testing import PROPERTIES, check_layer, joined


@pytest.mark.parametrize("name", LAYERS)
def test_layer_conforms(name):
    layer, graph, inputs = LAYERS[name].example()
    assert type(layer) is LAYERS[name]
    assert graph.num_receivers <= 8  # or the checks take long
    check_layer(layer, graph, *inputs, skip=["compile"])


@pytest.mark.parametrize(
    "name", [name if name == "GCN" else pytest.param(name, marks=pytest.mark.compiled) for name in LAYERS]
)
def test_layer_compiles(name):
    layer, graph, inputs = LAYERS[name].example()
    check_layer(layer, graph, *inputs, skip=[other for other in PROPERTIES if other != "compile"])


@pytest.mark.parametrize("name", LAYERS)
def test_layer_has_several_gradients_at_once(name):
    layer, graph, inputs = LAYERS[name].example()
    layer.eval()
    leaves = [x.requires_grad_() for x in inputs if isinstance(x, torch.Tensor) and x.is_floating_point()]
    y = joined(layer(graph, *inputs))
    leaves += [p for p in layer.parameters() if p.requires_grad]
    dy = torch.randn(2, *y.shape)

    def gradients(dy, batched=False):
        return torch.autograd.grad(y, leaves, dy, retain_graph=True, allow_unused=True, is_grads_batched=batched)

    one_by_one = list(zip(*map(gradients, dy), strict=True))
    reached = [leaf for leaf, (first, *_) in zip(leaves, one_by_one, strict=True) if first is not None]
    mapped = iter(torch.func.vmap(lambda d: torch.autograd.grad(y, reached, d, retain_graph=True))(dy))
    for found, expected in zip(gradients(dy, True), one_by_one, strict=True):
        if found is not None:
            for several in (found, next(mapped)):
                torch.testing.assert_close(several, torch.stack(expected), rtol=1e-4, atol=1e-4)


SPARSE = {
    *(
        "GCN",
        "FastGCN",
        "GAT",
        "GATv2",
        "GIN",
        "GINE",
        "PNA",
        "GatedGCN",
        "ResidualGatedGCN",
        "MoNet",
        "EdgeConv",
        "DynamicEdgeConv",
        "ACM",
    ),
    *(
        "SAGEMean",
        "SAGEPool",
        "SAGELSTM",
        "SAGEUnion",
        "RGCN",
        "RGAT",
        "HGT",
        "PPGN",
        "I2GNN",
        "ChebNet",
        "SGC",
        "APPNP",
    ),
    *("ClusterAssignment", "ProjectionScore", "HopfieldLookup", "HopfieldPooling"),
}


@pytest.mark.parametrize("name", LAYERS)
def test_sparse_features_give_what_dense_ones_give_or_are_refused(name):
    layer, graph, (x, *others) = LAYERS[name].example()
    layer.double().eval()
    if x.ndim != 2:
        return
    x, others = x.double() * (x > -0.5), [other.double() for other in others]
    sparse = SparseFeatures.from_scipy(csr_matrix(x.numpy()), dtype=torch.float64)
    if name not in SPARSE:
        with contextlib.suppress(EdgewiseError):
            layer(graph, sparse, *others)  # a sentence of Edgewise's, or a result
        return
    results = []
    for given in (x, sparse):
        layer.skip = None  # of HGT, which has no skip connection from sparse features
        y = layer(graph, given, *others)
        results.append([y, *torch.autograd.grad((y * y.detach().cos()).sum(), list(layer.parameters()))])
    for dense, found in zip(*results, strict=True):
        torch.testing.assert_close(found, dense)


def test_a_layer_with_dropout_is_checked_with_some():
    takes = {name for name, layer in LAYERS.items() if "dropout" in inspect.signature(layer).parameters}
    without = {name for name in takes if not LAYERS[name].example()[0].dropout}
    assert len(takes) > 15 and without == set()
