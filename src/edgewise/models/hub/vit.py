"""ViT: an encoder of the patches of an image, with a node for the class."""

from math import isqrt
from typing import Any

from edgewise.errors import ConfigError
from edgewise.models.hub import layout
from edgewise.models.signature import Features
from edgewise.models.text.transformer import Transformer


def _model(config: layout.Config) -> Transformer:
    layout.refuse(config, qkv_bias=True)
    rows, left = divmod(config["image_size"], config["patch_size"])
    if left:
        raise ConfigError(f"patches of {config['patch_size']} do not cut images of {config['image_size']} pixels")
    rates = layout.rates_from(config, "hidden_dropout_prob", "attention_probs_dropout_prob", 0.0)
    settings = layout.transformer_from(config, layout.OPTIONS, readout="class", **rates)
    inputs, outputs = config["num_channels"] * config["patch_size"] ** 2, len(config.get("id2label", (0, 1)))
    return Transformer(settings, Features(inputs, outputs, length=rows * rows, whole_graph=True))


def _config(model: Transformer) -> dict[str, Any]:
    settings, signature = model.settings, model.signature
    layout.refuse_unusual(settings)
    rows = isqrt(signature.length or 0)
    sizes = {c: isqrt(signature.inputs // c) for c in (1, 3) if signature.inputs % c == 0}
    channels = next((c for c, size in sizes.items() if c * size * size == signature.inputs), None)
    images = settings.readout == "class" and isinstance(signature, Features) and rows * rows == signature.length
    if channels is None or not images:
        raise ConfigError("ViT reads square patches of square images, grey or of three colours, with readout='class'")
    return {
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        **layout.options_from(settings, layout.OPTIONS),
        "hidden_dropout_prob": settings.dropout,
        "attention_probs_dropout_prob": settings.of_attention,
        "image_size": rows * sizes[channels],
        "patch_size": sizes[channels],
        "num_channels": channels,
        "qkv_bias": True,
        **layout.labelled(signature.outputs),
    }


ARCHITECTURE = layout.Architecture(
    prefix="vit.",
    whole=(
        layout.Part(
            "class_node",
            ("vit.embeddings.cls_token",),
            lambda theirs, config: theirs[0].flatten(),
            lambda node, config: (node.view(1, 1, -1),),
        ),
        layout.Part(
            "embed.weight",
            ("vit.embeddings.patch_embeddings.projection.weight",),
            lambda theirs, config: theirs[0].flatten(1),
            lambda weight, config: (
                weight.unflatten(1, (config["num_channels"], config["patch_size"], config["patch_size"])),
            ),
        ),
        layout.Part("embed.bias", ("vit.embeddings.patch_embeddings.projection.bias",)),
        layout.Part(
            "positions.weight",
            ("vit.embeddings.position_embeddings",),
            lambda theirs, config: theirs[0][0],
            lambda weight, config: (weight[None],),
        ),
        *layout.pair("norm", "vit.layernorm"),
        *layout.pair("head", "classifier"),
    ),
    blocks={
        "depth": (
            *layout.pair("blocks.{}.norm_1", "vit.encoder.layer.{}.layernorm_before"),
            *layout.stacked(
                "blocks.{}.attention.projection",
                [f"vit.encoder.layer.{{}}.attention.attention.{name}" for name in ("query", "key", "value")],
            ),
            *layout.pair("blocks.{}.attention.output", "vit.encoder.layer.{}.attention.output.dense"),
            *layout.pair("blocks.{}.norm_2", "vit.encoder.layer.{}.layernorm_after"),
            *layout.pair("blocks.{}.feed_forward.up", "vit.encoder.layer.{}.intermediate.dense"),
            *layout.pair("blocks.{}.feed_forward.down", "vit.encoder.layer.{}.output.dense"),
        )
    },
    model=_model,
    config=_config,
    spare=("vit.pooler.",),
    longer=lambda config, length: {"image_size": isqrt(length) * config["patch_size"]},
    plane=True,
)
