"""Six models of transformers, drawn at random: logits, gradients and weights as by its own attention."""

from copy import deepcopy
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from edgewise.errors import ConfigError
from edgewise.interop import huggingface, register_attention
from edgewise.kernels import plans
from pretend import CARD, Card

transformers = pytest.importorskip("transformers")
from transformers.masking_utils import and_masks, causal_mask_function  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
TEXT = SIZES | {"vocab_size": 50, "max_position_embeddings": 64}
GROUPED = TEXT | {"num_key_value_heads": 2}
T5: dict[str, Any] = {
    "vocab_size": 50,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "dropout_rate": 0.0,
}
T5["decoder_start_token_id"] = 0
BERT = TEXT | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
GPT2 = {"vocab_size": 50, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}
DRY = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}

MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", GPT2 | DRY),
    "llama": ("LlamaConfig", "LlamaForCausalLM", GROUPED),
    "mistral": ("MistralConfig", "MistralForCausalLM", GROUPED | {"sliding_window": 5}),
    "bert": ("BertConfig", "BertForMaskedLM", BERT),
    "vit": ("ViTConfig", "ViTForImageClassification", SIZES | {"image_size": 16, "patch_size": 4, "num_labels": 3}),
    "t5": ("T5Config", "T5ForConditionalGeneration", T5),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", GROUPED | {"sliding_window": 5, "head_dim": 8}),
}

WIDTH = 0  # of a mask, which a test sets


class Settings:
    width = 0


def width() -> int:
    return WIDTH


def model(name: str, implementation: str) -> Any:
    config, kind, options = MODELS[name]
    torch.manual_seed(1)
    made = getattr(transformers, kind)(getattr(transformers, config)(**options, attn_implementation=implementation))
    return made.train()


def inputs(name: str, padded: bool = False) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(2)
    if name == "vit":
        return {"pixel_values": torch.randn(3, 3, 16, 16, generator=generator)}
    tokens = torch.randint(0, 50, (3, 17), generator=generator)
    given = {"input_ids": tokens}
    if name == "t5":
        given["decoder_input_ids"] = tokens[:, :9]
    if padded:
        given["attention_mask"] = (torch.arange(17) < torch.tensor([17, 6, 11])[:, None]).long()
    return given


def logits_and_gradients(made: Any, given: dict[str, Tensor], listening: Tensor | None) -> tuple[Tensor, list[Tensor]]:
    logits = made(**given).logits
    if listening is not None:
        logits = logits[listening.bool()]
    d = torch.randn(logits.shape, generator=torch.Generator().manual_seed(3)) / logits.numel() ** 0.5
    parameters = list(made.parameters())
    return logits, torch.autograd.grad(logits, parameters, d, allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_logits_and_gradients_are_those_of_its_own_attention(name: str, padded: bool) -> None:
    if padded and name == "vit":
        pytest.skip("images have no padding")
    given = inputs(name, padded)
    rows = given.get("attention_mask") if name != "t5" else None  # what padding itself computes is nobody's
    theirs = logits_and_gradients(model(name, "eager"), given, rows)
    ours = logits_and_gradients(model(name, register_attention()), given, rows)
    torch.testing.assert_close(ours[0], theirs[0], atol=1e-5, rtol=1e-5)
    for a, b in zip(ours[1], theirs[1], strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "bert", "t5"])
