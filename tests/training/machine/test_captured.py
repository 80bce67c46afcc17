"""Steps captured in CUDA graphs. Here is no card: a graph is a function that is called again, on tensors of its own."""

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from edgewise import Graph, complete, window
from edgewise.tasks import Batch
from edgewise.training import loop
from edgewise.training.machine import captured as module
from edgewise.training.machine.captured import CHANGES, Captured, same
from edgewise.training.seeds import seed
from edgewise.training.settings import AverageSettings
from training.tiny import configured, same_run, trained

GRAPH, CPU = complete(4), torch.device("cpu")
ONES, ZEROS = torch.ones(4, 3), torch.zeros(4, 2)
STATE = module.host_state


class Model(nn.Module):
    """Dropout, and a batch norm whose buffers each step moves."""

    def __init__(self):
        super().__init__()
        self.map, self.norm, self.drop = nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Dropout(0.5)
        self.unused = nn.Parameter(torch.zeros(2))

    def forward(self, graph, x):
        return self.drop(self.norm(self.map(x)))


class Steps:
    """A model's steps, as the training loop takes them."""

    def __init__(self, batches, exact=True, work=lambda: None, capturing=True):
        torch.manual_seed(0)
        self.model, self.batches, self.work, self.task = Model(), batches, work, SimpleNamespace(annealed=1.0)
        self.captured = Captured(self.gradient, self.model, self.task, CPU, exact) if capturing else None

    def gradient(self, parts):
        total = torch.zeros(())
        self.work()
        for weight, part in parts:
            loss = (self.model(*part.inputs) - part.target).square().mean() * self.task.annealed
            (loss * weight).backward()
            total = total + loss.detach() * weight
        return total

    def run(self, steps):
        seen = []
        for step in range(steps):
            seed(step, CPU)
            parts = self.batches(step)
            loss = self.captured(parts, step) if self.captured else self.gradient(parts)
            grads = [None if w.grad is None else w.grad.clone() for w in self.model.parameters()]
            seen.append([loss.clone(), *grads, *(x.clone() for x in self.model.buffers())])
            with torch.no_grad():
                for w in self.model.parameters():
                    if w.grad is not None:
                        w -= 0.1 * w.grad
                    w.grad = None
        return seen


@pytest.fixture
def graphs(monkeypatch):
    """In place of a CUDA graph: the work runs once for nothing, and into the same tensors whenever it is replayed."""
    made = []

    def record(work, device, stream=None):
        with torch.random.fork_rng():
            loss = work()
        model = work.__closure__[0].cell_contents.gradient.__self__.model
        static = [w.grad for w in model.parameters()]

        def replay():
            for w in model.parameters():
                w.grad = None
            loss.copy_(work())
            for own, w in zip(static, model.parameters(), strict=True):
                if own is not None:
                    own.copy_(w.grad)

        for x, old in zip(model.buffers(), made_before(model), strict=True):
            x.copy_(old)  # nothing is computed while a graph is captured
        made.append(replay)
        return loss, replay

    def made_before(model):
        return before[id(model)]

    before = {}
    capture = Captured.capture

    def remembered(self, parts, value):
        before[id(self.gradient.__self__.model)] = [x.clone() for x in self.buffers]
        capture(self, parts, value)

    monkeypatch.setattr(Captured, "capture", remembered)
    monkeypatch.setattr(module, "record", record)
    monkeypatch.setattr(module, "waiting", lambda work: (work(), False))
    monkeypatch.setattr(module, "memory_share", lambda device: 0.0)
    monkeypatch.setattr(module, "host_state", lambda: STATE()[1:])  # here dropout is drawn by the host
    return made


WHOLE = Batch(GRAPH, ONES, ZEROS, rows=torch.arange(4))


def whole(step):
    return [(1.0, WHOLE)]


def drawn(step, size=4):
    generator = torch.Generator().manual_seed(step)
    x, y = torch.randn(size, 3, generator=generator), torch.randn(size, 2, generator=generator)
    return [(0.25, Batch(GRAPH, x, y)), (0.75, Batch(GRAPH, -x, y))]


def agree(found, expected):
    for step, (x, y) in enumerate(zip(found, expected, strict=True)):
        assert all(same(a, b, exact=True) for a, b in zip(x, y, strict=True)), step


@pytest.mark.parametrize("batches", [whole, drawn])
def test_replayed_steps_are_those_that_were_never_captured_to_the_bit(graphs, batches):
    steps, plain = Steps(batches), Steps(batches, capturing=False)
    agree(steps.run(12), plain.run(12))
    assert len(graphs) == 1 and steps.captured.reason == "" and steps.captured.replay is graphs[0]


def test_the_batch_of_a_whole_graph_is_read_where_it_lies_and_others_are_copied(graphs):
    steps = Steps(whole)
    steps.run(9)
    assert steps.captured.parts[0][1].x is whole(0)[0][1].x
    steps = Steps(drawn)
    steps.run(9)
    given = drawn(8)[0][1]
    own = steps.captured.parts[0][1]
    assert own.x is not given.x and torch.equal(own.x, given.x) and own.graph is GRAPH


