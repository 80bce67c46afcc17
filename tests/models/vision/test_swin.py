import pytest
import torch

from edgewise import ConfigError, complete
from edgewise.models import Features, Swin, SwinSettings

IMAGE = Features(4, 3, length=64, whole_graph=True)
SETTINGS = SwinSettings(width=8, depths=(2, 2), heads=(2, 4), window=4, hidden=2)


def test_swin_is_transformers():
    """Logits and every gradient, on a configuration whose second stage is one window."""
    swin = pytest.importorskip("transformers.models.swin.modeling_swin")
    config = swin.SwinConfig(
        image_size=16, patch_size=2, num_channels=1, embed_dim=8, depths=[2, 2], num_heads=[2, 4], window_size=4,
        mlp_ratio=2.0, drop_path_rate=0.0, num_labels=3,
    )  # fmt: skip
    torch.manual_seed(0)
    peer = swin.SwinForImageClassification(config).double().eval()
    for parameter in peer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model = Swin(SETTINGS, IMAGE).double()
    model.load_state_dict(_weights(peer.state_dict()))
    images = torch.randn(3, 1, 16, 16, dtype=torch.float64)
    patches = images.view(3, 8, 2, 8, 2).transpose(2, 3).reshape(3, 64, 4)
    found, expected = model(complete(64), patches)[:, 0], peer(images).logits
    assert (found - expected).abs().max() < 1e-10
    projection = torch.randn(3, 3, dtype=torch.float64)
    (found * projection).sum().backward()
    (expected * projection).sum().backward()
    theirs = _weights({name: p.grad for name, p in peer.named_parameters()})
    for name, parameter in model.named_parameters():
        assert theirs[name].abs().max() > 0 or name.endswith("projection.bias")
        assert (parameter.grad - theirs[name]).abs().max() < 1e-9, name


def _weights(peer):
    """Transformers' tensors by our names."""
    names = {
        "embed.weight": "swin.embeddings.patch_embeddings.projection.weight",
        "embed.bias": "swin.embeddings.patch_embeddings.projection.bias",
        "merges.0.reduction.weight": "swin.encoder.layers.0.downsample.reduction.weight",
    }
    for ours, theirs in [
        ("norm_in", "swin.embeddings.norm"),
        ("merges.0.norm", "swin.encoder.layers.0.downsample.norm"),
        ("norm", "swin.layernorm"),
        ("head", "classifier"),
    ]:
        names |= {f"{ours}.{part}": f"{theirs}.{part}" for part in ("weight", "bias")}
    weights = {ours: peer[theirs] for ours, theirs in names.items()}
    weights["embed.weight"] = weights["embed.weight"].flatten(1)
    for stage in range(2):
        for block in range(2):
            ours, theirs = f"stages.{stage}.blocks.{block}", f"swin.encoder.layers.{stage}.blocks.{block}"
            table = peer[f"{theirs}.attention.relative_position_bias.relative_position_bias_table"]
            weights[f"{ours}.attention.b"] = table.T
            for part in ("weight", "bias"):
                qkv = [peer[f"{theirs}.attention.{x}_proj.{part}"] for x in "qkv"]
                weights[f"{ours}.attention.projection.{part}"] = torch.cat(qkv)
                for name, other in [
                    ("attention.output", "attention.o_proj"),
                    ("norm_1", "layernorm_before"),
                    ("norm_2", "layernorm_after"),
                    ("feed_forward.up", "mlp.fc1"),
                    ("feed_forward.down", "mlp.fc2"),
                ]:
                    weights[f"{ours}.{name}.{part}"] = peer[f"{theirs}.{other}.{part}"]
    return weights


def test_shifted_squares_let_what_a_corner_says_travel():
    """Without a shift, the first pixel reaches its own square alone before the image is merged."""
    settings = SwinSettings(width=8, depths=(2,), heads=(2,), window=4)
    model = Swin(settings, Features(1, 2, length=64, whole_graph=True)).double()
    x = torch.randn(64, 1, dtype=torch.float64)
    changed = x.clone()
    changed[27] += 1  # row 3, column 3: the inner corner of its square
    moved = model.stages[0](model.embed(x)) - model.stages[0](model.embed(changed))
    reached = moved.abs().sum(-1).view(8, 8) > 1e-9
    assert reached[:6, :6].all() and not reached[6:].any() and not reached[:, 6:].any()


@pytest.mark.parametrize(
    ("settings", "signature", "message"),
    [
        (SETTINGS, Features(4, 3, length=60, whole_graph=True), "square images"),
        (SwinSettings(depths=(2, 2), heads=(2,)), IMAGE, "one number a stage"),
        (SwinSettings(depths=(1,) * 5, heads=(1,) * 5), IMAGE, "cannot be halved 4 times"),
    ],
)
def test_what_does_not_fit_is_refused(settings, signature, message):
    with pytest.raises(ConfigError, match=message):
        Swin(settings, signature)
