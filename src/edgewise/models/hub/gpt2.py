"""GPT-2: a decoder of tokens with tied embeddings."""

from typing import Any

from edgewise.errors import ConfigError
from edgewise.graphs import causal
from edgewise.models.hub import layout
from edgewise.models.signature import Tokens
from edgewise.models.text.transformer import Transformer

OPTIONS = {
    "width": "n_embd",
    "depth": "n_layer",
    "heads": "n_head",
    "hidden": "n_inner",
    "activation": "activation_function",
    "norm": "layer_norm_epsilon",
}


def _model(config: layout.Config) -> Transformer:
    layout.refuse(config, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    layout.refuse(config, tie_word_embeddings=True)
    rates = layout.rates_from(config, "resid_pdrop", "attn_pdrop", 0.1)
    layout.refuse({"embd_pdrop": 0.1, **config}, embd_pdrop=rates["dropout"])  # one rate here
    settings = layout.transformer_from({"n_inner": None, **config}, OPTIONS, tied=True, **rates)
    tokens, length = config["vocab_size"], config["n_positions"]
    return Transformer(settings, Tokens(tokens, tokens, length=length))


def _config(model: Transformer) -> dict[str, Any]:
    settings, signature = model.settings, model.signature
    layout.refuse_unusual(settings)
    if not (settings.tied and isinstance(signature, Tokens) and settings.readout == "none"):
        raise ConfigError("GPT-2 is a language model with tied embeddings: this model is none")
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        **layout.options_from(settings, OPTIONS),
        **dict.fromkeys(("embd_pdrop", "resid_pdrop"), settings.dropout),
        "attn_pdrop": settings.of_attention,
        "n_positions": signature.length,
        "vocab_size": signature.inputs,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": None,
    }


ARCHITECTURE = layout.Architecture(
    prefix="transformer.",
    whole=(
        layout.Part("embed.weight", ("transformer.wte.weight",), copies=("lm_head.weight",)),
        layout.Part("positions.weight", ("transformer.wpe.weight",)),
        *layout.pair("norm", "transformer.ln_f"),
    ),
    blocks={
        "depth": (
            *layout.pair("blocks.{}.norm_1", "transformer.h.{}.ln_1"),
            *layout.transposed("blocks.{}.attention.projection", "transformer.h.{}.attn.c_attn"),
            *layout.transposed("blocks.{}.attention.output", "transformer.h.{}.attn.c_proj"),
            *layout.pair("blocks.{}.norm_2", "transformer.h.{}.ln_2"),
            *layout.transposed("blocks.{}.feed_forward.up", "transformer.h.{}.mlp.c_fc"),
            *layout.transposed("blocks.{}.feed_forward.down", "transformer.h.{}.mlp.c_proj"),
        )
    },
    model=_model,
    config=_config,
    spare=(".attn.bias", ".attn.masked_bias"),
    longer=lambda config, length: {"n_positions": length},
    graph=lambda config: causal,
)
