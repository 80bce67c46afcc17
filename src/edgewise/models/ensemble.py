"""Several networks in place of one, or one that reads several views: what they agree on is better than their best."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise import layers
from edgewise.configuration import Choice, Count, Natural, NonNegative, OneOf, Positive, Settings, Share, build, chosen
from edgewise.errors import ConfigError
from edgewise.graphs import Graph
from edgewise.models.graph.gnn import GNN, GNNSettings
from edgewise.models.graph.network import GraphNetworkModel, GraphNetworkSettings
from edgewise.models.graph.transformer import GraphTransformer, GraphTransformerSettings
from edgewise.models.signature import Features, OfMembers, Penalised, Signature, accepted


@dataclass(frozen=True)
class RandomPropagationSettings(Settings):
    """What a network on randomly propagated features can be.

    Args:
        width: Channels of the hidden layer.
        steps: The longest path over which features are propagated.
        node_dropout: Probability for a node's features as a whole, before they are propagated.
        input_dropout: Probability for the features.
        dropout: Probability for the hidden channels.
    """

    width: Count = 32
    steps: Natural = 8
    node_dropout: Share = 0.5
    input_dropout: Share = 0.5
    dropout: Share = 0.5


class RandomPropagation(nn.Module):
    """A perceptron on features that come from all nodes within some steps, some of which are left out at random.

    Equation    X̄ = 1/(K + 1) Σ_{k=0..K} Â^k (z ⊙ X),  z_i = b_i / (1 - p) with b_i ~ Bernoulli(1 - p);
                output = ReLU(X̄ W_1 + b_1) W_2 + b_2
    Symbols     settings.steps = K; settings.node_dropout = p; Â: `renormalised`; hidden = W_1, b_1; output = W_2, b_2
    Shapes      x [*, N, inputs] or SparseFeatures -> [*, N, outputs]
    Edge cases  an isolated node reads itself alone; in evaluation z = 1
    Cost        that of X W_1, and O(K E width)
    Differs     X W_1 is propagated, which is narrower than X: the same by linearity, but dropout of features comes
                before the propagation instead of after it
    Reference   Feng et al., "Graph random neural networks for semi-supervised learning on graphs", 2020, (1)-(3)

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> RandomPropagation(RandomPropagationSettings(), Features(3, 7))(pair, torch.ones(2, 3)).shape
        torch.Size([2, 7])
    """

    def __init__(self, settings: RandomPropagationSettings, signature: Signature) -> None:
        super().__init__()
        self.settings, self.signature = settings, accepted(self, signature, Features, whole_graph=False)
        self.hidden = layers.Linear(signature.inputs, settings.width, bias=False)
        self.bias = nn.Parameter(torch.zeros(settings.width))
        self.output = nn.Linear(settings.width, signature.outputs)
        for linear in (self.hidden, self.output):
            nn.init.xavier_uniform_(linear.weight)

    def forward(self, graph: Graph, x: Tensor | layers.SparseFeatures) -> Tensor:
        settings = self.settings
        h: Tensor = self.hidden(layers.dropout(x, settings.input_dropout, self.training))
        stays = cast(Tensor, layers.dropout(h.new_ones(h.shape[-2], 1), settings.node_dropout, self.training))
        h = functional.relu(layers.mixed_orders(graph, h * stays, settings.steps) + self.bias)
        return self.output(layers.dropout(h, settings.dropout, self.training))


NETWORKS: dict[str, tuple[type[Any], type[nn.Module]]] = {
    "gnn": (GNNSettings, GNN),
    "graph-transformer": (GraphTransformerSettings, GraphTransformer),
    "random-propagation": (RandomPropagationSettings, RandomPropagation),
}


def network_of(
    choice: Choice | str, table: Mapping[str, tuple[type[Any], type[nn.Module]]], signature: Signature
) -> nn.Module:
    """A network of a table of settings and models."""
    choice = Choice.of(choice)
    settings, model = chosen("network", choice.name, table)
    return model(build(settings, choice.options, "network"), signature)


@dataclass(frozen=True)
class ConsistentSettings(Settings):
    """What learning from passes that agree can be.

    Args:
        network: The network; its dropout makes the passes differ.
        passes: Passes over the same data in one step of training.
        weight: Weight of their disagreement, beside the loss on labels.
        temperature: Sharpens what they should agree on: 1 is the mean of their probabilities, 0.5 its square, scaled.
    """

    network: Annotated[Choice | str, OneOf(NETWORKS)] = "random-propagation"
    passes: Count = 4
    weight: NonNegative = 1.0
    temperature: Positive = 0.5


class Consistent(nn.Module):
    """A network that in training reads its data several times, with other dropout each time, and learns to agree.

    Equation    Z_s = network(graph, x), s = 1..S;  P̄ = 1/S Σ_s softmax Z_s;  P'_ic = P̄_ic^(1/T) / Σ_c P̄_ic^(1/T)
                outputs = 1/S Σ_s log softmax Z_s;  penalty = λ 1/(S N) Σ_s Σ_i ‖P'_i - softmax Z_s,i‖²
                in evaluation outputs = network(graph, x)
    Symbols     network = one of NETWORKS; settings.passes = S; settings.temperature = T; settings.weight = λ; N nodes,
                of a task on whole graphs its graphs; no gradient flows through P'
    Shapes      those of the network; in training mode Penalised
    Edge cases  one pass has only its own sharpened probabilities to agree with
    Cost        S times that of the network in training, in evaluation once
    Differs     there the loss on labels is a mean over the passes, here it is that of the mean of their log
                probabilities, which is smaller by what the passes disagree
    Reference   Feng et al., "Graph random neural networks for semi-supervised learning on graphs", 2020, (4)-(6)

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> model = Consistent(ConsistentSettings(passes=2), Features(3, 7))
        >>> model(pair, torch.ones(2, 3)).outputs.shape, model.eval()(pair, torch.ones(2, 3)).shape
        (torch.Size([2, 7]), torch.Size([2, 7]))
    """

    def __init__(self, settings: ConsistentSettings, signature: Signature) -> None:
        super().__init__()
        if signature.outputs < 2 or not signature.classes:
            has = "a single output" if signature.outputs < 2 else "outputs that are no classes"
            raise ConfigError(f"passes agree on the probabilities of classes, and this task has {has}")
        self.settings, self.signature = settings, signature
        self.network = network_of(settings.network, NETWORKS, signature)

    def forward(self, graph: Graph, *inputs: Any) -> Tensor | Penalised:
        if not self.training:
            return self.network(graph, *inputs)
        settings = self.settings
        outputs = torch.stack([self.network(graph, *inputs) for _ in range(settings.passes)]).log_softmax(-1)
        p = outputs.exp()
        agreed = (p.detach().mean(0).log() / settings.temperature).softmax(-1)
        return Penalised(outputs.mean(0), settings.weight * (p - agreed).square().sum(-1).mean())


MEMBERS = NETWORKS | {
    "graph-network": (GraphNetworkSettings, GraphNetworkModel),
    "consistent": (ConsistentSettings, Consistent),
}


@dataclass(frozen=True)
class EnsembleSettings(Settings):
    """What an ensemble can be.

    Args:
        network: The network of every member.
        members: Number of networks, each from weights of its own.
    """

    network: Annotated[Choice | str, OneOf(MEMBERS)] = "gnn"
    members: Count = 5


class Ensemble(nn.Module):
    """Several networks side by side that read the same batches, each from weights of its own; the output is their mean.

    Equation    f = 1/K Σ_k f_k: of classes softmax f ∝ (Π_k softmax f_k)^(1/K), a logarithmic opinion pool;
                in training the loss is 1/K Σ_k loss(f_k), not loss(f): each member learns as if alone
    Symbols     members[k] = f_k, one of MEMBERS; settings.members = K
    Shapes      those of the network; in training mode `OfMembers`
    Cost        K times that of the network, in time and in weights
    Differs     there the probabilities of classes are averaged, here their logarithms
    Reference   Lakshminarayanan, Pritzel & Blundell, "Simple and scalable predictive uncertainty estimation using deep
                ensembles", 2017; of classes, Heskes, "Selecting weighting factors in logarithmic opinion pools", 1998

    Example
        >>> from edgewise.models import Features
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> model = Ensemble(EnsembleSettings(members=3), Features(3, 7))
        >>> len(model(pair, torch.ones(2, 3)).members), model.eval()(pair, torch.ones(2, 3)).shape
        (3, torch.Size([2, 7]))
    """

    def __init__(self, settings: EnsembleSettings, signature: Signature) -> None:
        super().__init__()
        self.settings, self.signature = settings, signature
        self.members = nn.ModuleList(network_of(settings.network, MEMBERS, signature) for _ in range(settings.members))

    def forward(self, graph: Graph, *inputs: Any) -> Tensor | OfMembers:
        outputs = tuple(member(graph, *inputs) for member in self.members)
        return OfMembers(outputs) if self.training else torch.stack(outputs).mean(0)
