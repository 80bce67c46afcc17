"""Small models of the library `transformers`, whose weights are drawn."""

import pytest
import torch

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


def bert(kind="ForMaskedLM", **options):
    torch.manual_seed(0)
    small = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
    config = transformers.BertConfig(vocab_size=50, max_position_embeddings=16, num_labels=3, **small, **options)
    return spread(getattr(transformers, f"Bert{kind}")(config))


def spread(model):
    """Weights large enough, and biases not zero, so that a mistake would show."""
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()


def drawn_images(count=2):
    images = torch.randn(count, 3, 12, 12)
    patches = images.unflatten(3, (3, 4)).unflatten(2, (3, 4)).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
    return images, patches
