"""Dropout by counter: the right share is dropped, masks do not correlate, and gradients see the same mask."""

import pytest
import torch

from edgewise.errors import ShapeError
from edgewise.kernels import dropout
from edgewise.kernels.operator.dropout import drop, dropped
from edgewise.native import library

pytestmark = pytest.mark.skipif(library is None, reason="built without the C++ kernels")


@pytest.mark.parametrize("probability", [0.01, 0.1, 0.5, 0.9, 0.999])
def test_the_expected_share_of_weights_is_dropped(probability):
    mask = drop(torch.ones(2, 100_000, 5), probability, torch.randint(2**62, (1,)))
    error = float((mask == 0).double().mean()) - probability
    assert abs(error) < 4 * (probability * (1 - probability) / mask.numel()) ** 0.5


@pytest.mark.parametrize("seed", [7, 2**62 - 5])
def test_operations_of_pytorch_drop_the_same(seed):
    x, seed = torch.randn(3, 700), torch.tensor([seed])
    torch.testing.assert_close(dropped(x, 0.3, seed), drop(x, 0.3, seed))


def correlation(x, y):
    x, y = x.flatten() - x.mean(), y.flatten() - y.mean()
    return float((x * y).mean() / (x.square().mean() * y.square().mean()).sqrt())


def test_masks_of_heads_edges_batches_and_seeds_do_not_correlate():
    seeds = [torch.tensor([n]) for n in (0, 1, 2**31, 2**32, 2**61)]
    masks = [drop(torch.ones(2, 50_000, 4), 0.5, seed).double() for seed in seeds]
    limit = 5 / (2 * 50_000 * 3) ** 0.5
    first = masks[0]
    for step in (1, 2, 3):
        assert abs(correlation(first[:, :, step:], first[:, :, :-step])) < limit, "heads"
    for step in (1, 2, 3, 4, 8, 64, 1024):
        assert abs(correlation(first[:, step:], first[:, :-step])) < limit, "edges"
    assert abs(correlation(first[1], first[0])) < 2 * limit, "batches"
    for n, mask in enumerate(masks):
        for other in masks[:n]:
            assert abs(correlation(mask, other)) < limit, "seeds"


def test_what_is_kept_grows_and_its_gradient_too():
    x = torch.randn(33_000, 3, requires_grad=True)
    y = dropout(x, 0.4)
    kept = y != 0
    assert torch.equal(y, torch.where(kept, x * torch.tensor(1 / 0.6), 0))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, kept * torch.tensor(1 / 0.6))


def test_gradients_of_gradients():
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    seed = torch.tensor([7])
    assert torch.autograd.gradcheck(lambda x: drop(x, 0.5, seed), x)
    assert torch.autograd.gradgradcheck(lambda x: drop(x, 0.5, seed), x)
    torch.library.opcheck(torch.ops.edgewise.drop.default, (x, 0.5, seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_bits_do_not_depend_on_threads_dtype_or_layout(dtype):
    x, seed = torch.randn(40_000, 5).to(dtype), torch.tensor([3])
    threads = torch.get_num_threads()
    try:
        found = []
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            found.append(drop(x, 0.3, seed))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    assert torch.equal(found[0] == 0, drop(torch.ones(40_000, 5), 0.3, seed) == 0)
    assert torch.equal(drop(x.T.contiguous().T, 0.3, seed), found[0])


def test_a_seed_of_pytorch_repeats_it():
    x = torch.ones(1000)
    torch.manual_seed(5)
    first = dropout(x, 0.5)
    assert not torch.equal(first, dropout(x, 0.5))
    torch.manual_seed(5)
    assert torch.equal(first, dropout(x, 0.5))


def test_the_ends_of_the_range():
    x = torch.full((4,), torch.inf)
    assert dropout(x, 0.0) is x
    assert dropout(torch.ones(4), 1.0).tolist() == [0.0] * 4
    for p in (-0.1, 1.1):
        for training in (True, False):
            with pytest.raises(ShapeError, match="dropout is a probability"):
                dropout(x, p, training)
    assert drop(torch.empty(0, 3), 0.5, torch.tensor([1])).shape == (0, 3)


@pytest.mark.compiled
def test_compiled_it_drops_too():
    y = torch.compile(lambda x: dropout(x, 0.5), fullgraph=True, backend="aot_eager")(torch.ones(10_000))
    assert 0.45 < (y == 0).double().mean() < 0.55
