"""Twins of PyTorch's attention and encoders, over their options and masks."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from edgewise.interop import convert
from interop.geometric.parity import check

B, L, S, C = 3, 5, 7, 8
CAUSAL = nn.Transformer.generate_square_subsequent_mask(L)
SOME = torch.tensor([[i >= j - 1 or j == 6 for j in range(S)] for i in range(L)])


def padding(n: int) -> Tensor:
    return torch.arange(n) >= torch.tensor([n, 2, 4])[:, None]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"attn_mask": ~SOME},
        {"attn_mask": torch.where(SOME, 0.0, -torch.inf)},
        {"key_padding_mask": padding(S)},
        {"key_padding_mask": padding(S), "attn_mask": ~SOME},
        {"need_weights": False},
        {"average_attn_weights": False},
        {"average_attn_weights": False, "key_padding_mask": padding(S)},
    ],
)
@pytest.mark.parametrize("sizes", [{}, {"kdim": 6, "vdim": 4}, {"bias": False}])
def test_attention_to_others(sizes: Any, options: Any, batch_first: bool) -> None:
    torch.manual_seed(3)
    layer = nn.MultiheadAttention(C, 2, batch_first=batch_first, **sizes)
    q, k, v = torch.randn(B, L, C), torch.randn(B, S, layer.kdim), torch.randn(B, S, layer.vdim)
    inputs = (q, k, v) if batch_first else tuple(x.transpose(0, 1) for x in (q, k, v))
    mask = options.get("attn_mask")
    if mask is None or mask.dtype == torch.bool:
        check(layer, *inputs, **options)
    twin = convert(deepcopy(layer))
    for ours, theirs in zip(twin(*inputs, **options), layer(*inputs, **options), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("masks", [{}, {"mask": CAUSAL < 0}, {"src_key_padding_mask": padding(L)}])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:The PyTorch API of nested")
def test_encoder(masks: Any, training: bool, norm_first: bool) -> None:
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(C, 2, 16, dropout=0.0, batch_first=True, norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(C)).train(training)
    check(encoder, torch.randn(B, L, C), **masks)


@pytest.mark.parametrize("options", [{}, {"mask_check": False}, {"enable_nested_tensor": False}])
@pytest.mark.parametrize("norm", [None, nn.LayerNorm(C)])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:The PyTorch API of nested")
def test_padding_is_left_out_where_pytorch_leaves_it_out(norm: Any, options: Any) -> None:
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(C, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, deepcopy(norm), **options).eval()
    if norm is not None:
        nn.init.normal_(encoder.norm.bias)  # which is what PyTorch gives for padding
    twin, x, left_out = convert(deepcopy(encoder)), torch.randn(B, L, C), padding(L)
    masks = [left_out, torch.zeros(B, L).masked_fill(left_out, -torch.inf)]
    masks += [torch.zeros(B, L).masked_fill(left_out, -1e9)]  # no graph: PyTorch's own path
    masks += [] if options else [left_out.flip(1)]
    for mask in masks:
        for learns in (False, True):
            with torch.set_grad_enabled(learns):
                ours, theirs = (one(x, src_key_padding_mask=mask) for one in (twin, encoder))
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_decoder() -> None:
    layer = nn.TransformerDecoderLayer(C, 2, 16, dropout=0.0, batch_first=True)
    decoder = nn.TransformerDecoder(layer, 2)
    check(decoder, torch.randn(B, L, C), torch.randn(B, S, C), tgt_mask=CAUSAL < 0, memory_key_padding_mask=padding(S))


def test_a_receiver_that_may_listen_to_nobody_gives_zero() -> None:
    layer = convert(nn.MultiheadAttention(C, 2, bias=False, batch_first=True))
    x = torch.randn(1, L, C)
    y, p = layer(x, x, x, key_padding_mask=torch.ones(1, L, dtype=torch.bool))
    assert bool((y == 0).all())
    assert bool((p == 0).all())


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_mask_for_each_head_that_lets_one_listen_to_nobody(batch_first: bool) -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=batch_first)
    x, mask = torch.randn(2, 2, 8, requires_grad=True), torch.rand(4, 2, 2) < 0.3
    mask[:, 0] = False
    rows = x.detach()
    for each in (mask, torch.zeros(mask.shape).masked_fill(mask, -torch.inf)):
        each[..., 0] = 0
        for options in ({}, {"average_attn_weights": False}):
            expected, found = (
                of(rows, rows, rows, attn_mask=each, **options) for of in (layer, convert(deepcopy(layer)))
            )
            for ours, theirs in zip(found, expected, strict=True):
                torch.testing.assert_close(ours, theirs)
    mask[1] = True
    y = convert(layer)(x, x, x, attn_mask=mask)[0]
    y.sum().backward()
    assert bool(y.isfinite().all()) and bool(x.grad.isfinite().all())


def test_a_mask_of_other_numbers_runs_as_before() -> None:
    layer = nn.MultiheadAttention(C, 2, batch_first=True).eval()
    twin, x = convert(deepcopy(layer)), torch.randn(B, L, C)
    for mask in (torch.randn(L, L), torch.zeros(B * 2, L, L)):
        torch.testing.assert_close(twin(x, x, x, attn_mask=mask), layer(x, x, x, attn_mask=mask))
    torch.testing.assert_close(twin(x[0], x[0], x[0]), layer(x[0], x[0], x[0]))


def test_dropout_draws_weights_in_training() -> None:
    layer, x = convert(nn.MultiheadAttention(C, 2, dropout=0.5, batch_first=True)), torch.randn(B, L, C)
    first, second = (layer(x, x, x, need_weights=False)[0] for _ in range(2))
    assert not torch.equal(first, second)
    layer.eval()
    assert torch.equal(layer(x, x, x)[0], layer(x, x, x)[0])


def test_dropout_of_all_weights_leaves_what_it_left() -> None:
    layer, x = nn.MultiheadAttention(C, 2, dropout=1.0, batch_first=True), torch.randn(B, L, C)
    twin = convert(deepcopy(layer))
    torch.testing.assert_close(twin(x, x, x, need_weights=False)[0], layer(x, x, x, need_weights=False)[0])


class Adding(nn.Module):
    """An attention that adds its masks to its scores."""

    batch_first, _qkv_same_embed_dim, in_proj_bias, num_heads = True, False, None, 2

    def forward(self, q: Tensor, k: Tensor, v: Tensor, attn_mask: Any, key_padding_mask: Any, **_: Any) -> Any:
        s = q @ k.mT if attn_mask is None else q @ k.mT + attn_mask
        return (s if key_padding_mask is None else s + key_padding_mask[:, None]).softmax(-1) @ v, None


class Layer(nn.Module):
    """A layer of an encoder that is no class of PyTorch's."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn = nn.MultiheadAttention(C, 2, batch_first=True)

    def forward(self, src: Tensor, src_mask: Any, src_key_padding_mask: Any, is_causal: Any) -> Any:
        return Adding()(src, src, src, src_mask, src_key_padding_mask)[0]


