"""Layers and training keep to the device they are given: seen on a pretended card, where two devices may not meet."""

import copy
import shutil
import warnings
from unittest import mock

import pytest
import torch

from edgewise import LAYERS, Graph, attend, causal, native
from edgewise.tasks import TASKS
from edgewise.tasks.core.task import PatternChoice
from edgewise.tasks.text.language import Text
from edgewise.testing import joined
from edgewise.training import (
    CheckpointSettings,
    Choice,
    EvaluationSettings,
    MachineSettings,
    RunConfig,
    TrainSettings,
    load_run,
    resume,
    train,
)
from pretend import CARD, Card

MISTAKES = {
    "an index of the other device": lambda x: x + torch.arange(4),
    "a mask of the other device": lambda x: x[torch.tensor([True, False, True, False])],
    "an assignment": lambda x: x.__setitem__(slice(2), torch.zeros(2)),
    "the CPU's generator": lambda x: torch.rand(4, device=x.device, generator=torch.Generator()),
    "an array": lambda x: x.numpy(),
    "a pointer": lambda x: x.data_ptr(),
    "a tensor inside a list": lambda x: torch.cat([x, torch.zeros(1)]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_pretended_card_sees_mistakes(mistake):
    with Card():
        x = torch.ones(4).to("cuda")
        assert x.device == (x * 2.0 + torch.tensor(1.0)).device == x.new_zeros(3).device == CARD
        assert x.cpu().device.type == x.to("cpu").device.type == torch.zeros(2).to(x.cpu()).device.type == "cpu"
        assert torch.zeros(2).to(x).device == torch.zeros(2, device="cuda").device == CARD
        with pytest.raises(AssertionError):
            MISTAKES[mistake](x)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_makes_nothing_on_another_device(name):
    layer, graph, inputs = LAYERS[name].example()
    layer = layer.eval()
    with torch.no_grad():
        expected = joined(copy.deepcopy(layer)(graph, *inputs))
        with Card():
            found = joined(layer.to("cuda")(graph.to("cuda"), *(x.to("cuda") for x in inputs)))
            assert found.device == CARD
            torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_graphs_are_lowered_and_built_where_they_are():
    with Card():
        edges = torch.tensor([[0, 1, 2, 2], [1, 0, 0, 2]], device="cuda")
        for graph in (Graph.from_edge_index(edges, 3), causal(3).to("cuda"), Graph.batch([causal(2).to("cuda")] * 2)):
            n = graph.num_receivers
            for made in (graph, graph.transpose()[0], graph.symmetrise(), graph.add_self_loops(), graph.coalesce()):
                parts = (made.offsets, made.receivers, made.senders, made.dense_mask())
                assert {x.device for x in parts} == {CARD}
                assert made.in_degrees().device == CARD
                assert {
                    Graph.from_mask(made.dense_mask()).device,
                    Graph.from_mask(made.dense_mask()).senders.device,
                } == {CARD}
            q = torch.randn(n, 2, 4, device="cuda")
            for backend in ("segment", "dense", "reference"):
                assert attend(graph, q, q, q, backend=backend).device == CARD


def test_kernels_that_were_not_built_are_not_missed_on_a_card():
    graph = Graph.from_edge_index(torch.randint(4000, (2, 20_000)), 4000)
    with Card(), mock.patch.object(native, "library", None), warnings.catch_warnings():
        warnings.simplefilter("error")
        q = torch.randn(4000, 2, 8, device="cuda")
        attend(graph.to("cuda"), q, q, q)


TINY = {"width": 16, "depth": 1, "heads": 2}
RUNS = {
    "cora-gat": (
        Choice("karate"),
        Choice("gnn", {"layer": {"name": "gat", "heads": 2, "attention_dropout": 0.5}, "width": 16, "dropout": 0.5}),
        PatternChoice(),
    ),
    "shakespeare-gpt": (Choice("tiny-text"), Choice("transformer", TINY | {"dropout": 0.1}), PatternChoice("causal")),
}


@pytest.mark.parametrize("name", RUNS)
def test_training_keeps_to_its_device(name, tmp_path, monkeypatch):
    monkeypatch.setitem(TASKS, "tiny-text", lambda: Text("tiny", "to be or not to be " * 20, context=8))
    task, model, graph = RUNS[name]
    settings = TrainSettings(steps=4, batch=4, accumulate=2, clip=1.0, checkpoints=CheckpointSettings(every=2))
    machine = MachineSettings("cuda", capture=False)  # a pretended card has no graphs
    sections = {"train": settings, "evaluation": EvaluationSettings(every=2), "machine": machine}
    config = RunConfig(task, model, graph, Choice("adamw", {"decay_matrices_only": True}), **sections)
    with Card():
        result = train(config, tmp_path / "run", progress=False)
        assert result.steps == 4
        newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
        reached = (newest / "model.safetensors").read_bytes()
        shutil.rmtree(newest)
        lines = (tmp_path / "run" / "metrics.jsonl").read_bytes().splitlines(keepends=True)
        (tmp_path / "run" / "metrics.jsonl").write_bytes(b"".join(lines[:-1]))  # as a kill before the end leaves it
        assert resume(tmp_path / "run", progress=False).valid == result.valid
        assert (newest / "model.safetensors").read_bytes() == reached
        assert load_run(tmp_path / "run", device="cuda").model(*_example(config)).device == CARD


def _example(config):
    task = TASKS[config.task.name]()
    return next(task.batches("valid", 2, config.graph)).to("cuda").inputs
