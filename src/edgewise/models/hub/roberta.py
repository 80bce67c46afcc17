"""RoBERTa: BERT with other heads, whose positions are counted from the row of the padding token on."""

from functools import partial

from edgewise.models.hub import layout
from edgewise.models.hub.bert import config_of, encoder_block, model_from
from edgewise.models.text.bert import BERT

PADDING = 1  # the token that pads, in every RoBERTa; texts here have none


def _model(config: layout.Config) -> BERT:
    layout.refuse(config, hidden_act="gelu")  # that of its head, whatever the others
    return model_from(config, unused=config["pad_token_id"] + 1)


ARCHITECTURE = layout.Architecture(
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
    model=_model,
    config=partial(config_of, kind="Roberta", unused=PADDING + 1),
    spare=(".position_ids", "lm_head.", "roberta.pooler.", "classifier."),
    longer=lambda config, length: {"max_position_embeddings": length + config["pad_token_id"] + 1},
)
