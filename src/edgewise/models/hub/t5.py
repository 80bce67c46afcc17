"""T5: an encoder-decoder with buckets of distances, of which all blocks of a side share one table."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from edgewise.configuration import Choice, chosen
from edgewise.errors import ConfigError
from edgewise.models.hub import layout
from edgewise.models.parts import BLOCKS, PreNorm
from edgewise.models.signature import TokenPairs
from edgewise.models.text.encoder_decoder import EncoderDecoder, EncoderDecoderSettings

OPTIONS = {
    "width": "d_model",
    "encoder_depth": "num_layers",
    "decoder_depth": "num_decoder_layers",
    "heads": "num_heads",
    "hidden": "d_ff",
    "activation": "feed_forward_proj",
    "norm": "layer_norm_epsilon",
    "dropout": "dropout_rate",
}
TABLES: dict[str, dict[Any, str]] = {
    "activation": {"relu": "relu", "gated-gelu": "geglu", "gated-silu": "swiglu"},
    "norm": {1e-6: "rms", 1e-5: "coarse-rms"},
}
PAIRS = {"count": "relative_attention_num_buckets", "reach": "relative_attention_max_distance"}


def _model(config: layout.Config) -> EncoderDecoder:
    config = {"num_decoder_layers": config["num_layers"], "feed_forward_proj": "relu", "tie_word_embeddings": True} | {
        name: value for name, value in config.items() if value is not None
    }
    tied = config["tie_word_embeddings"]
    layout.refuse(config, d_kv=config["d_model"] // config["num_heads"])
    settings = layout.settings_from({"layer_norm_epsilon": 1e-6, "dropout_rate": 0.1, **config}, OPTIONS, TABLES)
    sizes = {"count": config.get(PAIRS["count"], 32), "reach": config.get(PAIRS["reach"], 128)}
    feed_forward = Choice(settings.pop("activation"), {"hidden": settings.pop("hidden")})
    made = EncoderDecoderSettings(
        **{name: value for name, value in settings.items() if name != "norm"},
        positions=Choice("t5", {**sizes, "shared": True}),
        feed_forward=feed_forward,
        block=Choice("pre-norm", {"norm": settings["norm"], "bias": False}),
        attention_dropout=settings["dropout"],
        tied=tied,
    )
    return EncoderDecoder(made, TokenPairs(config["vocab_size"], config["vocab_size"]))


def _config(model: EncoderDecoder) -> dict[str, Any]:
    settings, signature = model.settings, model.signature
    block, positions = chosen("block", settings.block, BLOCKS)(), Choice.of(settings.positions)
    if type(block) is not PreNorm or block.bias or not positions.options.get("shared"):
        raise ConfigError(
            "T5 has pre-norm blocks without biases and positions t5 with shared=true: this model has others"
        )
    sizes = {"count": 32, "reach": 128} | positions.options
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        **layout.options_from(settings, OPTIONS, TABLES),
        **{theirs: sizes[ours] for ours, theirs in PAIRS.items()},
        "d_kv": settings.width // settings.heads,
        "vocab_size": signature.inputs,
        "tie_word_embeddings": settings.tied,
        "scale_decoder_outputs": settings.tied,
        "is_encoder_decoder": True,
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
        "eos_token_id": 1,
    }


def _factor(config: layout.Config) -> float:
    """How much larger the decoder's output is here: T5 multiplies it by 1/√d, T5 1.1 does not, and ours has the 1/√d of
    the embedding where that is the output layer too."""
    tied = config.get("tie_word_embeddings", True)
    scaled = config.get("scale_decoder_outputs", tied)
    return float(config["d_model"] ** (0.5 * (tied - scaled)))


def _scaled(theirs: Sequence[Tensor], config: layout.Config) -> Tensor:
    """T5 neither multiplies the embedding by √d nor divides scores by √C: its weights here undo both."""
    q, *others = theirs
    return torch.cat([q * config["d_kv"] ** 0.5, *others])


def _unscaled(ours: Tensor, config: layout.Config) -> Sequence[Tensor]:
    q, *others = ours.chunk(3)
    return q / config["d_kv"] ** 0.5, *others


def _stage(ours: str, theirs: str, feed_forward: int) -> tuple[layout.Part, ...]:
    """One block of a side, whose feed-forward network is that of its stages."""
    dense = f"{theirs}.{feed_forward}.DenseReluDense"

    def attention(name: str, number: int, kind: str) -> tuple[layout.Part, ...]:
        stage = f"{theirs}.{number}.{kind}"
        queries = tuple(f"{stage}.{letter}.weight" for letter in "qkv")
        return (
            layout.Part(f"{ours}.{name}.projection.weight", queries, _scaled, _unscaled),
            layout.Part(f"{ours}.{name}.output.weight", (f"{stage}.o.weight",)),
        )

    return (
        *attention("attention", 0, "SelfAttention"),
        *(attention("cross", 1, "EncDecAttention") if feed_forward == 2 else ()),
        *(
            layout.Part(f"{ours}.norm_{number + 1}.weight", (f"{theirs}.{number}.layer_norm.weight",))
            for number in range(feed_forward + 1)
        ),
        layout.Part(f"{ours}.feed_forward.up.weight", (f"{dense}.wi.weight",)),
        layout.stacked(f"{ours}.feed_forward.gate_and_value", [f"{dense}.wi_0", f"{dense}.wi_1"])[0],
        layout.Part(f"{ours}.feed_forward.down.weight", (f"{dense}.wo.weight",)),
    )


def _table(side: str) -> layout.Part:
    name = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    return layout.Part(f"{side}.0.attention.b", (name,), lambda theirs, config: theirs[0].T, lambda b, config: (b.T,))


ARCHITECTURE = layout.Architecture(
    prefix="",
    whole=(
        layout.Part(
            "embed.weight",
            ("shared.weight",),
            lambda theirs, config: theirs[0] / config["d_model"] ** 0.5,
            lambda weight, config: (weight * config["d_model"] ** 0.5,),
            ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"),
        ),
        _table("encoder"),
        _table("decoder"),
        layout.Part("encoder_norm.weight", ("encoder.final_layer_norm.weight",)),
        layout.Part(
            "decoder_norm.weight",
            ("decoder.final_layer_norm.weight",),
            lambda theirs, config: theirs[0] * _factor(config),
            lambda weight, config: (weight / _factor(config),),
        ),
        layout.Part("head.weight", ("lm_head.weight",)),
    ),
    blocks={
        "encoder_depth": _stage("encoder.{}", "encoder.block.{}.layer", 1),
        "decoder_depth": _stage("decoder.{}", "decoder.block.{}.layer", 2),
    },
    model=_model,
    config=_config,
    spare=("EncDecAttention.relative_attention_bias.weight",),
    longer=lambda config, length: {},
)
