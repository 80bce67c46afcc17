"""BERT: an encoder of tokens, with a head for masked tokens or for texts."""

from typing import Any

import torch

from edgewise.errors import ConfigError
from edgewise.models.hub import layout
from edgewise.models.signature import Tokens
from edgewise.models.text.bert import BERT, BERTSettings


def _model(config: layout.Config) -> BERT:
    layout.refuse(config, position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    layout.refuse(config, tie_word_embeddings=True)
    texts = "BertForSequenceClassification" in config.get("architectures", ())
    settings = BERTSettings(**layout.settings_from(config, layout.OPTIONS), readout="first" if texts else "none")
    tokens, length = config["vocab_size"], config["max_position_embeddings"]
    outputs = len(config.get("id2label", (0, 1))) if texts else tokens
    return BERT(settings, Tokens(tokens, outputs, length=length, whole_graph=texts))


def _config(model: BERT) -> dict[str, Any]:
    settings, signature = model.settings, model.signature
    if settings.readout not in ("none", "first"):
        raise ConfigError(f"BERT reads a text by its first token, readout='first', not {settings.readout!r}")
    head = "ForSequenceClassification" if signature.whole_graph else "ForMaskedLM"
    return {
        "architectures": [f"Bert{head}"],
        "model_type": "bert",
        **layout.options_from(settings, layout.OPTIONS),
        "hidden_dropout_prob": settings.dropout,
        "attention_probs_dropout_prob": settings.dropout,
        "max_position_embeddings": signature.length,
        "type_vocab_size": 1,
        "vocab_size": signature.inputs,
        "pad_token_id": None,
        **layout.labelled(signature.outputs if signature.whole_graph else 2),
    }


ARCHITECTURE = layout.Architecture(
    prefix="bert.",
    whole=(
        layout.Part("embed.weight", ("bert.embeddings.word_embeddings.weight",)),
        layout.Part(
            "positions.weight",
            ("bert.embeddings.position_embeddings.weight", "bert.embeddings.token_type_embeddings.weight"),
            lambda theirs: theirs[0] + theirs[1][0],  # every text here is a first segment
            lambda weight, config: (weight, torch.zeros(config["type_vocab_size"], weight.shape[1])),
        ),
        *layout.pair("norm", "bert.embeddings.LayerNorm"),
        *layout.pair("readout.dense", "bert.pooler.dense"),
        *layout.pair("head", "classifier"),
        *layout.pair("masked.dense", "cls.predictions.transform.dense"),
        *layout.pair("masked.norm", "cls.predictions.transform.LayerNorm"),
        layout.Part("masked.bias", ("cls.predictions.bias",)),
    ),
    block=(
        *layout.stacked(
            "blocks.{}.attention.projection",
            [f"bert.encoder.layer.{{}}.attention.self.{name}" for name in ("query", "key", "value")],
        ),
        *layout.pair("blocks.{}.attention.output", "bert.encoder.layer.{}.attention.output.dense"),
        *layout.pair("blocks.{}.norm_1", "bert.encoder.layer.{}.attention.output.LayerNorm"),
        *layout.pair("blocks.{}.feed_forward.up", "bert.encoder.layer.{}.intermediate.dense"),
        *layout.pair("blocks.{}.feed_forward.down", "bert.encoder.layer.{}.output.dense"),
        *layout.pair("blocks.{}.norm_2", "bert.encoder.layer.{}.output.LayerNorm"),
    ),
    model=_model,
    config=_config,
    spare=(".position_ids", "cls.", "bert.pooler.", "classifier."),
)