def test_batches_that_are_not_always_new_are_never_written_over(graphs):
    first = torch.ones(4, 3)
    kept = Batch(GRAPH, first, torch.zeros(4, 2))
    other = Batch(GRAPH, 2 * first, torch.zeros(4, 2))

    def batches(step):
        return [(1.0, kept if step < 9 else other)]

    steps, plain = Steps(batches), Steps(batches, capturing=False)
    agree(steps.run(20), plain.run(20))
    assert torch.equal(first, torch.ones(4, 3)) and torch.equal(other.x, 2 * first) and len(graphs) == 2


def test_batches_of_other_shapes_are_computed_as_they_come(graphs):
    def once(step):
        return drawn(step, 4 if step < 8 else 6)

    def always(step):
        return drawn(step, 4 + step % 2)

    agree(Steps(once).run(20), Steps(once, capturing=False).run(20))
    assert len(graphs) == 2
    steps = Steps(always)
    agree(steps.run(20), Steps(always, capturing=False).run(20))
    assert len(graphs) == 2 and "change" in steps.captured.reason and steps.captured.changes == CHANGES + 1


def test_graphs_by_equal_rules_are_alike_and_others_are_those_that_they_are(graphs):
    def batches(make):
        return lambda step: [(1.0, Batch(make(), *(t.clone() for t in (ONES, ZEROS))))]

    for make in (lambda: complete(4), lambda: window(4, 1)):
        Steps(batches(make)).run(8)
    assert len(graphs) == 2
    ends = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    steps = Steps(batches(lambda: Graph.from_edge_index(ends, 4)))
    steps.run(12)
    assert len(graphs) == 2 and "change" in steps.captured.reason


def test_weights_that_move_elsewhere_or_are_frozen_are_captured_anew(graphs):
    steps, plain = Steps(whole), Steps(whole, capturing=False)
    agree(steps.run(9), plain.run(9))
    for one in (steps, plain):
        one.model.map.weight.requires_grad_(False)
        one.model.map.bias.data = one.model.map.bias.data.clone()
    agree(steps.run(9), plain.run(9))
    assert len(graphs) == 2


@pytest.mark.parametrize("draw", [lambda: torch.rand(1), random.random, lambda: __import__("numpy").random.rand()])
def test_a_step_in_which_the_host_draws_is_not_captured(graphs, draw, monkeypatch):
    monkeypatch.setattr(module, "host_state", STATE)
    steps = Steps(whole, work=draw)
    steps.model.drop.p = 0.0
    steps.run(8)
    assert graphs == [] and steps.captured.reason == "the host draws random numbers in a step"
    steps = Steps(whole)
    steps.model.drop.p = 0.0
    steps.run(8)
    assert len(graphs) == 1


def test_a_step_in_which_the_host_waits_or_that_takes_much_memory_is_not_captured(graphs, monkeypatch):
    monkeypatch.setattr(module, "waiting", lambda work: (work(), True))
    steps = Steps(whole)
    agree(steps.run(8), Steps(whole, capturing=False).run(8))
    assert graphs == [] and "waits" in steps.captured.reason
    monkeypatch.setattr(module, "waiting", lambda work: (work(), False))
    monkeypatch.setattr(module, "memory_share", lambda device: 0.5)
    steps = Steps(whole)
    steps.run(8)
    assert graphs == [] and "memory" in steps.captured.reason


class Clock:
    """What a module may hold that is neither a tensor nor a number."""

    def __init__(self):
        self.ticks = [0]


@pytest.mark.parametrize(
    ("name", "value", "move"),
    [
        ("steps", 0, lambda model: setattr(model, "steps", model.steps + 1)),
        ("seen", [], lambda model: model.seen.append(1)),
        ("clock", Clock(), lambda model: model.clock.ticks.__setitem__(0, model.clock.ticks[0] + 1)),
        ("memory", ONES, lambda model: setattr(model, "memory", model.memory + 1)),
        ("states", [ONES], lambda model: model.states.__setitem__(0, model.states[0] + 1)),
        ("schedule", {"rate": 1.0}, lambda model: model.schedule.update(rate=model.schedule["rate"] / 2)),
    ],
)
def test_a_model_that_counts_or_keeps_what_it_saw_is_not_captured(graphs, name, value, move):
    steps = Steps(whole)
    setattr(steps.model.map, name, value)
    steps.work = lambda: move(steps.model.map)
    steps.run(8)
    assert graphs == [] and steps.captured.reason.startswith("attributes of the model or the task change")


