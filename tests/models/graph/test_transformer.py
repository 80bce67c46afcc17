import pytest
import torch

from edgewise import ConfigError, Graph, complete
from edgewise.configuration import Choice
from edgewise.models import ATTENTIONS, ENCODINGS, Features, GraphTransformer, GraphTransformerSettings

GRAPH = Graph.from_edge_index([[0, 1, 1, 2, 3, 0, 2, 3, 0, 2], [1, 0, 2, 1, 0, 3, 3, 2, 2, 0]], num_nodes=5)
BATCH = Graph.batch([GRAPH, complete(3)])


BLOCKS = [(attention, block) for attention in ATTENTIONS for block in ("pre-norm", "post-norm", "one-residual")]
BLOCKS = [(attention, block) for attention, block in BLOCKS if attention != "gps" or block == "post-norm"]


@pytest.mark.parametrize(("attention", "block"), BLOCKS)
@pytest.mark.parametrize("whole", [True, False])
def test_every_attention_trains_and_keeps_the_members_of_a_batch_apart(attention, block, whole):
    readout = "sum" if whole else "none"
    settings = GraphTransformerSettings(attention, width=8, heads=2, block=block, readout=readout)
    model = GraphTransformer(settings, Features(6, 3, whole_graph=whole)).double()
    x = torch.randn(8, 6, dtype=torch.float64)
    y = model(BATCH, x)
    assert torch.allclose(y, torch.cat([model(GRAPH, x[:5]), model(complete(3), x[5:])]), atol=1e-10)
    y.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_reaches_the_output(encoding):
    choice = Choice(encoding, {} if encoding == "none" else {"size": 4})
    settings = GraphTransformerSettings(encoding=choice, width=8, heads=2)
    model = GraphTransformer(settings, Features(6, 3)).double()
    y = model(BATCH, torch.zeros(8, 6, dtype=torch.float64))
    y.square().sum().backward()
    assert (model.encoding is None) == (encoding == "none")
    spread = y[:5].var(0).sum()  # all nodes have the same features
    assert spread < 1e-20 if encoding == "none" else spread > 1e-9


def test_options_of_an_attention_reach_it():
    def attention(choice):
        model = GraphTransformer(GraphTransformerSettings(choice, width=8, heads=2), Features(6, 3))
        return model.blocks[0].attention

    walk = Choice("kernel", {"kernel": "random-walk", "beta": 0.5, "steps": 2})
    assert attention(walk).kernel == ("random-walk", 0.5, 2)
    assert attention("kernel").kernel == ("diffusion", 1.0, 0)
    assert attention(Choice("graphormer", {"most": 3})).distance.shape == (5, 2)


def test_order_of_the_nodes_does_not_matter():
    for attention in ATTENTIONS:
        settings = GraphTransformerSettings(attention, "random-walk", width=8, heads=2)
        model = GraphTransformer(settings, Features(6, 3)).double()
        x, perm = torch.randn(5, 6, dtype=torch.float64), torch.randperm(5)
        assert torch.allclose(model(GRAPH.permute(perm), x[perm]), model(GRAPH, x)[perm], atol=1e-10)


@pytest.mark.parametrize(
    ("signature", "options", "message"),
    [
        (Features(6, 3), {"attention": "gps", "block": "pre-norm"}, "its block is 'post-norm'"),
        (
            Features(6, 3),
            {"encoding": Choice("none", {"size": 8})},
            "encoding 'none' takes no option 'size'; it takes none",
        ),
        (Features(6, 3), {"readout": "sum"}, "one output per node"),
        (Features(6, 3, whole_graph=True), {}, "choose a readout"),
    ],
)
def test_impossible_settings_are_refused(signature, options, message):
    with pytest.raises(ConfigError, match=message):
        GraphTransformer(GraphTransformerSettings(**options), signature)
