"""Inner products of pairs of rows, without the rows: values, gradients, and all that may come between."""

import gc
from collections.abc import Callable
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor

from edgewise.interop import convert
from edgewise.interop.later import pairs, tensor
from edgewise.interop.later.pairs import Products, Rows, Scales, Table, table
from edgewise.interop.later.tensor import Later, ordinary

pyg = pytest.importorskip("torch_geometric.nn")

NODES, OTHERS, PAIRS = 30, 20, 200


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tensor, pairs):
        monkeypatch.setattr(module, "LARGE", 0)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is computed as if nothing came later."""
    seen: list[str] = []
    own = tensor._plainly

    def noted(func: Any, args: Any, kwargs: Any) -> Any:
        seen.append(str(func))
        return own(func, args, kwargs)

    monkeypatch.setattr(tensor, "_plainly", noted)
    return seen


def inputs(width: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1)
    x, z = (torch.randn(n, width, generator=draw, dtype=dtype).requires_grad_() for n in (NODES, OTHERS))
    return x, z, torch.randint(NODES, (PAIRS,), generator=draw), torch.randint(OTHERS, (PAIRS,), generator=draw)


@pytest.mark.parametrize("width", [1, 5, 8, 16, 37])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)], ids=str)
def test_dots_and_gradients(
    width: int, keepdim: bool, dtype: torch.dtype, tolerance: float, computed: list[str]
) -> None:
    x, z, i, j = inputs(width, dtype)
    found = []
    for like in (lambda t: table(t * 1), lambda t: t):
        a, b = like(x), like(z)
        y = (a[i] * b[j]).sum(-1, keepdim=keepdim) + (a[j] * a[i]).sum(dim=1, keepdim=keepdim)
        found.append((y, *torch.autograd.grad(y.pow(2).sum(), [x, z])))
    for ours, exact in zip(*found, strict=True):
        assert not isinstance(ours, Later)
        torch.testing.assert_close(ours, exact, atol=tolerance, rtol=10 * tolerance)
    assert set(computed) == {"aten.new_zeros.default"}


def test_a_table_with_itself_and_with_another_at_the_same_index() -> None:
    x, z, i, _ = inputs(6)
    i = i.clamp(max=OTHERS - 1)
    found = []
    for like in (lambda t: table(t * 1), lambda t: t):
        a, b = like(x), like(z)
        y = (a[i] * a[i]).sum(-1) + 3 * (a[i] * b[i]).sum(-1)
        found.append(torch.autograd.grad(y.pow(2).sum(), [x, z]))
    for ours, exact in zip(*found, strict=True):
        torch.testing.assert_close(ours, exact)


@pytest.mark.parametrize("swapped", [False, True])
def test_rows_that_were_paired_with_others_before(swapped: bool) -> None:
    x, _, i, j = inputs(6)
    j, weight = j.clamp(max=NODES - 1), torch.arange(PAIRS, dtype=x.dtype)
    found = []
    for like in (lambda t: table(t * 1), lambda t: t):
        a = like(x)
        rows, again = a[i], a[i]
        other = (rows, again) if swapped else (again, rows)
        loss = (rows * a[j]).sum(-1).sum() + ((other[0] * other[1]).sum(-1) * weight).sum()
        found.append(torch.autograd.grad(loss, [x])[0])
    torch.testing.assert_close(*found)


def test_first_and_second_derivatives() -> None:
    x, z, i, j = inputs(3)

    def dots(x: Tensor, z: Tensor) -> Tensor:
        return (table(x * 1)[i[:9]] * table(z * 1)[j[:9]]).sum(-1).pow(2)

    assert torch.autograd.gradcheck(dots, (x, z)) and torch.autograd.gradgradcheck(dots, (x, z))


def written(a: Tensor, b: Tensor, i: Tensor, j: Tensor) -> Tensor:
    rows = a[i]
    a.mul_(2.0)
    return rows.sum(1) + (a[i] * b[j]).sum(1)


def index_written(a: Tensor, b: Tensor, i: Tensor, j: Tensor) -> Tensor:
    i = i.clone()
    with torch.no_grad():
        products = a[i] * b[j]
        i.zero_()
        return products.sum(1) + a[0].sum()


def view_of_the_table_written(a: Tensor, b: Tensor, i: Tensor, j: Tensor) -> Tensor:
    with torch.no_grad():
        part = b[:3]
        products = a[i] * b[j]
        part.fill_(9.0)
        return products.sum(1) + (a[i] * b[j]).sum(1)


def rows_written(a: Tensor, b: Tensor, i: Tensor, j: Tensor) -> Tensor:
    with torch.no_grad():
        rows = a[i]
        products = rows * b[j]
        rows.add_(1.0)
        return products.sum(1) + (rows * b[j]).sum(1)


OTHER_USES: list[Callable[..., Tensor]] = [
    lambda a, b, i, j: (a[i] - b[j]).pow(2).sum(1),
    lambda a, b, i, j: torch.cat([a[i], b[j]], 1),
    lambda a, b, i, j: a[i] * b[j],
    lambda a, b, i, j: (a[i] * b[j]).sum(),
    lambda a, b, i, j: (a[i] * b[j]).sum(0),
    lambda a, b, i, j: (a[i] * b[j]).sum(-1, dtype=torch.float32),
    lambda a, b, i, j: (a[i] * b[j]) @ torch.ones(4, 2, dtype=a.dtype),
    lambda a, b, i, j: (a[i] * b[j].abs()).sum(1),
    lambda a, b, i, j: (a[i] * b[j][:, :1]).sum(1),
    lambda a, b, i, j: (a[i] * torch.ones(1, 4, dtype=a.dtype)).sum(1),
    lambda a, b, i, j: (a[i - NODES] * b[j]).sum(1),
    lambda a, b, i, j: (a[i.view(2, -1)] * b[j.view(2, -1)]).sum(-1),
    lambda a, b, i, j: (a[i][:5] * b[j][:5]).sum(1),
    written,
    index_written,
    view_of_the_table_written,
    rows_written,
]


@pytest.mark.parametrize("use", OTHER_USES, ids=range(len(OTHER_USES)))
def test_other_uses(use: Callable[..., Tensor]) -> None:
    x, z, i, j = inputs(4)
    found = []
    for like in (lambda t: table(t * 1), lambda t: t * 1):
        y = ordinary(use(like(x), like(z), i, j))
        grads = torch.autograd.grad(y.pow(2).sum(), [x, z], allow_unused=True) if y.requires_grad else (None, None)
        found.append((y, *grads))
    for ours, exact in zip(*found, strict=True):
        assert (ours is None) == (exact is None)
        if ours is not None:
            torch.testing.assert_close(ordinary(ours), exact)


@pytest.mark.parametrize("index", [NODES, -NODES - 1])
def test_a_row_that_is_not_there(index: int) -> None:
    with pytest.raises(IndexError, match="out of bounds"):
        table(inputs(4)[0] * 1)[torch.tensor([0, index])]


def test_the_same_bits_on_any_number_of_threads() -> None:
    x, z, i, j = inputs(37, torch.float32)
    before, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            y = (table(x * 1)[i] * table(z * 1)[j]).sum(-1)
            found.append((y, *torch.autograd.grad(y.pow(2).sum(), [x, z])))
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], others, strict=True))


def test_nothing_stays_in_memory() -> None:
    x, z, i, j = inputs(4)
    gc.collect()
    gc.disable()
    try:
        a, b = table(x * 1), table(z * 1)
        rows = a[i], b[j]
        products = rows[0] * rows[1]
        assert [type(t) for t in (a, *rows, products)] == [Table, Rows, Rows, Products]
        alive = [ref(t.numbers) for t in (a, b, *rows, products)]  # type: ignore[attr-defined]
        products.sum(-1).sum().backward()
        del a, b, rows, products
        assert not [r for r in alive if r() is not None]
    finally:
        gc.enable()


def test_the_gradient_of_products_comes_later() -> None:
    x, _, i, j = inputs(4)
    seen: list[type] = []
    rows = table(x * 1)[i]
    rows.register_hook(lambda g: seen.append(type(g)))
    (rows * table(x * 1)[j]).sum(-1).sum().backward()
    assert seen == [Scales]


def test_a_converted_encoder_and_its_decoder(computed: list[str]) -> None:
    torch.manual_seed(0)
    x, edges, (i, j) = torch.randn(NODES, 8), torch.randint(NODES, (2, 90)), torch.randint(NODES, (2, PAIRS))
    theirs = pyg.GCNConv(8, 6)
    ours, found = convert(pyg.GCNConv(8, 6)), []
    ours.load_state_dict(theirs.state_dict())
    for layer in (ours, theirs):
        z = layer(x, edges)
        assert (type(z) is Table) == (layer is ours)
        y = (z[i] * z[j]).sum(dim=-1)
        found.append((y, *torch.autograd.grad(y.sigmoid().sum(), list(layer.parameters()))))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    assert set(computed) == {"aten.new_zeros.default"}
    layer = ours.eval()
    with torch.no_grad():
        assert type(layer(x, edges)) is Tensor
