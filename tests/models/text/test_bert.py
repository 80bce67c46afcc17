import pytest
import torch

from edgewise import ConfigError, Graph, complete
from edgewise.layers import READOUTS
from edgewise.models import BERT, BERTSettings, Tokens


def _model(**options):
    settings = BERTSettings(width=24, depth=2, heads=3, hidden=40, **options)
    return BERT(settings, Tokens(50, 50, length=16))


def _spread(model):
    """Weights large enough, and biases not zero, so that a mistake would show."""
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.double().eval()


def _peer():
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
    return transformers, transformers.BertConfig(vocab_size=50, max_position_embeddings=16, **small)


def test_a_block_is_the_peers_forward_and_backward():
    transformers, config = _peer()
    config._attn_implementation = "eager"
    peer = _spread(transformers.models.bert.modeling_bert.BertLayer(config))
    block, theirs = _model().double().eval().blocks[0], dict(peer.named_parameters())
    attention = "attention.self.{}.{}"
    pairs = {
        f"attention.projection.{part}": [attention.format(name, part) for name in ("query", "key", "value")]
        for part in ("weight", "bias")
    }
    for ours, name in {
        "attention.output": "attention.output.dense",
        "norm_1": "attention.output.LayerNorm",
        "feed_forward.up": "intermediate.dense",
        "feed_forward.down": "output.dense",
        "norm_2": "output.LayerNorm",
    }.items():
        pairs |= {f"{ours}.{part}": [f"{name}.{part}"] for part in ("weight", "bias")}
    own = dict(block.named_parameters())
    assert own.keys() == pairs.keys()
    with torch.no_grad():
        for ours, names in pairs.items():
            own[ours].copy_(torch.cat([theirs[name] for name in names]))
    x = torch.randn(2, 7, 24, dtype=torch.float64, requires_grad=True)
    y, weight = block(complete(7), x), torch.randn(2, 7, 24, dtype=torch.float64)
    found = torch.autograd.grad((y * weight).sum(), [x, *own.values()])
    output = peer(x)
    expected = output[0] if isinstance(output, tuple) else output
    assert (y - expected).abs().max() < 1e-10
    gradients = torch.autograd.grad((expected * weight).sum(), [x, *theirs.values()])
    by_name = dict(zip(theirs, gradients[1:], strict=True))
    assert (found[0] - gradients[0]).abs().max() < 1e-10
    for ours, mine in zip(own, found[1:], strict=True):
        assert (mine - torch.cat([by_name[name] for name in pairs[ours]])).abs().max() < 1e-10, ours


def test_texts_side_by_side_are_texts_on_their_own():
    model, texts = _spread(_model()), [torch.randint(50, (n,)) for n in (5, 1, 9)]
    flat = model(Graph.batch([complete(len(text)) for text in texts]), torch.cat(texts))
    alone = torch.cat([model(complete(len(text)), text) for text in texts])
    assert (flat - alone).abs().max() < 1e-10


@pytest.mark.parametrize("readout", READOUTS)
def test_one_output_for_each_text(readout):
    signature = Tokens(50, 3, length=16, whole_graph=True)
    model = _spread(BERT(BERTSettings(width=24, depth=1, heads=3, readout=readout), signature))
    texts = [torch.randint(50, (n,)) for n in (5, 9)]
    y = model(Graph.batch([complete(5), complete(9)]), torch.cat(texts))
    assert y.shape == (2, 3)
    assert (y[1] - model(complete(9), texts[1])[0]).abs().max() < 1e-10


@pytest.mark.parametrize(
    ("settings", "signature", "message"),
    [
        (BERTSettings(), Tokens(9, 3, 8), "wants other outputs"),
        (BERTSettings(), Tokens(9, 3, 8, whole_graph=True), "choose a readout"),
        (BERTSettings(readout="first"), Tokens(9, 9, 8), "must be 'none'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, signature, message):
    with pytest.raises(ConfigError, match=message):
        BERT(settings, signature)