def test_a_buffer_that_a_step_replaces_stays_what_it_was(graphs):
    steps, plain = Steps(whole), Steps(whole, capturing=False)
    for one in (steps, plain):
        one.model.map.register_buffer("average", torch.zeros(2))
        one.work = lambda m=one.model.map: setattr(m, "average", 0.9 * m.average + m.bias.detach())
    agree([x[:5] for x in steps.run(12)], [x[:5] for x in plain.run(12)])
    assert torch.equal(steps.model.map.average, plain.model.map.average) and graphs == []


def test_a_task_whose_loss_changes_with_the_step_is_not_captured(graphs):
    def annealed(step):
        steps.task.annealed = plain.task.annealed = 0.9**step
        return whole(step)

    steps, plain = Steps(annealed), Steps(annealed, capturing=False)
    agree(steps.run(12), plain.run(12))
    assert graphs == [] and steps.captured.reason.startswith("attributes of the model or the task change")


def test_a_task_may_keep_its_batches_but_no_tensor_of_a_step(graphs):
    def kept(step):
        steps.task.batch = drawn(step)
        return steps.task.batch

    steps = Steps(kept)
    agree(steps.run(12), Steps(drawn, capturing=False).run(12))
    assert len(graphs) == 1 and steps.captured.reason == ""
    steps = Steps(whole)
    steps.work = lambda: setattr(steps.task, "center", torch.rand(2, generator=torch.Generator()))
    steps.run(8)
    assert len(graphs) == 1 and steps.captured.reason.startswith("attributes of the model or the task change")


def test_graphs_and_tensors_may_fill_up():
    model, graph = Model(), complete(5)
    model.graph, model.tensor, model.kind = graph, torch.zeros(3), Model
    before = module.plain_state(model)
    assert graph.senders.shape == (25,) and graph.transpose() and model.tensor.add_(1).sum() == 3
    model.eval().train()
    assert module.plain_state(model) == before
    model.norm.eps = 1e-3
    assert module.plain_state(model) != before


def test_a_run_is_the_same_captured_or_not(graphs, tmp_path, monkeypatch):
    def on_cpu(gradient, model, task, world, settings):
        made.append(Captured(gradient, model, None, CPU, settings.deterministic))
        return made[-1]

    made, config = [], replace(configured(), train=replace(configured().train, average=AverageSettings(start=20)))
    plain = trained(tmp_path / "plain", config)
    monkeypatch.setattr(loop, "captured", on_cpu)
    assert same_run(plain, trained(tmp_path / "captured", config))
    assert len(graphs) == 1 and made[0].replay is graphs[0] and made[0].reason == ""


@pytest.mark.parametrize(
    "hang",
    [
        lambda model, hook: model.map.register_forward_hook(hook),
        lambda model, hook: model.register_forward_pre_hook(hook),
        lambda model, hook: model.norm.register_full_backward_hook(hook),
        lambda model, hook: model.map.weight.register_hook(hook),
        lambda model, hook: model.map.weight.register_post_accumulate_grad_hook(hook),
    ],
)
def test_hooks_are_called_in_every_step(graphs, hang):
    calls, steps = [], Steps(whole)
    hang(steps.model, lambda *inputs: calls.append(1))
    steps.run(8)
    assert len(calls) == 8 and graphs == [] and steps.captured.reason == "hooks are called in a step"


def test_a_step_that_cannot_be_captured_is_computed(graphs, monkeypatch):
    def record(work, device, stream=None):
        work()
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(module, "record", record)
    steps, plain = Steps(whole), Steps(whole, capturing=False)
    steps.model.norm = plain.model.norm = nn.Identity()  # whose buffers this `record` would move
    agree([x[:4] for x in steps.run(8)], [x[:4] for x in plain.run(8)])
    assert steps.captured.reason == "RuntimeError: operation not permitted when stream is capturing"


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("wrong", [1, 2])
def test_a_replay_that_computes_something_else_is_found_out_and_changes_nothing(graphs, exact, wrong, monkeypatch):
    replayed = Captured.replayed
    calls = []

    def spoilt(self, parts):
        loss = replayed(self, parts)
        calls.append(1)
        if len(calls) == wrong:
            self.weights[1].grad += 1.0
        return loss

    monkeypatch.setattr(Captured, "replayed", spoilt)
    steps, plain = Steps(drawn, exact), Steps(drawn, capturing=False)
    agree(steps.run(12), plain.run(12))
    assert len(calls) == wrong and steps.captured.reason == "replayed, a step did not compute the same"


def test_results_are_the_same_to_the_bit_or_as_close_as_sums_in_any_order():
    x, nan = torch.randn(9), float("nan")
    assert same(x, x.clone(), True) and same(None, None, True) and not same(x, None, False)
    assert not same(x, x * (1 + 1e-6), True) and same(x, x * (1 + 1e-6), False) and not same(x, x * 1.1, False)
    assert same(torch.tensor([nan, 1.0]), torch.tensor([nan, 1.0]), True)
    assert not same(torch.tensor([nan, 1.0]), torch.tensor([1.0, 1.0]), True)
    assert not same(torch.tensor([3]), torch.tensor([4]), False)
