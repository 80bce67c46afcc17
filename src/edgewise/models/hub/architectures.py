"""How kinds of models are written in the layout of Hugging Face and here: names of tensors and options, their maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isclose, isqrt, log
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise.configuration import Choice, chosen
from edgewise.errors import ConfigError
from edgewise.graphs import Graph, causal, complete, window
from edgewise.models.parts import BLOCKS, GATES, PostNorm, PreNorm, Sandwich
from edgewise.models.signature import Features, TokenPairs, Tokens
from edgewise.models.text.bert import BERT, BERTSettings
from edgewise.models.text.encoder_decoder import EncoderDecoder, EncoderDecoderSettings
from edgewise.models.text.transformer import Transformer, TransformerSettings
from edgewise.models.vision.swin import Swin, SwinSettings

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """One of our tensors and the tensors of theirs that it is made of, by name, {} being a block's number; `read` makes
    ours from theirs and their configuration, and `write` theirs from ours and their configuration. `copies` are other
    names of the first one, where it is tied: a file may have it under any of them. `texts` says whether it is a part of
    models of whole texts alone, or of others alone."""

    ours: str
    theirs: tuple[str, ...]
    read: Callable[[Sequence[Tensor], Config], Tensor] = lambda theirs, config: theirs[0]
    write: Callable[[Tensor, Config], Sequence[Tensor]] = lambda ours, config: (ours,)
    copies: tuple[str, ...] = ()
    texts: bool | None = None

    def block(self, *number: int) -> Part:
        """The same part of one block, or of one of a stage."""
        return replace(self, ours=self.ours.format(*number), theirs=tuple(t.format(*number) for t in self.theirs))


def pair(ours: str, theirs: str) -> tuple[Part, Part]:
    """A weight and its bias."""
    return Part(f"{ours}.weight", (f"{theirs}.weight",)), Part(f"{ours}.bias", (f"{theirs}.bias",))


def flipped(part: Part) -> Part:
    """A matrix that is ours transposed."""
    return replace(part, read=lambda theirs, config: theirs[0].T, write=lambda ours, config: (ours.T,))


def transposed(ours: str, theirs: str) -> tuple[Part, Part]:
    """The same where they multiply from the right."""
    weight, bias = pair(ours, theirs)
    return flipped(weight), bias


def stacked(ours: str, theirs: Sequence[str]) -> tuple[Part, Part]:
    """Several linear maps that are one here."""
    weight, bias = (
        Part(
            f"{ours}.{part}",
            tuple(f"{name}.{part}" for name in theirs),
            lambda theirs, config: torch.cat(list(theirs)),
            lambda x, config: x.chunk(len(theirs)),
        )
        for part in ("weight", "bias")
    )
    return weight, bias


def grouped(ours: str, theirs: Sequence[str]) -> tuple[Part, Part]:
    """Queries, keys and values that are one linear map here, where several heads may share keys and values."""

    def write(x: Tensor, config: Config) -> Sequence[Tensor]:
        heads, shared = config["num_attention_heads"], config["num_key_value_heads"]
        channels = len(x) // (heads + 2 * shared)
        return x.split([heads * channels, shared * channels, shared * channels])

    weight, bias = stacked(ours, theirs)
    return replace(weight, write=write), replace(bias, write=write)


def embedded(ours: str, theirs: str, segments: str, padded: bool = False) -> tuple[Part, ...]:
    """Learned positions, to which the embedding of the first segment is added: every text here is one. Where they are
    `padded`, position 0 comes after the row of the token that pads."""

    def skipped(config: Config) -> int:
        return config["pad_token_id"] + 1 if padded else 0

    def write(weight: Tensor, config: Config) -> Sequence[Tensor]:
        front = torch.zeros(skipped(config), weight.shape[1])
        return torch.cat([front, weight]), torch.zeros(config["type_vocab_size"], weight.shape[1])

    names = (f"{theirs}.weight", f"{segments}.weight")
    return (Part(f"{ours}.weight", names, lambda theirs, c: theirs[0][skipped(c) :] + theirs[1][0], write),)


@dataclass(frozen=True)
class Architecture:
    """How one kind of model is written there and here.

    The names of the bare model begin with `prefix` inside a model with a head. The tensors are those outside the
    blocks, of all heads that there are, and those of one block of each stack, by the setting that says how many blocks
    it has. `spare` is what names of tensors contain that ours has no use for: old masks, and what only another head
    reads; what is `zero` there must be. `graph` says who attends to whom, and `longer` what their options are
    for more positions; those of a `plane` are of a square of patches, after the class node's."""

    prefix: str
    whole: tuple[Part, ...]
    blocks: Mapping[str, tuple[Part, ...]]
    model: Callable[[Config], Any]
    config: Callable[[Any], dict[str, Any]]
    spare: tuple[str, ...]
    graph: Callable[[Config], Callable[[int], Graph]] = lambda config: complete
    longer: Callable[[Config, int], dict[str, Any]] = lambda config, length: {"max_position_embeddings": length}
    plane: bool = False
    zero: tuple[str, ...] = ()

    def parts(self, settings: Any) -> list[Part]:
        """All tensors of a model with those settings."""
        texts = getattr(settings, "readout", "none") != "none"
        made = [part for part in self.whole if part.texts in (None, texts)]
        for depth, block in self.blocks.items():
            count = getattr(settings, depth)  # of blocks, or of those of each stage
            stages = [((), count)] if isinstance(count, int) else [((stage,), c) for stage, c in enumerate(count)]
            made += [part.block(*stage, n) for stage, c in stages for n in range(c) for part in block]
        return made


TABLES: dict[str, Mapping[Any, str]] = {
    "activation": dict.fromkeys(("gelu_new", "gelu_pytorch_tanh"), "gelu-tanh")
    | {name: name for name in ("gelu", "relu", "silu")},
    "norm": {1e-5: "layer", 1e-12: "fine-layer"},
}
OPTIONS = {  # what our settings are called in the configuration of an encoder
    "width": "hidden_size",
    "depth": "num_hidden_layers",
    "heads": "num_attention_heads",
    "hidden": "intermediate_size",
    "activation": "hidden_act",
    "norm": "layer_norm_eps",
}


