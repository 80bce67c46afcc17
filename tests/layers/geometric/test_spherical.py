import re
import subprocess
import sys

import pytest
import torch

from edgewise import EdgewiseError, Graph, ShapeError, collect
from edgewise.errors import installing
from edgewise.layers import Coupling, Gate, TypedLinear, by_type, harmonics
from edgewise.layers.geometric import spherical
from edgewise.testing import assert_equivariant
from layers.parity import each, messy_graph
from layers.rigid import rotation, wigner

o3 = spherical._o3()


def directions(*shape):
    x = torch.randn(*shape, 3, dtype=torch.float64)
    return x / x.norm(dim=-1, keepdim=True)


def test_harmonics_are_those_written_out():
    x, y, z = directions(9).unbind(-1)
    second = [3**0.5 * x * z, 3**0.5 * x * y, y**2 - (x**2 + z**2) / 2, 3**0.5 * y * z, 3**0.5 / 2 * (z**2 - x**2)]
    expected = [torch.ones_like(x), *(3**0.5 * part for part in (x, y, z)), *(5**0.5 * part for part in second)]
    assert torch.allclose(harmonics(2, torch.stack([x, y, z], -1)), torch.stack(expected, -1), atol=1e-12)


@pytest.mark.parametrize("reflect", [False, True])
def test_harmonics_turn_by_wigner_matrices(reflect):
    R = rotation(3, reflect=reflect)
    assert_equivariant(
        lambda x: harmonics(6, x), lambda x: (x @ R.T,), lambda y: y @ wigner(R, 6).T, directions(20), tolerance=1e-10
    )


@pytest.mark.parametrize(("types", "chiral"), each([0, 1, 2, 3], [False, True, True]))
def test_paths_are_those_that_the_triangle_and_the_mirror_allow(types, chiral):
    coupling = Coupling(types, chiral=chiral)
    for out in range(types + 1):
        found = coupling.into(out)
        allowed = {
            (k, J)
            for k in range(types + 1)
            for J in range(9)
            if o3.Irrep(out, 1 if chiral else (-1) ** out)
            in o3.Irrep(k, 1 if chiral else (-1) ** k) * o3.Irrep(J, 1 if chiral else (-1) ** J)
        }
        assert set(found) == allowed and len(found) == len(allowed) == coupling.paths[out]


@pytest.mark.parametrize("types", [1, 3])
def test_the_matrices_of_a_basis_turn_with_space(types):
    """Q(R x) = D^l(R) Q(x) D^k(R)ᵀ: the kernel constraint of the SE(3)-Transformer, (6)."""
    graph, coupling, x, R = messy_graph(), Coupling(types), torch.randn(7, 3).double(), rotation(1)
    D = wigner(R, types)
    one, turned = coupling.basis(graph, x), coupling.basis(graph, x @ R.T)
    for out, (Q, found) in enumerate(zip(one.matrices, turned.matrices, strict=True)):
        D_l = D[out**2 : (out + 1) ** 2, out**2 : (out + 1) ** 2]
        paths = Q.unflatten(-2, (2 * out + 1, -1))
        expected = torch.einsum("lm,empk,jk->elpj", D_l, paths, D).flatten(-3, -2)
        assert torch.allclose(found, expected, atol=1e-10)
    assert torch.allclose(one.distances, turned.distances, atol=1e-12)


def test_nodes_on_one_spot_have_no_direction_and_finite_gradients():
    pair = Graph.from_edge_index([[0, 1, 0], [1, 0, 0]], num_nodes=2)
    x = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    coupling = Coupling(1)
    basis = coupling.basis(pair, x)
    vectors = basis.matrices[1].unflatten(-2, (3, -1))
    for path, (_, J) in enumerate(coupling.into(1)):
        assert bool(vectors[:, :, path].abs().sum() > 0) == (J == 0)
    sum(Q.square().sum() for Q in basis.matrices).backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(
    ("kind", "reflect"), each([lambda: TypedLinear([4] * 4, [4] * 4, bias=True), lambda: Gate(4, 3)], [False, True])
)
def test_what_acts_on_a_node_alone_turns_with_it(kind, reflect):
    layer, D = kind().double(), wigner(rotation(2, reflect=reflect), 3)

    def function(h):
        return torch.cat(layer(by_type(h)), -2) if isinstance(layer, TypedLinear) else layer(h)

    h = torch.randn(5, 16, 4, dtype=torch.float64)
    assert_equivariant(function, lambda h: (D @ h,), lambda y: D @ y, h, tolerance=1e-10)


def test_what_does_not_fit_is_refused():
    graph, coupling = messy_graph(), Coupling(1)
    with pytest.raises(ShapeError, match="three dimensions"):
        coupling.basis(graph, torch.randn(7, 2))
    basis = coupling.basis(graph, torch.randn(7, 3))
    with pytest.raises(ShapeError, match="this basis was made for"):
        Coupling(2).basis(graph, basis)
    with pytest.raises(ShapeError, match=r"must be \[\*, 7, 4, C\]"):
        basis.couple(graph, torch.randn(7, 9, 2))
    with pytest.raises(ShapeError, match=r"must be \[\*, 7, 4, C\]"):
        collect(graph, basis.message(torch.randn(7, 9, 2), torch.ones(graph.num_edges, 12)))
    with pytest.raises(ShapeError, match="have 11 channels, but must have 12"):
        collect(graph, basis.message(torch.randn(7, 4, 2), torch.ones(graph.num_edges, 11)))
    with pytest.raises(ShapeError, match="are summed: reduce='mean'"):
        collect(graph, basis.message(torch.randn(7, 4, 2), torch.ones(graph.num_edges, 12)), "mean")


def test_without_e3nn_an_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "e3nn", None)
    spherical._harmonics.__wrapped__.cache_clear()
    with pytest.raises(EdgewiseError, match=re.escape(installing("geometry"))):
        harmonics(1, torch.randn(3))


@pytest.mark.processes
def test_e3nn_is_imported_only_when_asked_for():
    code = "import sys, edgewise.models; print('e3nn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
