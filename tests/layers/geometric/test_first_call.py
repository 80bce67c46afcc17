"""A process whose first call of a layer is traced: constants that are made on first use have numbers all the same."""

import subprocess
import sys
from pathlib import Path

import pytest

from edgewise import LAYERS

SCRIPT = """
import os, sys, warnings
import torch
import torch._dynamo
import torch.export
from edgewise import LAYERS
from edgewise.testing import joined

def export(layer, inputs):
    return torch.export.export(layer, inputs, strict=False).module()

def compile(layer, inputs):
    return torch.compile(layer, backend="eager")

class Alone(torch.nn.Module):
    def __init__(self, layer, graph):
        super().__init__()
        self.layer, self.graph = layer, graph
    def forward(self, *inputs):
        return self.layer(self.graph, *inputs)

warnings.simplefilter("ignore")
for name in sys.argv[2:]:
    if os.fork():  # each layer in a process of its own, which has made no constants
        if os.wait()[1]:
            sys.exit(f"{name} is not what it computes otherwise")
        continue
    layer, graph, inputs = LAYERS[name].example()
    layer = Alone(layer, graph)
    traced = joined(globals()[sys.argv[1]](layer, inputs)(*inputs))
    torch.testing.assert_close(joined(layer(*inputs)), traced)
    os._exit(0)
"""
GEOMETRIC = [name for name in LAYERS if ".geometric." in LAYERS[name].__module__]
BY_HARMONICS = ["TFN", "SE3Attention"]


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("way", "layers"),
    [("export", [name for name in GEOMETRIC if name != "DynamicEdgeConv"]), ("compile", BY_HARMONICS)],
    ids=["export", "compile"],
)  # the graph of DynamicEdgeConv follows from its input, which an export does not know
def test_a_layer_that_is_traced_first_computes_what_it_does(way: str, layers: list[str]) -> None:
    command = [sys.executable, "-c", SCRIPT, way, *layers]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