def is_bounded(settings: TransformerSettings) -> bool:
    """Whether it has what Gemma 2 has beside LLaMA's: scores or outputs with a cap, blocks of the last tokens."""
    options = Choice.of(settings.attention).options
    return bool(settings.local or settings.cap or options.get("scale") or options.get("cap"))


def refuse_unusual(settings: TransformerSettings) -> None:
    block, attention = chosen("block", settings.block, BLOCKS)(), Choice.of(settings.attention)
    positions = Choice.of(settings.positions)
    plain = type(block) is PreNorm and positions.name == "learned" and not positions.options.get("norm")
    shared = attention.options.get("key_value_heads") not in (None, settings.heads)
    if not plain or attention.name != "softmax" or shared or is_bounded(settings) or attention.options.get("normed"):
        theirs = "pre-norm blocks, learned positions and as many keys as queries"
        raise ConfigError(f"their layout has {theirs}: this model has others")


def known(table: Mapping[Any, Any], option: str, value: Any) -> Any:
    if value not in table:
        raise ConfigError(f"{option} {value!r} has no counterpart here: known are {', '.join(map(str, table))}")
    return table[value]


def named(table: Mapping[Any, str], ours: str, option: str) -> Any:
    for theirs, name in table.items():
        if name == ours:
            return theirs
    raise ConfigError(f"{option}={ours!r} has no counterpart there: known are {', '.join(table.values())}")


def refuse(config: Config, **expected: Any) -> None:
    for option, value in expected.items():
        if config.get(option) not in (None, value):
            raise ConfigError(f"{option} {config[option]!r} has no counterpart here: only {value!r} has")


def reads_texts(config: Config) -> bool:
    """Whether a model's head classifies whole texts."""
    return any(name.endswith("ForSequenceClassification") for name in config.get("architectures") or ())


def labelled(count: int) -> dict[str, dict[Any, Any]]:
    """The names of that many classes, both ways."""
    numbers = {f"LABEL_{number}": number for number in range(count)}
    return {"id2label": {str(number): name for name, number in numbers.items()}, "label2id": numbers}


def settings_from(
    config: Config, options: Mapping[str, str], tables: Mapping[str, Mapping[Any, str]] = TABLES
) -> dict[str, Any]:
    """What our settings are in their configuration; options = the names of ours there."""
    settings = {ours: config[theirs] for ours, theirs in options.items()}
    return settings | {name: known(table, options[name], settings[name]) for name, table in tables.items()}


def rates_from(config: Config, stages: str, attention: str, default: float) -> dict[str, float | None]:
    """Our two rates of dropout, by the names of theirs, which are the default where they are left out."""
    dropout, weights = (float(config.get(name, default)) for name in (stages, attention))
    return {"dropout": dropout, "attention_dropout": None if weights == dropout else weights}


def transformer_from(config: Config, options: Mapping[str, str], **others: Any) -> TransformerSettings:
    """The same for a transformer, whose parts have their own options."""
    settings, rate = settings_from(config, options), others.pop("attention_dropout", None)
    if rate is not None:
        others["attention"] = Choice("softmax", {"dropout": rate})
    feed_forward = Choice(settings.pop("activation"), {"hidden": settings.pop("hidden")})
    block = Choice("pre-norm", {"norm": settings.pop("norm")})
    return TransformerSettings(**settings, feed_forward=feed_forward, block=block, **others)


def options_from(
    settings: Any, options: Mapping[str, str], tables: Mapping[str, Mapping[Any, str]] = TABLES
) -> dict[str, Any]:
    """What their options are in our settings."""
    given = vars(settings)
    if isinstance(settings, TransformerSettings | EncoderDecoderSettings):
        feed_forward, block = Choice.of(settings.feed_forward), chosen("block", settings.block, BLOCKS)()
        given = given | {"hidden": feed_forward.options.get("hidden"), "norm": block.norm}
        given |= {"activation": feed_forward.name}
    given = {name: given[name] for name in options}
    given["hidden"] = given["hidden"] or 4 * settings.width
    given |= {name: named(table, given[name], name) for name, table in tables.items()}
    return {options[name]: value for name, value in given.items()}


def is_plain(file: str) -> bool:
    """Whether a name is that of a file of safetensors, and of no other folder."""
    return file.endswith(".safetensors") and Path(file).name == file and "\\" not in file


GPT2_OPTIONS = {
    "width": "n_embd",
    "depth": "n_layer",
    "heads": "n_head",
    "hidden": "n_inner",
    "activation": "activation_function",
    "norm": "layer_norm_epsilon",
}


def _gpt2(config: Config) -> Transformer:
    refuse(config, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    refuse(config, tie_word_embeddings=True)
    rates = rates_from(config, "resid_pdrop", "attn_pdrop", 0.1)
    refuse({"embd_pdrop": 0.1, **config}, embd_pdrop=rates["dropout"])  # one rate here
    settings = transformer_from({"n_inner": None, **config}, GPT2_OPTIONS, tied=True, **rates)
    tokens, length = config["vocab_size"], config["n_positions"]
    return Transformer(settings, Tokens(tokens, tokens, length=length))


def _gpt2_config(model: Transformer) -> dict[str, Any]:
    settings, signature = model.settings, model.signature
    refuse_unusual(settings)
    if not (settings.tied and isinstance(signature, Tokens) and settings.readout == "none"):
        raise ConfigError("GPT-2 is a language model with tied embeddings: this model is none")
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        **options_from(settings, GPT2_OPTIONS),
        **dict.fromkeys(("embd_pdrop", "resid_pdrop"), settings.dropout),
        "attn_pdrop": settings.of_attention,
        "n_positions": signature.length,
        "vocab_size": signature.inputs,
        "tie_word_embeddings": True,
        **dict.fromkeys(("bos_token_id", "eos_token_id")),
    }


