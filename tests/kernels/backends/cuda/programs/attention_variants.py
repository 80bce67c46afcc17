"""Train on 1,000 random batches and print how many variants of each kernel that asks for, as JSON. Compiles nothing."""

import json

import torch
from triton.runtime.jit import JITFunction

from benchmarks.gpu import absent
from edgewise import Dot, EdgeBias, Graph, attend

BATCHES = 1000


def main():
    absent.pretend()
    variants = {}

    def counted(self, key, *_):
        variants.setdefault(self.fn.__name__, set()).add(key)

    JITFunction._do_compile = counted
    torch.manual_seed(0)
    for _ in range(BATCHES):
        nodes, edges = (int(torch.randint(1, most, ())) for most in (100, 1500))
        # In some batches one node hears all others, or is heard by all.
        graph = Graph.from_edge_index(torch.randint(nodes, (2, edges)) * torch.randint(2, (2, 1)), num_nodes=nodes)
        x = torch.zeros(nodes, 4, 32, requires_grad=True)
        bias = torch.zeros(edges, 4, requires_grad=True)
        attend(graph, x, x, x, Dot() + EdgeBias(bias), dropout=0.1, backend="triton").sum().backward()
    print(json.dumps({"batches": BATCHES, "variants": {name: len(keys) for name, keys in variants.items()}}))


if __name__ == "__main__":
    main()
