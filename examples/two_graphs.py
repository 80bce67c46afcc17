"""The same layer, with the same weights, on two graphs: the attention of each node.

python examples/two_graphs.py
"""

import torch

from edgewise import Graph, causal, record
from edgewise.graphs import draw
from edgewise.layers import MultiHeadAttention

torch.manual_seed(0)
layer = MultiHeadAttention(width=8, heads=1)
x = torch.randn(5, 8)

text = causal(5)  # five characters: each attends to itself and to those before it
friends = Graph.from_edge_index([[0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]], num_nodes=5)  # a chain of friends

for name, graph in {"text": text, "friends": friends}.items():
    with record() as seen, torch.no_grad():
        layer(graph, x)
    print(f"{name}\n{draw(graph)}")
    for i, j, weight in zip(graph.receivers, graph.senders, seen[0].weights[:, 0], strict=True):
        print(f"  {i} attends to {j}: {weight:.2f}")
