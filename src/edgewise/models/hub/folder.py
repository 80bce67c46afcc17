"""Weights of others: folders in the layout of Hugging Face, read into our models and written from them.

A folder in that layout holds `config.json` and the weights as safetensors, in one file or in several with an index.
Files of pickled tensors (`pytorch_model.bin`) are not read: to read them is to run what they say.
"""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from edgewise.configuration import Choice
from edgewise.errors import ConfigError, a_kind
from edgewise.files import reading
from edgewise.graphs import Graph
from edgewise.models.hub.layout import known
from edgewise.models.hub.pretrained import ARCHITECTURES, CONFIG, Extension, Pretrained
from edgewise.models.signature import Tokens
from edgewise.models.size import build, outline
from edgewise.models.text.bert import BERT
from edgewise.models.text.encoder_decoder import EncoderDecoder
from edgewise.models.text.transformer import Transformer


def from_hugging_face(
    folder: Path | str, *, length: int | None = None, extend: Extension | None = None
) -> Transformer | BERT | EncoderDecoder:
    """A model with the settings and weights of a folder in the layout of Hugging Face.

    Symbols     length = positions that the model is to have, where other than those of the folder; extend = where the
                positions beyond those come from: "interpolated" among them, or "repeated"
    Shapes      GPT-2, LLaMA, Mistral and Qwen 2 read tokens on `causal(n)`, BERT and RoBERTa on `complete(n)`; ViT
                reads patches [*, N, colours · rows · columns] on `complete(N)`, with the task's output in front:
                [*, 1, labels]; T5 reads sources and targets on an `EncoderDecoderGraph`. `hugging_face_graph(folder)`
                knows the folder's own window
    Errors      DataError for a folder without `config.json` and safetensors; ConfigError for another model or one that
                has an option that ours has not, or more positions without `extend`; CheckpointError for a tensor that
                is missing, left over, misshapen or of whole numbers, or that contradicts another of the same weight
    Edge cases  names with or without the prefix of the bare model; a head of which the folder has nothing keeps its own
                weights; BERT has the head that the folder's `architectures` name, else that for masked tokens. Its
                second segment and next-sentence head are left out. Fewer positions are the first ones. Rotary positions
                are interpolated by dividing them; T5 has no largest length
    Reference   Radford et al., 2019; Dosovitskiy et al., 2021; Devlin et al., 2019; Liu et al., 2019; Touvron et al.,
                2023; Jiang et al., 2023; Raffel et al., 2020; layout: the library `transformers`
    """
    given = Pretrained.open(folder)
    if extend is not None and length is None:
        raise ConfigError(f"extend={extend!r} needs the length to extend to")
    if length is not None:
        given = given.of_length(length, extend)
    weights = given.weights(given.outline, extend)
    model: Transformer | BERT | EncoderDecoder = build(given.make, str(given.folder / CONFIG))
    model.load_state_dict(model.state_dict() | {name: make() for name, make in weights.items()})
    return model.eval()


def hugging_face_graph(folder: Path | str) -> Callable[[int], Graph]:
    """Who attends to whom in a folder's model: `hugging_face_graph(folder)(n)` is the graph of n tokens or patches.

    Errors      as `from_hugging_face`
    """
    given = Pretrained.open(folder)
    return given.kind.graph(given.config)


def to_hugging_face(model: Transformer | BERT | EncoderDecoder, folder: Path | str, kind: str | None = None) -> None:
    """Write a model as a folder that the library `transformers` reads.

    Symbols     kind = the folder's model_type, such as "roberta" or "qwen2"; None: the likeliest for the model
    Errors      ConfigError for a model that is none of that kind, or a folder that holds a model already; nothing is
                written
    Edge cases  biases that the layout has and the model lacks are written as zeros
    """
    folder = Path(folder)
    if (folder / CONFIG).exists():
        raise ConfigError(f"{folder} holds a model already: name a new folder")
    architecture = known(ARCHITECTURES, "kind", _kind_of(model) if kind is None else kind)
    with reading(a_kind(model), f"a model of kind {kind!r}", ConfigError):
        config = architecture.config(model)
        theirs = outline(lambda: architecture.model(config), "the model of that layout").state_dict()
    own, tensors = model.state_dict(), dict[str, Tensor]()
    for part in architecture.parts(model.settings):
        if part.ours not in theirs and part.ours not in own:
            continue
        if part.ours not in own and not part.ours.endswith(".bias"):
            raise ConfigError(f"this model lacks {part.ours!r}, which that layout has")
        ours = own[part.ours].detach().cpu() if part.ours in own else torch.zeros(theirs[part.ours].shape)
        values = part.write(ours, config)
        tensors |= {name: value.contiguous() for name, value in zip(part.theirs, values, strict=True)}
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: value.clone() for name, value in tensors.items()}, folder / ".writing", {"format": "pt"})
    (folder / ".writing").replace(folder / "model.safetensors")
    (folder / ".writing").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (folder / ".writing").replace(folder / CONFIG)


def _kind_of(model: Transformer | BERT | EncoderDecoder) -> str:
    if isinstance(model, BERT):
        return "bert"
    if isinstance(model, EncoderDecoder):
        return "t5"
    if not isinstance(model.signature, Tokens):
        return "vit"
    if Choice.of(model.settings.positions).name != "rotary":
        return "gpt2"
    return "qwen2" if Choice.of(model.settings.attention).options.get("inputs_bias") else "llama"
