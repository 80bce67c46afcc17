"""Attention by blocks computes what `reference` does, whatever the sizes and biases, forward and backward."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from edgewise import Additive, BackendRefusal, Dot, EdgeBias, Gaussian, SenderBias, attend, blocks, complete, window
from edgewise.kernels.backends.cuda import ragged
from edgewise.kernels.call import Attend
from edgewise.kernels.choose.planner import candidates
from edgewise.testing import check_kernel
from kernels.drawn import attention, pick, results, same

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BIASES = ("", "edge", "edge, shared by heads", "edge, batched", "sender")


def random_blocks(*sizes: int):
    """Blocks of those sizes, some with other senders than receivers, and of all kinds of empty ones."""
    senders = [pick((size, size, 1 + size // 2)) for size in sizes]
    return blocks([*sizes, 0, 3], senders=[*senders, 2, 0]).to(DEVICE)


def on_device(leaves):
    return {name: leaf.to(DEVICE) for name, leaf in leaves.items()}


@pytest.mark.parametrize("bias", BIASES)
def test_it_computes_what_the_equation_says(bias):
    sizes = {"": (17, 70, 1), "edge": (70, 33), "edge, batched": (3,)}.get(bias, (40, 9))
    graph = random_blocks(*sizes)
    kind = "dot scaled by head" if bias == "edge" else "dot"
    heads, groups = (2, 1) if bias == "sender" else (1, 1) if bias == "" else (2, 2)
    batch = (2,) if "batched" in bias else ()
    channels = (13, 32) if 70 in sizes else (8, 33, 64)
    leaves, call = attention(graph, kind, bias, heads, groups, pick(channels), pick((8, 17, 24)), batch)
    leaves = on_device(leaves)
    same(results(call, leaves, "ragged", torch.float32), results(call, leaves, "reference"), 1e-5)


def test_biases_of_all_kinds_add_up_and_gaussian_scores_are_dot_products():
    graph = blocks([4, 2]).to(DEVICE)
    q, k, v = torch.randn(3, 6, 1, 5, device=DEVICE)
    edge, sender = EdgeBias(torch.randn(20, 1, device=DEVICE)), SenderBias(torch.randn(6, 1, device=DEVICE))
    for score in (Dot() + edge + sender, Dot() + sender + sender, Gaussian(1.5)):
        found, expected = (attend(graph, q, k, v, score, backend=name) for name in ("ragged", "reference"))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_complete_graph_is_one_block_for_each_member_of_a_batch():
    leaves, call = attention(complete(5, 7).to(DEVICE), "dot", "edge, batched", 1, 1, 4, 4, (2, 2))
    leaves = on_device(leaves)
    same(results(call, leaves, "ragged", torch.float32), results(call, leaves, "reference"), 1e-5)


def test_members_of_a_batch_may_lie_beyond_32_bits():
    """Queries 2^31 numbers apart, of which only two rows of pages are ever touched."""
    graph = complete(4).to(DEVICE)
    q = torch.empty(2**31 + 64, dtype=torch.float16, device=DEVICE).as_strided((2, 4, 1, 16), (2**31, 16, 16, 1))
    q.copy_(torch.randn(2, 4, 1, 16))
    k, v = torch.randn(2, 2, 4, 1, 16, device=DEVICE).half()
    y = attend(graph, q, k, v, backend="ragged")
    torch.testing.assert_close(y, attend(graph, q.contiguous(), k, v, backend="reference"), rtol=1e-2, atol=1e-2)


def test_kernels_start_on_the_device_of_their_tensors(monkeypatch):
    entered = []
    monkeypatch.setattr(torch.cuda, "device_of", lambda x: entered.append(x) or nullcontext())
    q = torch.randn(4, 1, 16, device=DEVICE, requires_grad=True)
    attend(complete(4).to(DEVICE), q, q, q, backend="ragged").sum().backward()
    assert len(entered) >= 2, "forward and backward"


@pytest.mark.parametrize("shape", [([], None), ([0, 0], None), ([0], [3]), ([3], [0])])
def test_no_blocks_and_empty_ones_give_zeros(shape):
    graph = blocks(shape[0], senders=shape[1]).to(DEVICE)
    leaves, call = attention(graph, "dot", "edge", 1, 1, 4, 4)
    found = results(call, on_device(leaves), "ragged", torch.float32)
    assert all(not value.any() for value in found.values())
    assert found["output"].shape == (graph.num_receivers, 1, 4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precisions_err_at_most_twice_as_much_as_plain_pytorch(dtype):
    leaves, call = attention(random_blocks(40, 20), "dot", "edge", 1, 1, 16, 16)
    leaves = {name: leaf.to(dtype).double() for name, leaf in on_device(leaves).items()}
    exact = results(call, leaves, "segment")
    plain, found = (results(call, leaves, backend, dtype) for backend in ("segment", "ragged"))
    for name, value in exact.items():
        ours, theirs = ((x[name].double() - value).norm() / value.norm() for x in (found, plain))
        assert found[name].dtype == dtype
        assert ours <= 2 * theirs, f"{name}: {ours:.1e}, and {theirs:.1e} in plain PyTorch"


def test_the_same_bits_come_every_time():
    leaves, call = attention(blocks([20, 3]).to(DEVICE), "dot", "edge, shared by heads", 2, 2, 8, 8)
    leaves = on_device(leaves)
    first, second = (results(call, leaves, "ragged", torch.float32) for _ in range(2))
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_whom_a_bias_of_minus_infinity_masks_nobody_hears():
    graph = blocks([3, 2]).to(DEVICE)
    leaves, call = attention(graph, "dot", "edge", 1, 1, 4, 4)
    leaves = on_device(leaves)
    leaves["bias"][:4] = -torch.inf  # receiver 0 hears nobody, receiver 1 not sender 0
    found = results(call, leaves, "ragged", torch.float32)
    assert not found["output"][0].any()
    assert all(value.isfinite().all() for value in found.values())
    same(found, results(call, leaves, "reference"), 1e-5)


def test_a_number_that_is_none_is_never_lost_and_stays_in_its_block():
    q = torch.randn(5, 1, 4, device=DEVICE)
    k = q.clone()
    k[1] = torch.nan
    y = attend(blocks([3, 2]).to(DEVICE), q, k, q, backend="ragged")
    assert y.isnan().flatten(1).all(1).tolist() == [True] * 3 + [False] * 2


def test_dropout_draws_the_same_weights_forward_backward_and_for_second_derivatives():
    graph = blocks([20, 3]).to(DEVICE)
    leaves, call = attention(graph, "dot", "edge", 1, 1, 8, 8, dropout=0.3)
    q, k, v, bias = (leaves[name].float().to(DEVICE).requires_grad_() for name in ("q", "k", "v", "bias"))

    def gradients(again):
        torch.manual_seed(1)
        y = call({"q": q, "k": k, "v": v, "bias": bias}, "ragged")
        dy = torch.linspace(-1, 1, y.numel(), device=DEVICE).view(y.shape)
        return [y, *torch.autograd.grad(y, (q, k, v, bias), dy, create_graph=again)]

    first, second = gradients(False), gradients(True)
    for found, expected in zip(first, second, strict=True):
        torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-5)
    # The output is linear in the values, so their gradient tells which weights the forward pass used.
    dy = torch.linspace(-1, 1, first[0].numel(), device=DEVICE).view(first[0].shape)
    torch.testing.assert_close((first[0] * dy).sum(), (first[3] * v).sum(), rtol=1e-4, atol=1e-4)
    mask = drawn_mask(0.3)
    assert 0.66 < mask.float().mean() < 0.74
    assert not torch.equal(mask[0, :, 0], mask[0, :, 1]) and not torch.equal(mask[0], mask[1])


def drawn_mask(p):
    """Which weights [2, 1500, 2] survive: equal scores, and a sender whose value is its own channel."""
    graph, v = blocks([30], senders=[50]).to(DEVICE), torch.eye(50, device=DEVICE)[:, None].expand(2, 50, 2, 50)
    q, k = torch.zeros(2, 30, 2, 4, device=DEVICE), torch.zeros(2, 50, 2, 4, device=DEVICE)
    y = attend(graph, q, k, v, dropout=p, backend="ragged")  # [2, 30, 2, 50]
    return (y > 0).transpose(2, 3).flatten(1, 2)


def test_second_derivatives_are_those_of_plain_pytorch():
    leaves, call = attention(blocks([4, 0, 3]).to(DEVICE), "dot", "sender", 1, 1, 4, 4)

    def second(backend):
        x = {name: leaf.float().to(DEVICE).requires_grad_() for name, leaf in leaves.items()}
        first = torch.autograd.grad(call(x, backend).square().sum(), list(x.values()), create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), list(x.values()))

    for found, expected in zip(second("ragged"), second("segment"), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_inputs_and_gradients_may_lie_in_memory_in_any_way():
    graph = blocks([4, 2]).to(DEVICE)
    packed = torch.randn(6, 3, 1, 8, device=DEVICE)
    sliced = packed.unbind(1)  # rows beside each other, as a joint projection makes them
    transposed = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in sliced]
    odd = [torch.nn.functional.pad(x, (0, 1))[..., :-1] for x in sliced]
    expected = None
    for q, k, v in (sliced, (transposed[0], odd[1], sliced[2])):
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        y = attend(graph, *leaves, backend="ragged")
        found = [y, *torch.autograd.grad(y.sum(), leaves)]  # of an expanded number
        expected = expected or [x.detach() for x in found]
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_the_operators_are_well_formed():
    graph = blocks([2, 1]).to(DEVICE)
    q, k, v = (torch.randn(1, 3, 1, 4, device=DEVICE, requires_grad=True) for _ in range(3))
    bias = torch.randn(1, 5, 1, device=DEVICE, requires_grad=True)
    table, launches = ragged.blocks_of(graph)
    inputs = (q, k, v, bias, False, table, *launches, 0.5, 0.0, torch.zeros(1, dtype=torch.int64, device=DEVICE))
    torch.library.opcheck(torch.ops.edgewise.attend_blocks.default, inputs)
    assert torch.equal(ragged.attend_blocks(ragged.BlocksAttention(*inputs)), torch.ops.edgewise.attend_blocks(*inputs))
    inputs = (*(x.detach() if isinstance(x, torch.Tensor) else x for x in (*inputs, v)), [True] * 4)
    torch.library.opcheck(
        torch.ops.edgewise.attend_blocks_gradient.default, inputs, test_utils=("test_schema", "test_faketensor")
    )


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled_it_is_one_operator():
    torch._dynamo.reset()
    graph, q = blocks([2, 1]).to(DEVICE), torch.randn(3, 1, 4, device=DEVICE)
    compiled = torch.compile(lambda q: attend(graph, q, q, q, backend="ragged"), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(q), attend(graph, q, q, q, backend="ragged"))


def test_large_blocks_come_last_and_have_a_launch_of_their_own():
    table, launches = ragged.blocks_of(blocks([70, 3, 20, 128]))
    assert launches == (2, 5, 2)
    assert table[:, 3].tolist() == [3, 20, 70, 128]
    assert table[:, 0].tolist() == [70, 73, 0, 93]
    assert table[:, 2].tolist() == [4900, 4909, 0, 5309]


def test_its_cost_is_that_of_the_padded_tiles():
    def tiles(graph):
        x = torch.empty(graph.num_receivers, 2, 8)
        return ragged.cost(Attend(graph, x, x, x, Dot())).tiles / (2 * 2 * (16 + ragged.SOFTMAX))

    assert tiles(blocks([70, 3, 20, 16, 17])) == 128**2 + 2 * 16**2 + 2 * 32**2
    assert tiles(complete(64)) == 64**2


@pytest.mark.parametrize(
    ("graph", "score", "options", "reason"),
    [
        (window(6, 1), Dot(), {}, "it runs on complete graphs and batches of complete graphs only"),
        (blocks([3, 129]), Dot(), {}, "a block has 129 nodes, more than the 128 that fit in a tile"),
        (blocks([3, 3]), Additive(), {}, "no Additive score"),
        (blocks([3, 3]), Dot(cap=1.0), {}, "no soft cap"),
        (blocks([3, 3]), Dot(), {"return_weights": True}, "does not return its weights"),
    ],
)
def test_refusals_name_their_reason(graph, score, options, reason):
    graph = graph.to(DEVICE)
    x = torch.zeros(graph.num_receivers, 1, 1 if isinstance(score, Additive) else 4, device=DEVICE)
    with pytest.raises(BackendRefusal, match=reason):
        attend(graph, x, x, x, score, backend="ragged", **options)


def test_it_refuses_what_does_not_fit_on_the_chip():
    def refusal(nodes, channels, dtype, backend=ragged.BACKEND):
        x = torch.zeros(nodes, 1, channels, dtype=dtype, device=DEVICE)
        return backend.refusal(Attend(complete(nodes).to(DEVICE), x, x, x, Dot())) or "runs"

    assert "compute in float32, bfloat16 and float16, not in torch.float64" in refusal(3, 4, torch.float64)
    assert "a head has 129 channels" in refusal(3, 129, torch.float32)
    assert refusal(128, 64, torch.bfloat16) == refusal(128, 32, torch.float32) == "runs"
    assert "do not fit on the chip" in refusal(128, 128, torch.bfloat16)
    elsewhere = refusal(3, 4, torch.float32, replace(ragged.BACKEND, by_name=()))
    assert DEVICE == "cuda" or elsewhere == "its kernels run on NVIDIA GPUs, not on cpu"


def test_on_the_cpu_it_runs_only_when_asked_for_by_name():
    x = torch.zeros(6, 1, 4)
    names = [one.backend for one in candidates(Attend(blocks([3, 3]), x, x, x, Dot())) if one.refusal is None]
    assert names.index("ragged") > names.index("segment")


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.endurance  # 15 s in the interpreter
def test_it_agrees_with_the_reference_on_graphs_of_every_kind():
    check_kernel("ragged", torch.float32, DEVICE, 1e-5)