def test_attention_weights_are_returned(name: str) -> None:
    seen = []
    for implementation in ("eager", register_attention()):
        made = model(name, implementation).eval()
        out = made(**inputs(name), output_attentions=True)
        seen.append(out.attentions if name != "t5" else (*out.encoder_attentions, *out.cross_attentions))
    assert len(seen[1]) == len(seen[0]) > 0
    for ours, theirs in zip(*reversed(seen), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_a_sliding_window_is_a_window_graph_and_made_once() -> None:
    made, given = model("mistral", register_attention()), inputs("mistral")
    with plans() as first:
        made(**given)
    before = huggingface._graph.cache_info()
    with plans() as second:
        made(**given)
    assert huggingface._graph.cache_info().misses == before.misses
    assert all("Window(radius=4, dilation=1, sides='past')" in plan.what for plan in (*first, *second))
    assert len(first) == len(second) == 2


@pytest.mark.parametrize("name", ["llama", "mistral", "t5"])
def test_text_that_a_cache_continues_is_the_same(name: str) -> None:
    given = {"input_ids": inputs(name)["input_ids"]}
    texts = []
    for implementation in ("eager", register_attention()):
        made = model(name, implementation).eval()
        texts.append(made.generate(**given, max_new_tokens=9, do_sample=False))
    assert torch.equal(*texts)


def test_texts_that_are_packed_do_not_read_each_other() -> None:
    position_ids = torch.tensor([[*range(7), *range(10)]] * 3)
    given = inputs("llama") | {"position_ids": position_ids}
    ours, theirs = (model("llama", name)(**given).logits for name in (register_attention(), "eager"))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_a_mask_of_ones_own() -> None:
    allowed = torch.tril(torch.ones(3, 1, 17, 17, dtype=torch.bool), 0)
    allowed[1, :, :, 3] = False
    added = torch.where(allowed, 0.0, torch.finfo(torch.float32).min)
    made = {name: model("llama", name) for name in ("eager", register_attention())}
    tokens = inputs("llama")["input_ids"]
    right = made["eager"](tokens, attention_mask=added).logits
    rows = torch.arange(17) != 3  # row 3 of member 1 begins without itself
    for mask in (allowed, added):
        torch.testing.assert_close(
            made["edgewise"](tokens, attention_mask=mask).logits[:, rows], right[:, rows], atol=1e-5, rtol=1e-5
        )
    with pytest.raises(ConfigError, match="no graph: it must be the same for all heads"):
        made["edgewise"](tokens, attention_mask=torch.rand(3, 1, 17, 17))


def test_a_mask_is_made_of_all_that_its_function_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    def edges(function: Any) -> int:
        return int(huggingface.mask(1, 6, 6, 0, 0, function).graph.num_edges)

    def near(width: int) -> list[Any]:
        def by_default(b: Any, h: Any, q_idx: Any, kv_idx: Any, width: int = width) -> Any:
            return (q_idx - kv_idx).abs() < width

        def by_name(b: Any, h: Any, q_idx: Any, kv_idx: Any, *, width: int = width) -> Any:
            return (q_idx - kv_idx).abs() < width

        def by_closure(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
            return (q_idx - kv_idx).abs() < width

        return [by_default, by_name, by_closure]

    def by_global(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (q_idx - kv_idx).abs() < WIDTH

    def by_attribute(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (q_idx - kv_idx).abs() < Settings.width

    def by_helper(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (q_idx - kv_idx).abs() < width()

    def by_member(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (q_idx - kv_idx).abs() < getattr(Settings, "wid" + "th") + b

    for number, count in ((2, 16), (4, 30)):
        monkeypatch.setitem(globals(), "WIDTH", number)
        monkeypatch.setattr(Settings, "width", number)
        functions = [*near(number), by_global, by_attribute, by_helper]
        given = [and_masks(causal_mask_function, function) for function in functions]
        assert [edges(function) for function in functions] == [count] * 6
        assert [edges(function) for function in given] == [(count + 6) // 2] * 6
        assert edges(by_member) == count  # of the only member
    once = [huggingface.mask(1, 6, 6, 0, 0, by_helper).graph for _ in range(2)]
    assert once[0] is once[1]  # with all that is cached with it


def test_texts_that_are_packed_are_graphs_on_the_card_of_their_numbers() -> None:
    number = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2]])
    kept = torch.tensor([[1] * 5, [0] + [1] * 4])

    def masked(number: Tensor, kept: Tensor | None, device: str) -> Any:
        def packed(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
            return (number[b, q_idx] == number[b, kv_idx]) & (q_idx >= kv_idx)

        return huggingface.mask(2, 5, 5, 0, 0, packed, kept, device=device).graph

    for padding in (None, kept):
        right = masked(number, padding, "cpu").dense_mask()
        with Card():
            graph = masked(number.to("cuda"), None if padding is None else padding.to("cuda"), "cuda")
            assert graph.device == CARD
            assert torch.equal(graph.to("cpu").dense_mask(), right)


@pytest.mark.parametrize("name", ["s_aux", "sinks", "indices", "block_indices", "cache"])
def test_what_changes_attention_and_is_not_read_is_refused(name: str) -> None:
    x = torch.randn(1, 2, 5, 4)
    with pytest.raises(ConfigError, match=f"has no {name}, which this model asks for"):
        huggingface.attention(None, x, x, x, None, **{name: torch.zeros(1)})


def test_dropout_of_weights_acts_in_training_alone() -> None:
    made = model("bert", register_attention())
    for layer in made.bert.encoder.layer:
        layer.attention.self.dropout.p = 0.5
    given = inputs("bert")
    assert not torch.equal(made(**given).logits, made(**given).logits)
    made.eval()
    assert torch.equal(made(**given).logits, deepcopy(made)(**given).logits)


@pytest.mark.parametrize("weights", [False, True])
def test_dropout_of_all_weights_leaves_nothing(weights: bool) -> None:
    x = torch.randn(1, 2, 5, 4, requires_grad=True)
    y, _ = huggingface.attention(None, x, x, x, None, dropout=1.0, output_attentions=weights)
    assert not y.any() and not torch.autograd.grad(y.sum(), x)[0].any()


@pytest.mark.parametrize("dropout", [0.5, 1.0])
@pytest.mark.parametrize("padded", [False, True])
def test_weights_under_dropout_are_those_that_the_values_were_averaged_with(padded: bool, dropout: float) -> None:
    q, k, v = torch.randn(2, 4, 6, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 3)  # two heads share keys
    kept = torch.ones(2, 7, dtype=torch.bool)
    kept[1, 4:] = not padded
    mask = huggingface.mask(2, 6, 7, mask_function=lambda b, h, i, j: j <= i + 1, attention_mask=kept)
    y, weights = huggingface.attention(None, q, k, v, mask, dropout=dropout, output_attentions=True)
    _, before = huggingface.attention(None, q, k, v, mask, output_attentions=True)
    assert weights is not None and before is not None
    torch.testing.assert_close(y, (weights @ v.repeat_interleave(2, 1)).transpose(1, 2))
    torch.testing.assert_close(weights * (1 - dropout), torch.where(weights == 0, 0.0, before))
    assert int((weights == 0).sum()) > int((before == 0).sum())


@pytest.mark.compiled
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", ["llama", "mistral", "bert"])
def test_models_compile_whole_and_export_as_by_its_own_attention(name: str, padded: bool) -> None:
    given = {name: tokens[:2] for name, tokens in inputs(name, padded).items()}
    theirs, ours = (model(name, kind).eval().requires_grad_(False) for kind in ("sdpa", register_attention()))
    want, options = theirs(**given).logits, {} if name == "bert" else {"use_cache": False}
    compiled = torch.compile(ours, backend="eager", fullgraph=True)(**given, **options)
    exported = torch.export.export(ours, (), given | options, strict=False).module()(**given, **options)
    for y in (compiled, exported):
        torch.testing.assert_close(y.logits, want, atol=1e-5, rtol=1e-5)


def test_each_token_of_a_text_runs_on_pytorchs_attention_unless_somebody_watches() -> None:
    made, tokens = model("llama", register_attention()).eval(), inputs("llama")["input_ids"]
    ways: Any = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
    called = torch.nn.functional.scaled_dot_product_attention
    with mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", wraps=called) as asked:
        texts = [made.generate(tokens, **ways)]
        assert asked.call_count == 2 * 2  # layers, and tokens after the first
        with plans() as seen:
            texts.append(made.generate(tokens, **ways))
    assert torch.equal(*texts) and len(seen) == 2 * 3


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "t5", "gemma2"])
def test_a_static_cache_continues_a_text_as_by_its_own_attention(name: str, padded: bool) -> None:
    given = {"input_ids": inputs(name)["input_ids"]}
    if padded:  # on the left, as texts that are continued are
        given["attention_mask"] = (torch.arange(17) >= torch.tensor([0, 6, 11])[:, None]).long()
    ways: Any = {"max_new_tokens": 9, "do_sample": False, "pad_token_id": 0, "cache_implementation": "static"}
    own = "eager" if name == "gemma2" else "sdpa"
    theirs, ours = (
        model(name, implementation).eval().generate(**given, **ways, output_scores=True, return_dict_in_generate=True)
        for implementation in (own, register_attention())
    )
    assert torch.equal(ours.sequences, theirs.sequences)
    torch.testing.assert_close(torch.stack(ours.scores), torch.stack(theirs.scores), atol=1e-5, rtol=1e-5)


def test_a_static_cache_serves_beams_and_calls_of_ones_own() -> None:
    tokens, texts, logits = inputs("llama")["input_ids"], [], []
    for implementation in ("sdpa", register_attention()):
        made = model("llama", implementation).eval()
        texts.append(
            made.generate(tokens, max_new_tokens=5, num_beams=2, cache_implementation="static", pad_token_id=0)
        )
        cache = transformers.StaticCache(made.config, max_cache_len=24)
        made(tokens[:, :12], past_key_values=cache)
        logits.append(made(tokens[:, 12:], past_key_values=cache).logits)
    assert torch.equal(*texts)
    torch.testing.assert_close(*logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("padded", [False, True])
def test_a_mask_of_a_graph_is_a_mask_to_whoever_reads_it(padded: bool) -> None:
    allowed = torch.ones(5, 7, dtype=torch.bool).tril(2).expand(3, 1, 5, 7)
    kept = torch.arange(7) >= torch.tensor([0, 2, 3])[:, None]
    allowed = allowed & kept[:, None, None] if padded else allowed
    made = huggingface.mask(
        3, 5, 7, 2, mask_function=lambda b, h, i, j: j <= i, attention_mask=kept if padded else None
    )
    assert made.contiguous() is made and (made.shape, made.dtype) == (allowed.shape, torch.bool)
    assert torch.equal(made | False, allowed)
    assert torch.equal(torch.where(made[:, :, 1:], 0.0, 1.0), torch.where(allowed[:, :, 1:], 0.0, 1.0))


NO_INTERFACE: dict[str, tuple[str, dict[str, Any]]] = {
    "adds the mask": ("BloomConfig", {"vocab_size": 50, "hidden_size": 16, "n_layer": 1, "n_head": 2}),
    "fills scores": ("MptConfig", {"vocab_size": 50, "d_model": 16, "n_layers": 1, "n_heads": 2, "max_seq_len": 32}),
    "adds the mask as numbers": (
        "CanineConfig",
        SIZES | {"local_transformer_stride": 8, "num_hash_buckets": 16, "num_hash_functions": 2},
    ),
    "reads a table of its own": ("DebertaV2Config", TEXT),
}


@pytest.mark.parametrize(("config", "options"), NO_INTERFACE.values(), ids=NO_INTERFACE)
def test_a_model_that_does_not_call_the_attention_interface_is_refused(config: str, options: dict[str, Any]) -> None:
    given = getattr(transformers, config)(**options)
    with pytest.raises(ConfigError, match="does not call transformers' attention interface"):
        transformers.AutoModel.from_config(given, attn_implementation=register_attention())


@pytest.mark.parametrize(
    "applied",
    [lambda s, mask: s + mask, lambda s, mask: s.masked_fill(mask, -1.0), lambda s, mask: mask.float()],
    ids=["added", "filled", "as numbers"],
)
def test_scores_that_a_model_masks_itself_are_refused(applied: Any) -> None:
    mask = huggingface.mask(1, 5, 5, mask_function=lambda b, h, i, j: j <= i)
    with pytest.raises(ConfigError, match="this one applies the mask to its scores itself"):
        applied(torch.zeros(1, 1, 5, 5), mask)


@pytest.mark.parametrize("members", [1, 3])
def test_a_mask_of_senders_alone_is_that_of_every_receiver(members: int) -> None:
    theirs, ours = model("llama", "eager"), model("llama", register_attention())
    listening = torch.arange(17) < torch.tensor([17, 9, 12])[:members, None, None, None]
    added = torch.where(listening, 0.0, torch.finfo(torch.float32).min)
    given = inputs("llama") | {"attention_mask": added}
    torch.testing.assert_close(ours(**given).logits, theirs(**given).logits, atol=1e-5, rtol=1e-5)


def test_a_mask_of_a_graph_is_not_written_to() -> None:
    made: Any = huggingface.mask(2, 5, 5, mask_function=lambda b, h, i, j: j <= i)
    with pytest.raises(ConfigError, match="cannot be written to"):
        made[..., 0] = False
    with pytest.raises(ConfigError, match="cannot be written to"):
        made.masked_fill_(torch.ones(5, dtype=torch.bool), False)
    for view in (made[0], made[:, :, 1:], made.expand(2, 3, 5, 5), made.unbind()[0]):
        with pytest.raises(ConfigError, match="cannot be written to"):
            view[..., 0] = False
        with pytest.raises(ConfigError, match="cannot be written to"):
            view[..., 0].fill_(False)
    assert int(made.masked_fill(torch.ones(5, dtype=torch.bool), False).sum()) == 0
    copy = made[0].clone()
    copy[0, 0] = False
    assert copy.tolist()[0][:2] == [[False] * 5, [True, True, False, False, False]]


def test_some_senders_of_a_mask_are_a_mask() -> None:
    """Models cut a mask to the keys that they have: it is read so, and refused where it is added to scores."""
    made: Any = huggingface.mask(2, 5, 7, mask_function=lambda b, h, i, j: j <= i)
    x = torch.randn(2, 4, 5, 8)
    ours, _ = huggingface.attention(None, x, x, x, made[:, :, :, :5])
    right = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True).transpose(1, 2)
    torch.testing.assert_close(ours, right, atol=1e-5, rtol=1e-5)
    assert made[:, :, :, :5].tolist() == made[:, :, :, :5].numpy().tolist() == made.dense()[:, :, :, :5].tolist()
    assert repr(made[0]) == repr(made.dense()[0])
    assert deepcopy(made) is made
    for wrong in (lambda: torch.randn(2, 4, 5, 5) + made[:, :, :, :5], lambda: made.to(torch.float32)):
        with pytest.raises(ConfigError, match="this one applies the mask to its scores itself"):
            wrong()