GPT2 = Architecture(
    prefix="transformer.",
    whole=(
        Part("embed.weight", ("transformer.wte.weight",), copies=("lm_head.weight",)),
        Part("positions.weight", ("transformer.wpe.weight",)),
        *pair("norm", "transformer.ln_f"),
    ),
    blocks={
        "depth": (
            *pair("blocks.{}.norm_1", "transformer.h.{}.ln_1"),
            *transposed("blocks.{}.attention.projection", "transformer.h.{}.attn.c_attn"),
            *transposed("blocks.{}.attention.output", "transformer.h.{}.attn.c_proj"),
            *pair("blocks.{}.norm_2", "transformer.h.{}.ln_2"),
            *transposed("blocks.{}.feed_forward.up", "transformer.h.{}.mlp.c_fc"),
            *transposed("blocks.{}.feed_forward.down", "transformer.h.{}.mlp.c_proj"),
        )
    },
    model=_gpt2,
    config=_gpt2_config,
    spare=(".attn.bias", ".attn.masked_bias"),
    longer=lambda config, length: {"n_positions": length},
    graph=lambda config: causal,
)


LLAMA_OPTIONS = OPTIONS | {"norm": "rms_norm_eps"}
LLAMA_TABLES: dict[str, dict[Any, str]] = {
    "activation": {"silu": "swiglu", "gelu_pytorch_tanh": "geglu", "gelu_new": "geglu"},
    "norm": {1e-6: "rms", 1e-5: "coarse-rms"},
}
SLIDING, FULL = "sliding_attention", "full_attention"
LENGTH = 2048  # written where a model has no largest length


