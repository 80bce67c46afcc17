"""LLaMA, Mistral and Qwen 2: decoders with rotary positions, RMSNorm, gated networks and shared keys and values."""

from collections.abc import Callable
from functools import partial
from typing import Any

from edgewise.configuration import Choice, chosen
from edgewise.errors import ConfigError
from edgewise.graphs import Graph, causal, window
from edgewise.models.hub import layout
from edgewise.models.parts import BLOCKS, GATES, PreNorm
from edgewise.models.signature import Tokens
from edgewise.models.text.transformer import Transformer, TransformerSettings

OPTIONS = {
    "width": "hidden_size",
    "depth": "num_hidden_layers",
    "heads": "num_attention_heads",
    "hidden": "intermediate_size",
    "activation": "hidden_act",
    "norm": "rms_norm_eps",
}
TABLES: dict[str, dict[Any, str]] = {
    "activation": {"silu": "swiglu", "gelu_pytorch_tanh": "geglu", "gelu_new": "geglu"},
    "norm": {1e-6: "rms", 1e-5: "coarse-rms"},
}
SLIDING = "sliding_attention"
LENGTH = 2048  # written where a model has no largest length


def _model(config: layout.Config, biased: bool = False) -> Transformer:
    config = {"rms_norm_eps": 1e-6, "hidden_act": "silu", **config}
    settings = layout.settings_from(config, OPTIONS, TABLES)
    heads, width = settings["heads"], settings["width"]
    bias = config.get("mlp_bias", False)
    layout.refuse(config, head_dim=config.get("head_dim") and width // heads, attention_bias=bias, pretraining_tp=1)
    options: dict[str, Any] = {"key_value_heads": config.get("num_key_value_heads") or heads}
    if biased:
        options["inputs_bias"] = True
    if rate := float(config.get("attention_dropout", 0.0)):
        options["dropout"] = rate
    _graph(config)  # or its error
    made = TransformerSettings(
        width,
        settings["depth"],
        heads,
        attention=Choice("softmax", options),
        positions=_rotary(config),
        feed_forward=Choice(settings["activation"], {"hidden": settings["hidden"]}),
        block=Choice("pre-norm", {"norm": settings["norm"], "bias": bias}),
        tied=config.get("tie_word_embeddings", False),
    )
    return Transformer(made, Tokens(config["vocab_size"], config["vocab_size"], length=_length(config)))


def _length(config: layout.Config) -> int:
    length: int = config.get("max_position_embeddings", LENGTH)
    return length


def _rotary(config: layout.Config) -> Choice:
    """The rotation, as transformers 5 writes it, or older versions."""
    beside = {name: config[name] for name in ("rope_theta", "partial_rotary_factor") if name in config}
    rope = beside | (config.get("rope_scaling") or config.get("rope_parameters") or {})
    layout.refuse(rope, partial_rotary_factor=1.0)
    kind = rope.get("rope_type", rope.get("type", "default"))
    layout.known({"default": 0, "linear": 0}, "rope_type", kind)
    stretch = {"stretch": float(rope["factor"])} if kind == "linear" else {}
    return Choice("rotary", {"base": float(rope.get("rope_theta", 10000.0)), **stretch})


def _longer(config: layout.Config, length: int) -> dict[str, Any]:
    """Positions divided so that they fit among those trained on."""
    turned = _rotary(config).options
    factor = turned.get("stretch", 1.0) * max(1.0, length / _length(config))
    rope = {"rope_type": "linear", "factor": factor, "rope_theta": turned["base"]}
    return {"max_position_embeddings": length, "rope_parameters": rope, "rope_scaling": None}


def _graph(config: layout.Config) -> Callable[[int], Graph]:
    """Causal, or the last tokens of a window, which LLaMA has not, and Qwen 2 may have in its last layers alone."""
    kind, kinds = config.get("model_type"), config.get("layer_types")
    reach = None if kind == "llama" else config.get("sliding_window", 4096)
    if kind == "qwen2":
        reach = reach if config.get("use_sliding_window", False) else None
        full = config.get("max_window_layers", 28)
        kinds = kinds or [SLIDING if layer >= full else "full" for layer in range(config["num_hidden_layers"])]
        reach = reach if SLIDING in kinds else None
    if reach is not None and kinds and len(set(kinds)) > 1:
        what = f"a window of {reach} tokens in {kinds.count(SLIDING)} of {len(kinds)} layers"
        raise ConfigError(
            f"{what} (layer_types, max_window_layers) has no counterpart here: all layers share one graph"
        )
    return causal if reach is None else partial(window, radius=reach - 1, sides="past")


def _config(model: Transformer, kind: str) -> dict[str, Any]:
    settings, signature = model.settings, model.signature
    block, attention = chosen("block", settings.block, BLOCKS)(), Choice.of(settings.attention)
    positions, feed_forward = Choice.of(settings.positions), Choice.of(settings.feed_forward)
    plain = type(block) is PreNorm and attention.name == "softmax" and settings.readout == "none"
    if not (plain and positions.name == "rotary" and isinstance(signature, Tokens) and feed_forward.name in GATES):
        theirs = "a language model of pre-norm blocks with rotary positions and a gated network"
        raise ConfigError(f"{kind} is {theirs}: this model is none")
    biased = bool(attention.options.get("inputs_bias"))
    if (kind != "Qwen2" and biased and not block.bias) or (kind != "Llama" and block.bias):
        raise ConfigError(f"{kind} has other biases than this model: write it as {'llama' if block.bias else 'qwen2'}")
    turned = {"base": 10000.0, "stretch": 1.0} | positions.options
    rope = {"rope_theta": turned["base"], "rope_type": "default"}
    if turned["stretch"] != 1:
        rope |= {"rope_type": "linear", "factor": turned["stretch"]}
    return {
        "architectures": [f"{kind}ForCausalLM"],
        "model_type": kind.lower(),
        **layout.options_from(settings, OPTIONS, TABLES),
        "num_key_value_heads": attention.options.get("key_value_heads") or settings.heads,
        "head_dim": settings.width // settings.heads,
        "attention_dropout": settings.of_attention,
        "rope_parameters": rope,
        "max_position_embeddings": signature.length or LENGTH,
        "vocab_size": signature.inputs,
        "tie_word_embeddings": settings.tied,
        "attention_bias": block.bias,
        "mlp_bias": block.bias,
        "sliding_window": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _architecture(kind: str) -> layout.Architecture:
    return layout.Architecture(
        prefix="model.",
        whole=(
            layout.Part("embed.weight", ("model.embed_tokens.weight",), copies=("lm_head.weight",)),
            layout.Part("norm.weight", ("model.norm.weight",)),
            layout.Part("head.weight", ("lm_head.weight",)),
        ),
        blocks={
            "depth": (
                layout.Part("blocks.{}.norm_1.weight", ("model.layers.{}.input_layernorm.weight",)),
                *layout.grouped(
                    "blocks.{}.attention.projection",
                    [f"model.layers.{{}}.self_attn.{name}_proj" for name in "qkv"],
                ),
                *layout.pair("blocks.{}.attention.output", "model.layers.{}.self_attn.o_proj"),
                layout.Part("blocks.{}.norm_2.weight", ("model.layers.{}.post_attention_layernorm.weight",)),
                *layout.stacked(
                    "blocks.{}.feed_forward.gate_and_value",
                    [f"model.layers.{{}}.mlp.{name}_proj" for name in ("gate", "up")],
                ),
                *layout.pair("blocks.{}.feed_forward.down", "model.layers.{}.mlp.down_proj"),
            )
        },
        model=partial(_model, biased=kind == "Qwen2"),
        config=partial(_config, kind=kind),
        spare=(".rotary_emb.inv_freq",),
        graph=_graph,
        longer=_longer,
    )


LLAMA, MISTRAL, QWEN2 = map(_architecture, ("Llama", "Mistral", "Qwen2"))