@pytest.mark.parametrize("masks", [{"mask": CAUSAL < 0}, {"src_key_padding_mask": padding(L)}])
@pytest.mark.parametrize("kind", ["attention", "layer"])
def test_parts_of_ones_own_are_given_masks_of_numbers(kind: str, masks: dict[str, Tensor]) -> None:
    layer: Any = Layer()
    if kind == "attention":
        layer = nn.TransformerEncoderLayer(C, 2, 16, dropout=0.0, batch_first=True)
        layer.self_attn = Adding()
    encoder, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(B, L, C)
    torch.testing.assert_close(convert(deepcopy(encoder))(x, **masks), encoder(x, **masks))


@pytest.mark.parametrize("need_weights", [True, False])
def test_an_empty_batch_stays_one(need_weights: bool) -> None:
    layer, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(0, 5, 8)
    theirs, ours = layer(x, x, x, need_weights=need_weights), convert(layer)(x, x, x, need_weights=need_weights)
    assert [t if t is None else t.shape for t in ours] == [t if t is None else t.shape for t in theirs]


def test_a_causal_encoder_without_a_mask_is_refused_as_before() -> None:
    model = convert(nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1))
    with pytest.raises(RuntimeError, match="Need attn_mask if specifying the is_causal hint"):
        model(torch.randn(2, 5, 8), is_causal=True)


@pytest.mark.parametrize("masks", [{"key_padding_mask": padding(S)[:, 1:]}, {"attn_mask": SOME[:, 1:]}])
def test_a_mask_of_another_shape_is_named_as_before(masks: dict[str, Tensor]) -> None:
    layer = convert(nn.MultiheadAttention(C, 2, batch_first=True))
    with pytest.raises((AssertionError, RuntimeError), match="mask"):
        layer(torch.randn(B, L, C), torch.randn(B, S, C), torch.randn(B, S, C), **masks)