GEMMA: dict[str, Any] = {"hidden_act": "gelu_pytorch_tanh", "head_dim": 256, "tie_word_embeddings": True}
LOCAL = GEMMA | {"sliding_window": 4096, "query_pre_attn_scalar": 256}
LEFT_OUT: dict[str, dict[str, Any]] = {  # what the configuration of a kind may leave out
    "Gemma": GEMMA,
    "Gemma2": LOCAL | {"sliding_window_pattern": 2, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "Gemma3": LOCAL | {"sliding_window_pattern": 6, "rope_theta": 1e6, "rope_local_base_freq": 1e4},
    "Qwen3": {"head_dim": 128},
}
NORMED, SANDWICHED = ("Qwen3", "Gemma3"), ("Gemma2", "Gemma3")


def _llama(config: Config, kind: str) -> Transformer:
    config = {"rms_norm_eps": 1e-6, "hidden_act": "silu", **LEFT_OUT.get(kind, {}), **config}
    if kind == "Gemma" and config["hidden_act"] == "gelu":
        config["hidden_act"] = "gelu_pytorch_tanh"  # as transformers reads old folders
    if kind in SANDWICHED:
        config["hidden_act"] = config.get("hidden_activation") or config["hidden_act"]
    settings = settings_from(config, LLAMA_OPTIONS, LLAMA_TABLES)
    heads, width, texts = settings["heads"], settings["width"], reads_texts(config)
    refuse(config, pretraining_tp=1, use_bidirectional_attention=False)
    _graph(config)  # or its error
    bias = kind == "Llama" and config.get("mlp_bias", False)
    output = kind not in ("Mistral", "Qwen2") and config.get("attention_bias", False)
    options: dict[str, Any] = {"key_value_heads": config.get("num_key_value_heads") or heads}
    biases = {"inputs_bias": output or kind == "Qwen2", "output_bias": output}
    options |= {name: has for name, has in biases.items() if has != bias}
    if kind in NORMED:
        refuse(config, rms_norm_eps=1e-6)
        options["normed"] = True
    if rate := float(config.get("attention_dropout", 0.0)):
        options["dropout"] = rate
    if kind in SANDWICHED:
        options |= {"scale": config["query_pre_attn_scalar"] ** -0.5, "cap": config.get("attn_logit_softcapping")}
    positions, channels = _rotary(config), config.get("head_dim") or width // heads
    if channels * heads != width:
        positions = Choice(positions.name, {**positions.options, "channels": channels})
    around = "sandwich" if kind in SANDWICHED else "pre-norm"
    made = TransformerSettings(
        width,
        settings["depth"],
        heads,
        attention=Choice("softmax", options),
        positions=positions,
        feed_forward=Choice(settings["activation"], {"hidden": settings["hidden"]}),
        block=Choice(around, {"norm": settings["norm"], "bias": bias}),
        readout="last" if texts else "none",
        tied=_ties(config),
        cap=None if texts else config.get("final_logit_softcapping"),
        **(_layers(config) if kind in SANDWICHED else {}),
    )
    tokens = config["vocab_size"]
    outputs = len(config.get("id2label", (0, 1))) if texts else tokens
    return Transformer(made, Tokens(tokens, outputs, length=_length(config), whole_graph=texts))


def _ties(config: Config) -> bool:
    """Whether the output layer is the embedding."""
    kept = str(config.get("model_type")).startswith("gemma")
    return not reads_texts(config) and bool(config.get("tie_word_embeddings", kept))


def _layers(config: Config) -> dict[str, int]:
    """Which layers attend to the last tokens alone, and to how many: all but every n-th."""
    kinds, every = config.get("layer_types"), config["sliding_window_pattern"]
    if kinds:
        every = [*kinds, FULL].index(FULL) + 1
        refuse(config, layer_types=[SLIDING if number % every else FULL for number in range(1, len(kinds) + 1)])
    return {"local": config["sliding_window"], "every": every}


def _length(config: Config) -> int:
    length: int = config.get("max_position_embeddings", LENGTH)
    return length


def _rotary(config: Config) -> Choice:
    """The rotation, as transformers 5 writes it, or older versions."""
    beside = {name: config[name] for name in ("rope_theta", "partial_rotary_factor") if name in config}
    given = config.get("rope_scaling") or config.get("rope_parameters") or {}
    rope = beside | (given.get(FULL) or {} if FULL in given or SLIDING in given else given)
    rope = {"rope_theta": 10000.0, TRAINED: _length(config)} | {n: v for n, v in rope.items() if v is not None}
    refuse(rope, partial_rotary_factor=1.0)
    kind = rope.get("rope_type", rope.get("type", "default"))
    options: dict[str, Any] = {"base": float(rope["rope_theta"])}
    local = {"rope_theta": config.get("rope_local_base_freq")} | (given.get(SLIDING) or {})
    if local["rope_theta"]:
        refuse(local, rope_type="default")
        options["local"] = float(local["rope_theta"])
    names = known(ROPES, "rope_type", kind)
    if kind == "yarn":
        options["yarn"], rope = True, {"beta_fast": 32.0, "beta_slow": 1.0, **rope}
        gain = 0.1 * log(max(rope["factor"], 1.0)) + 1
        near = isclose(rope.get("attention_factor", gain), gain, rel_tol=1e-6)
        refuse(rope, truncate=True, mscale=None, mscale_all_dim=None, **({} if near else {"attention_factor": gain}))
    for ours, theirs in names.items():
        options[ours] = int(rope[theirs]) if ours == "trained" else float(rope[theirs])
    return Choice("rotary", options)


TRAINED = "original_max_position_embeddings"
LINEAR = {"stretch": "factor"}
ROPES: dict[str, dict[str, str]] = {  # what our options are called there
    "default": {},
    "linear": LINEAR,
    "llama3": LINEAR | {"trained": TRAINED, "slow": "low_freq_factor", "fast": "high_freq_factor"},
    "yarn": LINEAR | {"trained": TRAINED, "slow": "beta_slow", "fast": "beta_fast"},
}


def _rope(options: Mapping[str, Any]) -> dict[str, Any]:
    """A rotation as transformers 5 writes it."""
    turned = {"base": 10000.0, "stretch": 1.0, "trained": 0, "slow": 1.0, "fast": 4.0, "yarn": False, **options}
    stretched = "yarn" if turned["yarn"] else "llama3" if turned["trained"] else "linear"
    kind = "default" if turned["stretch"] == 1 else stretched
    given = {theirs: turned[ours] for ours, theirs in ROPES[kind].items()}
    own, near = {"rope_theta": turned["base"], "rope_type": kind, **given}, options.get("local")
    return own if near is None else {FULL: own, SLIDING: _rope({"base": near})}


def _longer(config: Config, length: int) -> dict[str, Any]:
    """Positions divided so that they fit among those trained on."""
    turned = _rotary(config).options
    factor = turned.get("stretch", 1.0) * max(1.0, length / _length(config))
    rope = _rope({**turned, "stretch": factor})
    return {"max_position_embeddings": length, "rope_parameters": rope, "rope_scaling": None}


def _graph(config: Config) -> Callable[[int], Graph]:
    """Causal, or the last tokens of a window, which LLaMA has not, Gemma and Qwen may have in some layers."""
    kind, kinds = config.get("model_type"), config.get("layer_types")
    reach = None if kind in ("llama", "gemma", "gemma2", "gemma3_text") else config.get("sliding_window", 4096)
    if kind in ("qwen2", "qwen3"):
        reach = reach if config.get("use_sliding_window", False) else None
        full = config.get("max_window_layers", 28)
        kinds = kinds or [SLIDING if layer >= full else FULL for layer in range(config["num_hidden_layers"])]
        reach = reach if SLIDING in kinds else None
    if reach is not None and kinds and len(set(kinds)) > 1:
        what = f"a window of {reach} tokens in {kinds.count(SLIDING)} of {len(kinds)} layers (layer_types)"
        raise ConfigError(f"{what} has no counterpart here: all layers share one graph")
    return causal if reach is None else partial(window, radius=reach - 1, sides="past")


def reach_of(graph: Callable[[int], Graph]) -> int | None:
    """How many tokens each attends to, itself included, on the graphs of a folder; None without a window."""
    return graph.keywords["radius"] + 1 if isinstance(graph, partial) else None


def _llama_config(model: Transformer, kind: str) -> dict[str, Any]:
    settings, signature = model.settings, model.signature
    block, attention = chosen("block", settings.block, BLOCKS)(), Choice.of(settings.attention)
    positions, feed_forward = Choice.of(settings.positions), Choice.of(settings.feed_forward)
    plain = attention.name == "softmax" and settings.readout in ("none", "last")
    plain = plain and type(block) is (Sandwich if kind in SANDWICHED else PreNorm)
    if not (plain and positions.name == "rotary" and isinstance(signature, Tokens) and feed_forward.name in GATES):
        blocks = "sandwich" if kind in SANDWICHED else "pre-norm"
        theirs = f"a language model of {blocks} blocks with rotary positions and a gated network"
        raise ConfigError(f"{kind} is {theirs}: this model is none")
    given = (attention.options.get(name) for name in ("inputs_bias", "output_bias"))
    inputs, output = (block.bias if has is None else has for has in given)
    fits = not output if kind == "Qwen2" else inputs == output and not (inputs and kind == "Mistral")
    if not fits or (block.bias and kind != "Llama"):
        other = "qwen2" if inputs and not (output or block.bias) else "llama"
        raise ConfigError(f"{kind} has other biases than this model: write it as {other}")
    if attention.options.get("normed", False) != (kind in NORMED):
        raise ConfigError(f"queries and keys are normalised in qwen3 and gemma3: {kind} is not what this model is")
    cap, near = attention.options.get("cap"), positions.options.get("local")
    if (is_bounded(settings) and kind not in SANDWICHED) or (near is not None) != (kind == "Gemma3"):
        raise ConfigError(f"caps and layers of the last tokens are those of gemma2 and gemma3: {kind} has others")
    reach: int | None = getattr(model, "window", None)
    if kind in ("Llama", "Gemma", *SANDWICHED) and reach is not None:
        raise ConfigError(f"{kind} has no window, and this model reads {reach} tokens: write it as mistral")
    qwen = kind in ("Qwen2", "Qwen3")
    sliding = {"use_sliding_window": True, "max_window_layers": 0} if qwen and reach is not None else {}
    texts, options = settings.readout == "last", options_from(settings, LLAMA_OPTIONS, LLAMA_TABLES)
    channels = positions.options.get("channels") or settings.width // settings.heads
    local = {
        "hidden_activation": options["hidden_act"],
        "query_pre_attn_scalar": round((attention.options.get("scale") or channels**-0.5) ** -2),
        "attn_logit_softcapping": cap,
        "final_logit_softcapping": settings.cap,
        "layer_types": [SLIDING if is_local else FULL for is_local in settings.is_local],
    }
    return {
        "architectures": [f"{kind}For{'SequenceClassification' if texts else 'CausalLM'}"],
        "model_type": kind.lower() + ("_text" if kind == "Gemma3" else ""),
        **options,
        "num_key_value_heads": attention.options.get("key_value_heads") or settings.heads,
        "head_dim": channels,
        "attention_dropout": settings.of_attention,
        "rope_parameters": _rope(positions.options),
        "max_position_embeddings": signature.length or LENGTH,
        "vocab_size": signature.inputs,
        "tie_word_embeddings": settings.tied,
        "attention_bias": output,
        "mlp_bias": block.bias,
        "sliding_window": settings.local or reach,
        **sliding,
        **(local if kind in SANDWICHED else {}),
        **(labelled(signature.outputs) if texts else {}),
        **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")),
    }


def _llama_like(kind: str) -> Architecture:
    def own(*parts: Part) -> tuple[Part, ...]:
        return tuple(map(_gemma, parts)) if kind.startswith("Gemma") else parts

    theirs = ["input", "post_attention"]
    theirs = ["input", "pre_feedforward", "post_attention", "post_feedforward"] if kind in SANDWICHED else theirs
    norms = {f"blocks.{{}}.norm_{n}": f"model.layers.{{}}.{name}_layernorm" for n, name in enumerate(theirs, 1)}

    return Architecture(
        prefix="model.",
        whole=own(
            Part("embed.weight", ("model.embed_tokens.weight",), copies=("lm_head.weight",)),
            Part("norm.weight", ("model.norm.weight",)),
            Part("head.weight", ("lm_head.weight",), texts=False),
            Part("head.weight", ("score.weight",), texts=True),
        ),
        blocks={
            "depth": own(
                *(pair(*names)[0] for names in norms.items()),
                *grouped(
                    "blocks.{}.attention.projection",
                    [f"model.layers.{{}}.self_attn.{name}_proj" for name in "qkv"],
                ),
                *(pair(f"blocks.{{}}.attention.norm_{x}", f"model.layers.{{}}.self_attn.{x}_norm")[0] for x in "qk"),
                *pair("blocks.{}.attention.output", "model.layers.{}.self_attn.o_proj"),
                *stacked(
                    "blocks.{}.feed_forward.gate_and_value",
                    [f"model.layers.{{}}.mlp.{name}_proj" for name in ("gate", "up")],
                ),
                *pair("blocks.{}.feed_forward.down", "model.layers.{}.mlp.down_proj"),
            )
        },
        model=partial(_llama, kind=kind),
        config=partial(_llama_config, kind=kind),
        spare=(".rotary_emb.inv_freq",),
        graph=_graph,
        longer=_longer,
    )


def _gemma(part: Part) -> Part:
    """A part of Gemma, whose norms multiply by 1 + w, and its embedding by √width: here the weights are so multiplied,
    and those of the last norm divided where the output layer is the embedding."""
    one = int("norm" in part.ours)

    def factor(config: Config) -> float:
        root = config["hidden_size"] ** 0.5
        return {"embed.weight": root, "norm.weight": 1 / root if _ties(config) else 1.0}.get(part.ours, 1.0)

    def read(theirs: Sequence[Tensor], config: Config) -> Tensor:
        return (theirs[0] + one) * factor(config)

    scaled = bool(one) or part.ours == "embed.weight"
    return replace(part, read=read, write=lambda x, config: (x / factor(config) - one,)) if scaled else part


LLAMA_LIKE = {kind.lower(): _llama_like(kind) for kind in ("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Gemma2")}
LLAMA_LIKE["gemma3_text"] = _llama_like("Gemma3")


# The norms of a block that follow its stages, and those that are before them.
AFTER, AROUND = ("attention.output.LayerNorm", "output.LayerNorm"), ("layernorm_before", "layernorm_after")
PADDING = 1  # the token that pads, in every RoBERTa; texts here have none


def _bert(config: Config, unused: int = 0) -> BERT:
    """An encoder of that configuration, whose first positions are `unused`."""
    refuse(config, position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    refuse(config, tie_word_embeddings=True)
    texts = reads_texts(config)
    rates = rates_from(config, "hidden_dropout_prob", "attention_probs_dropout_prob", 0.1)
    options = settings_from(config, OPTIONS) | rates
    of_head = None if (rate := config.get("classifier_dropout")) is None else float(rate)
    settings = BERTSettings(**options, head_dropout=of_head, readout="first" if texts else "none")
    tokens, length = config["vocab_size"], config["max_position_embeddings"] - unused
    outputs = len(config.get("id2label", (0, 1))) if texts else tokens
    return BERT(settings, Tokens(tokens, outputs, length=length, whole_graph=texts))


def _bert_config(model: BERT, kind: str, unused: int = 0) -> dict[str, Any]:
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
        **options_from(settings, OPTIONS),
        "hidden_dropout_prob": settings.dropout,
        "attention_probs_dropout_prob": settings.of_attention,
        "classifier_dropout": settings.head_dropout,
        "max_position_embeddings": (signature.length or 1) + unused,
        "type_vocab_size": 1,
        "vocab_size": signature.inputs,
        "pad_token_id": unused - 1 if unused else None,
        **labelled(signature.outputs if signature.whole_graph else 2),
    }


def _encoder_block(theirs: str, norms: Sequence[str], ours: str = "blocks.{}", own: str = "self") -> tuple[Part, ...]:
    """The tensors of one block of an encoder."""
    inputs = [f"{theirs}.attention.{own}.{name}" for name in ("query", "key", "value")]
    return (
        *stacked(f"{ours}.attention.projection", inputs),
        *pair(f"{ours}.attention.output", f"{theirs}.attention.output.dense"),
        *pair(f"{ours}.norm_1", f"{theirs}.{norms[0]}"),
        *pair(f"{ours}.feed_forward.up", f"{theirs}.intermediate.dense"),
        *pair(f"{ours}.feed_forward.down", f"{theirs}.output.dense"),
        *pair(f"{ours}.norm_2", f"{theirs}.{norms[1]}"),
    )


BERT_LAYOUT = Architecture(
    prefix="bert.",
    whole=(
        Part("embed.weight", ("bert.embeddings.word_embeddings.weight",), copies=("cls.predictions.decoder.weight",)),
        *embedded("positions", "bert.embeddings.position_embeddings", "bert.embeddings.token_type_embeddings"),
        *pair("norm", "bert.embeddings.LayerNorm"),
        *pair("readout.dense", "bert.pooler.dense"),
        *pair("head", "classifier"),
        *pair("masked.dense", "cls.predictions.transform.dense"),
        *pair("masked.norm", "cls.predictions.transform.LayerNorm"),
        Part("masked.bias", ("cls.predictions.bias",), copies=("cls.predictions.decoder.bias",)),
    ),
    blocks={"depth": _encoder_block("bert.encoder.layer.{}", AFTER)},
    model=_bert,
    config=partial(_bert_config, kind="Bert"),
    spare=(".position_ids", "cls.", "bert.pooler.", "classifier."),
)


def _roberta(config: Config) -> BERT:
    refuse(config, hidden_act="gelu")  # that of its head, whatever the others
    return _bert(config, unused=config["pad_token_id"] + 1)


ROBERTA_LAYOUT = Architecture(
    prefix="roberta.",
    whole=(
        Part("embed.weight", ("roberta.embeddings.word_embeddings.weight",), copies=("lm_head.decoder.weight",)),
        *embedded(
            "positions",
            "roberta.embeddings.position_embeddings",
            "roberta.embeddings.token_type_embeddings",
            padded=True,
        ),
        *pair("norm", "roberta.embeddings.LayerNorm"),
        *pair("readout.dense", "classifier.dense"),
        *pair("head", "classifier.out_proj"),
        *pair("masked.dense", "lm_head.dense"),
        *pair("masked.norm", "lm_head.layer_norm"),
        Part("masked.bias", ("lm_head.bias",), copies=("lm_head.decoder.bias",)),
    ),
    blocks={"depth": _encoder_block("roberta.encoder.layer.{}", AFTER)},
    model=_roberta,
    config=partial(_bert_config, kind="Roberta", unused=PADDING + 1),
    spare=(".position_ids", "lm_head.", "roberta.pooler.", "classifier."),
    longer=lambda config, length: {"max_position_embeddings": length + config["pad_token_id"] + 1},
)


def _images(config: Config) -> Features:
    """What a model of images reads and tells."""
    rows, left = divmod(config["image_size"], config["patch_size"])
    if left:
        raise ConfigError(f"patches of {config['patch_size']} do not cut images of {config['image_size']} pixels")
    inputs, outputs = config["num_channels"] * config["patch_size"] ** 2, len(config.get("id2label", (0, 1)))
    return Features(inputs, outputs, length=rows * rows, whole_graph=True)


def _images_config(model: Any, kind: str, readout: str) -> dict[str, Any]:
    """What that is in their configuration, of a model with that readout."""
    signature = model.signature
    rows = isqrt(signature.length or 0)
    sizes = {c: isqrt(signature.inputs // c) for c in (1, 3)}
    channels = next((c for c, size in sizes.items() if c * size * size == signature.inputs), None)
    images = model.settings.readout == readout and isinstance(signature, Features) and rows * rows == signature.length
    if channels is None or not images:
        raise ConfigError(f"{kind} reads square patches of square grey or coloured images, with readout={readout!r}")
    return {
        "architectures": [f"{kind}ForImageClassification"],
        "model_type": kind.lower(),
        "image_size": rows * sizes[channels],
        "patch_size": sizes[channels],
        "num_channels": channels,
        "qkv_bias": True,
        **labelled(signature.outputs),
    }


def _patches(kind: str) -> tuple[Part, ...]:
    """The convolution that embeds the patches of images."""
    weight, bias = pair("embed", f"{kind}.embeddings.patch_embeddings.projection")
    return replace(
        weight,
        read=lambda theirs, config: theirs[0].flatten(1),
        write=lambda x, config: (x.unflatten(1, (config["num_channels"], *[config["patch_size"]] * 2)),),
    ), bias


def _vit(config: Config) -> Transformer:
    refuse(config, qkv_bias=True)
    rates = rates_from(config, "hidden_dropout_prob", "attention_probs_dropout_prob", 0.0)
    return Transformer(transformer_from(config, OPTIONS, readout="class", **rates), _images(config))


def _vit_config(model: Transformer) -> dict[str, Any]:
    refuse_unusual(model.settings)
    return {
        **_images_config(model, "ViT", "class"),
        **options_from(model.settings, OPTIONS),
        "hidden_dropout_prob": model.settings.dropout,
        "attention_probs_dropout_prob": model.settings.of_attention,
    }


VIT = Architecture(
    prefix="vit.",
    whole=(
        Part(
            "class_node", ("vit.embeddings.cls_token",), lambda t, c: t[0].flatten(), lambda x, c: (x.view(1, 1, -1),)
        ),
        *_patches("vit"),
        Part(
            "positions.weight", ("vit.embeddings.position_embeddings",), lambda t, c: t[0][0], lambda x, c: (x[None],)
        ),
        *pair("norm", "vit.layernorm"),
        *pair("head", "classifier"),
    ),
    blocks={"depth": _encoder_block("vit.encoder.layer.{}", AROUND, own="attention")},
    model=_vit,
    config=_vit_config,
    spare=("vit.pooler.",),
    longer=lambda config, length: {"image_size": isqrt(length) * config["patch_size"]},
    plane=True,
)


SWIN_BLOCK = "swin.encoder.layers.{}.blocks.{}"
TABLE = "attention.self.relative_position_bias_table"
SWIN_OPTIONS = {"width": "embed_dim", "depths": "depths", "heads": "num_heads", "window": "window_size"}
SWIN_OPTIONS |= {"hidden": "mlp_ratio", "dropout": "hidden_dropout_prob"}


def _swin(config: Config) -> Swin:
    refuse(config, qkv_bias=True, use_absolute_embeddings=False, hidden_act="gelu", layer_norm_eps=1e-5)
    given, signature = settings_from(config, SWIN_OPTIONS, {}), _images(config)
    hidden, depths, rows = int(given["hidden"]), tuple(given["depths"]), isqrt(signature.length or 0)
    refuse(config, attention_probs_dropout_prob=given["dropout"], mlp_ratio=hidden)
    if rows % (least := given["window"] << (len(depths) - 1)):
        raise ConfigError(f"{rows} rows of patches are no multiple of {least}: padding has no counterpart here")
    settings = given | {"hidden": hidden, "depths": depths, "heads": tuple(given["heads"])}
    return Swin(SwinSettings(**settings), signature)


def _swin_config(model: Swin) -> dict[str, Any]:
    if not isinstance(model, Swin) or model.settings.norm != "layer":
        raise ConfigError("Swin is the model swin, with norm='layer': this model is none")
    rate = {"attention_probs_dropout_prob": model.settings.dropout, "drop_path_rate": 0.0}
    return {**_images_config(model, "Swin", "mean"), **options_from(model.settings, SWIN_OPTIONS, {}), **rate}


SWIN = Architecture(
    prefix="swin.",
    whole=(
        *_patches("swin"),
        *pair("norm_in", "swin.embeddings.norm"),
        *pair("norm", "swin.layernorm"),
        *pair("head", "classifier"),
    ),
    blocks={
        "depths": (
            *_encoder_block(SWIN_BLOCK, AROUND, "stages.{}.blocks.{}"),
            flipped(Part("stages.{}.blocks.{}.attention.b", (f"{SWIN_BLOCK}.{TABLE}",))),
        ),
        "merges": (
            *pair("merges.{}.norm", "swin.encoder.layers.{}.downsample.norm"),
            Part("merges.{}.reduction.weight", ("swin.encoder.layers.{}.downsample.reduction.weight",)),
        ),
    },
    model=_swin,
    config=_swin_config,
    spare=(".relative_position_index",),
    longer=lambda config, length: {"image_size": isqrt(length) * config["patch_size"]},
    plane=True,
)


T5_OPTIONS = {
    "width": "d_model",
    "encoder_depth": "num_layers",
    "decoder_depth": "num_decoder_layers",
    "heads": "num_heads",
    "hidden": "d_ff",
    "activation": "feed_forward_proj",
    "norm": "layer_norm_epsilon",
    "dropout": "dropout_rate",
}
T5_TABLES: dict[str, dict[Any, str]] = {
    "activation": {"relu": "relu", "gated-gelu": "geglu", "gated-silu": "swiglu"},
    "norm": {1e-6: "rms", 1e-5: "coarse-rms"},
}
PAIRS = {"count": "relative_attention_num_buckets", "reach": "relative_attention_max_distance"}


def _t5(config: Config) -> EncoderDecoder:
    config = {"num_decoder_layers": config["num_layers"], "feed_forward_proj": "relu", "tie_word_embeddings": True} | {
        name: value for name, value in config.items() if value is not None
    }
    tied = config["tie_word_embeddings"]
    refuse(config, d_kv=config["d_model"] // config["num_heads"])
    settings = settings_from({"layer_norm_epsilon": 1e-6, "dropout_rate": 0.1, **config}, T5_OPTIONS, T5_TABLES)
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


def _t5_config(model: EncoderDecoder) -> dict[str, Any]:
    settings, signature = model.settings, model.signature
    block, positions = chosen("block", settings.block, BLOCKS)(), Choice.of(settings.positions)
    if type(block) is not PreNorm or block.bias or not positions.options.get("shared"):
        theirs = "pre-norm blocks without biases and positions t5 with shared=true"
        raise ConfigError(f"T5 has {theirs}: this model has others")
    sizes = {"count": 32, "reach": 128} | positions.options
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        **options_from(settings, T5_OPTIONS, T5_TABLES),
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


def _factor(config: Config) -> float:
    """How much larger the decoder's output is here: T5 multiplies it by 1/√d, T5 1.1 does not, and ours has the 1/√d of
    the embedding where that is the output layer too."""
    tied = config.get("tie_word_embeddings", True)
    scaled = config.get("scale_decoder_outputs", tied)
    return float(config["d_model"] ** (0.5 * (tied - scaled)))


def _scaled(theirs: Sequence[Tensor], config: Config) -> Tensor:
    """T5 neither multiplies the embedding by √d nor divides scores by √C: its weights here undo both."""
    q, *others = theirs
    return torch.cat([q * config["d_kv"] ** 0.5, *others])


def _unscaled(ours: Tensor, config: Config) -> Sequence[Tensor]:
    q, *others = ours.chunk(3)
    return q / config["d_kv"] ** 0.5, *others


def _stage(ours: str, theirs: str, feed_forward: int) -> tuple[Part, ...]:
    """One block of a side, whose feed-forward network is that of its stages."""
    dense = f"{theirs}.{feed_forward}.DenseReluDense"

    def attention(name: str, number: int, kind: str) -> tuple[Part, ...]:
        stage = f"{theirs}.{number}.{kind}"
        queries = tuple(f"{stage}.{letter}.weight" for letter in "qkv")
        return (
            Part(f"{ours}.{name}.projection.weight", queries, _scaled, _unscaled),
            Part(f"{ours}.{name}.output.weight", (f"{stage}.o.weight",)),
        )

    return (
        *attention("attention", 0, "SelfAttention"),
        *(attention("cross", 1, "EncDecAttention") if feed_forward == 2 else ()),
        *(
            Part(f"{ours}.norm_{number + 1}.weight", (f"{theirs}.{number}.layer_norm.weight",))
            for number in range(feed_forward + 1)
        ),
        Part(f"{ours}.feed_forward.up.weight", (f"{dense}.wi.weight",)),
        stacked(f"{ours}.feed_forward.gate_and_value", [f"{dense}.wi_0", f"{dense}.wi_1"])[0],
        Part(f"{ours}.feed_forward.down.weight", (f"{dense}.wo.weight",)),
    )


def _table(side: str) -> Part:
    name = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    return flipped(Part(f"{side}.0.attention.b", (name,)))


T5 = Architecture(
    prefix="",
    whole=(
        Part(
            "embed.weight",
            ("shared.weight",),
            lambda theirs, config: theirs[0] / config["d_model"] ** 0.5,
            lambda weight, config: (weight * config["d_model"] ** 0.5,),
            ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"),
        ),
        _table("encoder"),
        _table("decoder"),
        Part("encoder_norm.weight", ("encoder.final_layer_norm.weight",)),
        Part(
            "decoder_norm.weight",
            ("decoder.final_layer_norm.weight",),
            lambda theirs, config: theirs[0] * _factor(config),
            lambda weight, config: (weight / _factor(config),),
        ),
        Part("head.weight", ("lm_head.weight",)),
    ),
    blocks={
        "encoder_depth": _stage("encoder.{}", "encoder.block.{}.layer", 1),
        "decoder_depth": _stage("decoder.{}", "decoder.block.{}.layer", 2),
    },
    model=_t5,
    config=_t5_config,
    spare=("EncDecAttention.relative_attention_bias.weight",),
    longer=lambda config, length: {},
)


BART_OPTIONS = {"width": "d_model", "encoder_depth": "encoder_layers", "decoder_depth": "decoder_layers"}
BART_OPTIONS |= {"heads": "encoder_attention_heads", "hidden": "encoder_ffn_dim", "activation": "activation_function"}
BART_OPTIONS |= {"dropout": "dropout", "attention_dropout": "attention_dropout"}
BART_TABLES = {"activation": TABLES["activation"]}
BART_POSITIONS = Choice("learned", {"norm": True})


def _bart(config: Config) -> EncoderDecoder:
    settings = settings_from({"dropout": 0.1, "attention_dropout": 0.0, **config}, BART_OPTIONS, BART_TABLES)
    feed_forward = Choice(settings.pop("activation"), {"hidden": settings.pop("hidden")})
    refuse(config, decoder_attention_heads=settings["heads"], decoder_ffn_dim=feed_forward.options["hidden"])
    refuse(config, tie_word_embeddings=True)
    settings |= {"scaled": config.get("scale_embedding", False), "feed_forward": feed_forward}
    made = EncoderDecoderSettings(**settings, positions=BART_POSITIONS, block="post-norm")
    tokens = config["vocab_size"]
    return EncoderDecoder(made, TokenPairs(tokens, tokens, length=config["max_position_embeddings"]))


def _bart_config(model: EncoderDecoder) -> dict[str, Any]:
    settings, signature = model.settings, model.signature
    block, plain = chosen("block", settings.block, BLOCKS)(), Choice.of(settings.positions) == BART_POSITIONS
    if block != PostNorm() or not (plain and settings.tied and isinstance(signature, TokenPairs)):
        theirs = "post-norm blocks, positions learned with norm=true, tied embeddings and no classifier"
        raise ConfigError(f"BART has {theirs}: this model has others")
    options = options_from(settings, BART_OPTIONS, BART_TABLES)
    return {
        "architectures": ["BartForConditionalGeneration"],
        "model_type": "bart",
        **options,
        "decoder_attention_heads": settings.heads,
        "decoder_ffn_dim": options["encoder_ffn_dim"],
        "activation_dropout": 0.0,
        "scale_embedding": settings.scaled,
        "max_position_embeddings": signature.length,
        "vocab_size": signature.inputs,
        "is_encoder_decoder": True,
    }


def _bart_side(side: str, **attentions: str) -> tuple[Part, ...]:
    """One block of a side, whose attentions have these names there."""
    ours, theirs = f"{side}.{{}}", f"model.{side}.layers.{{}}"
    maps = {f"{ours}.{name}.output": f"{stage}.out_proj" for name, stage in attentions.items()}
    maps |= {f"{ours}.norm_{n}": f"{stage}_layer_norm" for n, stage in enumerate((*attentions.values(), "final"), 1)}
    maps |= {f"{ours}.feed_forward.up": "fc1", f"{ours}.feed_forward.down": "fc2"}
    projections = (
        stacked(f"{ours}.{name}.projection", [f"{theirs}.{stage}.{letter}_proj" for letter in "qkv"])
        for name, stage in attentions.items()
    )
    return sum((*projections, *(pair(name, f"{theirs}.{there}") for name, there in maps.items())), ())


def _bart_positions(side: str) -> tuple[Part, ...]:
    """Learned positions, after two rows that none has, and their norm."""
    table = Part(
        f"{side}_positions.weight",
        (f"model.{side}.embed_positions.weight",),
        lambda theirs, config: theirs[0][2:],
        lambda ours, config: (torch.cat([torch.zeros(2, ours.shape[1]), ours]),),
    )
    return table, *pair(f"{side}_positions.norm", f"model.{side}.layernorm_embedding")


BART_LAYOUT = Architecture(
    prefix="model.",
    whole=(
        Part(
            "embed.weight",
            ("model.shared.weight",),
            copies=("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"),
        ),
        *_bart_positions("encoder"),
        *_bart_positions("decoder"),
    ),
    blocks={
        "encoder_depth": _bart_side("encoder", attention="self_attn"),
        "decoder_depth": _bart_side("decoder", attention="self_attn", cross="encoder_attn"),
    },
    model=_bart,
    config=_bart_config,
    spare=(),
    zero=("final_logits_bias",),
)


ARCHITECTURES = {
    "gpt2": GPT2,
    **LLAMA_LIKE,
    "vit": VIT,
    "swin": SWIN,
    "bert": BERT_LAYOUT,
    "roberta": ROBERTA_LAYOUT,
    "t5": T5,
    "bart": BART_LAYOUT,
}
