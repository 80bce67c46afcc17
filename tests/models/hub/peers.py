"""Small models of the library `transformers`, whose weights are drawn."""

import pytest
import torch

from edgewise.graphs import EncoderDecoderGraph

transformers = pytest.importorskip("transformers")


def gpt2(**options):
    torch.manual_seed(0)
    small = {"vocab_size": 50, "n_positions": 16, "n_embd": 24, "n_layer": 2, "n_head": 3}
    config = transformers.GPT2Config(**small, bos_token_id=None, eos_token_id=None, **options)
    return spread(transformers.GPT2LMHeadModel(config))


def vit(**options):
    torch.manual_seed(0)
    small = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
    config = transformers.ViTConfig(**small, image_size=12, patch_size=4, num_channels=3, num_labels=5, **options)
    return spread(transformers.ViTForImageClassification(config))


def swin(**options):
    torch.manual_seed(0)
    small = {"embed_dim": 12, "depths": [2, 1], "num_heads": [2, 3], "window_size": 4, "drop_path_rate": 0.0}
    config = transformers.SwinConfig(**small, image_size=16, patch_size=2, num_channels=3, num_labels=5, **options)
    return spread(transformers.SwinForImageClassification(config))


SMALL = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
GROUPED = {**SMALL, "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50}


LOCAL = {"num_hidden_layers": 3, "head_dim": 8, "query_pre_attn_scalar": 6, "sliding_window": 4}


def bert(kind="ForMaskedLM", **options):
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=50, max_position_embeddings=16, num_labels=3, **SMALL, **options)
    return spread(getattr(transformers, f"Bert{kind}")(config))


def roberta(kind="ForMaskedLM", **options):
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "max_position_embeddings": 18, "num_labels": 3, "layer_norm_eps": 1e-5}
    return spread(getattr(transformers, f"Roberta{kind}")(transformers.RobertaConfig(**sizes, **SMALL, **options)))


def decoder(kind, head="CausalLM", **options):
    """A small LLaMA, or one of its kind."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**GROUPED | {"max_position_embeddings": 16} | options)
    return spread(getattr(transformers, f"{kind.removesuffix('Text')}For{head}")(config))


def t5(**options):
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_heads": 4, "num_layers": 2}
    buckets = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 8}
    config = transformers.T5Config(**sizes, num_decoder_layers=3, **buckets, dropout_rate=0.0, **options)
    return spread(transformers.T5ForConditionalGeneration(config))


def bart(**options):
    torch.manual_seed(0)
    sides = {
        f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in (("ffn_dim", 24), ("attention_heads", 4))
    }
    sizes = {"vocab_size": 50, "d_model": 16, "max_position_embeddings": 16, "encoder_layers": 2, "decoder_layers": 1}
    return spread(transformers.BartForConditionalGeneration(transformers.BartConfig(**{**sizes, **sides, **options})))


# By what they are called in a test: the peer.
PEERS = {
    "gpt2": gpt2,
    "llama": lambda: decoder("Llama", rope_parameters={"rope_type": "default", "rope_theta": 500.0}),
    "llama-tied-biased": lambda: decoder(
        "Llama", tie_word_embeddings=True, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-5
    ),
    "llama-stretched": lambda: decoder(
        "Llama", rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0}
    ),
    "llama-3": lambda: decoder(
        "Llama",
        rope_parameters={
            "rope_type": "llama3",
            "factor": 4.0,
            "low_freq_factor": 0.5,
            "high_freq_factor": 2.0,
            "original_max_position_embeddings": 8,
            "rope_theta": 20.0,
        },
    ),
    "llama-yarn": lambda: decoder(
        "Llama",
        rope_parameters={
            "rope_type": "yarn",
            "factor": 4.0,
            "beta_fast": 0.5,
            "beta_slow": 0.05,
            "original_max_position_embeddings": 8,
            "rope_theta": 20.0,
        },
    ),
    "llama-attention-biased": lambda: decoder("Llama", attention_bias=True),
    "llama-mlp-biased": lambda: decoder("Llama", mlp_bias=True),
    "llama-texts": lambda: decoder("Llama", "SequenceClassification", num_labels=3, pad_token_id=0),
    "mistral": lambda: decoder("Mistral", sliding_window=4),
    "qwen2": lambda: decoder("Qwen2"),
    "qwen3": lambda: decoder("Qwen3", head_dim=8),
    "gemma": lambda: decoder("Gemma", head_dim=8),
    "gemma-texts": lambda: decoder("Gemma", "SequenceClassification", head_dim=8, num_labels=3),
    "gemma2": lambda: decoder("Gemma2", **LOCAL, attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
    "gemma2-texts": lambda: decoder("Gemma2", "SequenceClassification", **LOCAL, num_labels=3, pad_token_id=0),
    "gemma3": lambda: decoder(
        "Gemma3Text",
        **LOCAL,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 10.0},
            "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0},
        },
    ),
    "bert": bert,
    "roberta": roberta,
    "vit": vit,
    "swin": swin,
    "bart": bart,
    "bart-scaled": lambda: bart(scale_embedding=True, activation_function="relu"),
    "t5": t5,
    "t5-gated": lambda: t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False),
}


def inputs_of(peer, graph):
    """What a peer reads, and what ours does: a graph and x."""
    tokens = torch.randint(2, 50, (2, 16))
    if peer.config.is_encoder_decoder:
        target = torch.randint(2, 50, (2, 9))
        sides = EncoderDecoderGraph.of([16], [9])
        return {"input_ids": tokens, "decoder_input_ids": target}, (sides, torch.cat([tokens, target], -1))
    if peer.config.model_type in ("vit", "swin"):
        images, patches = drawn_images(*(getattr(peer.config, x) for x in ("num_channels", "image_size", "patch_size")))
        return {"pixel_values": images}, (graph(patches.shape[1]), patches)
    return {"input_ids": tokens}, (graph(16), tokens)


def spread(model):
    """Weights large enough, and biases not zero, so that a mistake would show."""
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()


def drawn_images(channels=3, size=12, patch=4):
    images, cut = torch.randn(2, channels, size, size), (size // patch, patch)
    patches = images.unflatten(3, cut).unflatten(2, cut).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
    return images, patches
