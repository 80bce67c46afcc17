"""BERT: an encoder of tokens, with a head for masked tokens or for texts. RoBERTa: with other heads, whose positions
are counted from the row of the padding token on."""

from functools import partial
from typing import Any

from edgewise.errors import ConfigError
from edgewise.models.hub import layout
from edgewise.models.signature import Tokens
from edgewise.models.text.bert import BERT, BERTSettings

PADDING = 1  # the token that pads, in every RoBERTa; texts here have none


def model_from(config: layout.Config, unused: int = 0) -> BERT:
    """An encoder of that configuration, whose first positions are `unused`."""
    layout.refuse(config, position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    layout.refuse(config, tie_word_embeddings=True)
    texts = any(name.endswith("ForSequenceClassification") for name in config.get("architectures") or ())
    rates = layout.rates_from(config, "hidden_dropout_prob", "attention_probs_dropout_prob", 0.1)
    options = layout.settings_from(config, layout.OPTIONS) | rates
    of_head = None if (rate := config.get("classifier_dropout")) is None else float(rate)
    settings = BERTSettings(**options, head_dropout=of_head, readout="first" if texts else "none")
    tokens, length = config["vocab_size"], config["max_position_embeddings"] - unused
    outputs = len(config.get("id2label", (0, 1))) if texts else tokens
    return BERT(settings, Tokens(tokens, outputs, length=length, whole_graph=texts))


def config_of(model: BERT, kind: str, unused: int = 0) -> dict[str, Any]:
    """The configuration of an encoder, as a model of that kind whose first positions are `unused`."""
    if not isinstance(model, BERT):
        raise ConfigError(f"{kind} is the model bert, of post-norm blocks: this model is none")
    settings, signature = model.settings, model.signature
    if settings.readout not in ("none", "first"):
        raise ConfigError(f"{kind} reads a text by its first token, readout='first', not {settings.readout!r}")
    head = "ForSequenceClassification" if signature.whole_graph else "ForMaskedLM"
    return {
        "architectures": [f"{kind}{head}"],
        "model_type": kind.lower(),
        **layout.options_from(settings, layout.OPTIONS),
        "hidden_dropout_prob": settings.dropout,
        "attention_probs_dropout_prob": settings.of_attention,
        "classifier_dropout": settings.head_dropout,
        "max_position_embeddings": (signature.length or 1) + unused,
        "type_vocab_size": 1,
        "vocab_size": signature.inputs,
        "pad_token_id": unused - 1 if unused else None,
        **layout.labelled(signature.outputs if signature.whole_graph else 2),
    }


def encoder_block(prefix: str) -> tuple[layout.Part, ...]:
    """The tensors of one block of an encoder."""
    return (
        *layout.stacked(
            "blocks.{}.attention.projection",
            [f"{prefix}.encoder.layer.{{}}.attention.self.{name}" for name in ("query", "key", "value")],
        ),
        *layout.pair("blocks.{}.attention.output", f"{prefix}.encoder.layer.{{}}.attention.output.dense"),
        *layout.pair("blocks.{}.norm_1", f"{prefix}.encoder.layer.{{}}.attention.output.LayerNorm"),
        *layout.pair("blocks.{}.feed_forward.up", f"{prefix}.encoder.layer.{{}}.intermediate.dense"),
        *layout.pair("blocks.{}.feed_forward.down", f"{prefix}.encoder.layer.{{}}.output.dense"),
        *layout.pair("blocks.{}.norm_2", f"{prefix}.encoder.layer.{{}}.output.LayerNorm"),
    )


ARCHITECTURE = layout.Architecture(
    prefix="bert.",
    whole=(
        layout.Part(
            "embed.weight", ("bert.embeddings.word_embeddings.weight",), copies=("cls.predictions.decoder.weight",)
        ),
        *layout.embedded("positions", "bert.embeddings.position_embeddings", "bert.embeddings.token_type_embeddings"),
        *layout.pair("norm", "bert.embeddings.LayerNorm"),
        *layout.pair("readout.dense", "bert.pooler.dense"),
        *layout.pair("head", "classifier"),
        *layout.pair("masked.dense", "cls.predictions.transform.dense"),
        *layout.pair("masked.norm", "cls.predictions.transform.LayerNorm"),
        layout.Part("masked.bias", ("cls.predictions.bias",), copies=("cls.predictions.decoder.bias",)),
    ),
    blocks={"depth": encoder_block("bert")},
    model=model_from,
    config=partial(config_of, kind="Bert"),
    spare=(".position_ids", "cls.", "bert.pooler.", "classifier."),
)


def _roberta(config: layout.Config) -> BERT:
    layout.refuse(config, hidden_act="gelu")  # that of its head, whatever the others
    return model_from(config, unused=config["pad_token_id"] + 1)


ROBERTA = layout.Architecture(
    prefix="roberta.",
    whole=(
        layout.Part("embed.weight", ("roberta.embeddings.word_embeddings.weight",), copies=("lm_head.decoder.weight",)),
        *layout.embedded(
            "positions",
            "roberta.embeddings.position_embeddings",
            "roberta.embeddings.token_type_embeddings",
            padded=True,
        ),
        *layout.pair("norm", "roberta.embeddings.LayerNorm"),
        *layout.pair("readout.dense", "classifier.dense"),
        *layout.pair("head", "classifier.out_proj"),
        *layout.pair("masked.dense", "lm_head.dense"),
        *layout.pair("masked.norm", "lm_head.layer_norm"),
        layout.Part("masked.bias", ("lm_head.bias",), copies=("lm_head.decoder.bias",)),
    ),
    blocks={"depth": encoder_block("roberta")},
    model=_roberta,
    config=partial(config_of, kind="Roberta", unused=PADDING + 1),
    spare=(".position_ids", "lm_head.", "roberta.pooler.", "classifier."),
    longer=lambda config, length: {"max_position_embeddings": length + config["pad_token_id"] + 1},
)
