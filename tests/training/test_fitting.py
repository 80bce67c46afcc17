"""A task, a graph and a module of one's own go through the loop of training."""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from edgewise import collect, fit, load
from edgewise.apps.command.main import main
from edgewise.errors import CheckpointError, ConfigError, EdgewiseError, GraphError, NonFiniteError
from edgewise.graphs import Graph, complete, window
from edgewise.layers import GCN
from edgewise.models.signature import Features
from edgewise.tasks import Batch, NodeClassification, Nodes, PatternChoice, Predicts, karate
from edgewise.tasks.core.task import Pattern
from edgewise.training import Choice, RunConfig, TrainSettings, evaluate, train
from edgewise.training.own import pattern_of
from edgewise.training.runs import assemble


class Line(Predicts):
    """y = 3 x - 1, of random points."""

    name, metric, epoch_size, signature = "line", "mse", 64, Features(1, 1)
    graphs: Graph | None = None

    def points(self, seed: int) -> Batch:
        x = torch.randn(16, 1, generator=Generator().manual_seed(seed))
        return Batch(self.laid(None, complete, 1), x[:, None], 3 * x[:, 0] - 1)

    def train_batch(self, size: int, generator: Generator, pattern: Pattern = None) -> Batch:
        return self.points(int(torch.randint(100, (), generator=generator)))

    def batches(self, split: str, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        yield self.points({"train": 0, "valid": 1000, "test": 2000}[split])

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return (outputs.reshape(-1) - batch.target).square().mean()

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        squares = (outputs.reshape(-1) - batch.target).square().sum().double()
        return {"mse": squares, "count": torch.tensor(16.0, dtype=torch.float64)}

    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: torch.device | str) -> dict[str, Any]:
        with torch.no_grad():
            return {"y": float(model(None, torch.tensor([[float(request)]])))}


class Returning(nn.Module):
    """A convolution of the karate club, and what becomes of its result [34, classes]."""

    def __init__(self, change: Callable[[Tensor], Any], classes: int = 2) -> None:
        super().__init__()
        self.layer, self.change = GCN(34, classes), change

    def forward(self, graph: Graph, x: Tensor) -> Any:
        return self.change(self.layer(graph, x))


OUTPUTS: dict[str, tuple[Callable[[Tensor], Any], int, str]] = {
    "too few": (lambda y: y, 1, r"outputs are \[34, 1\], but the task reads 2 in each row"),
    "a node less": (lambda y: y[1:], 2, r"outputs are \[33, 2\]; expected a row for each of 34 nodes"),
    "pooled": (lambda y: y.mean(0, keepdim=True), 2, r"outputs are \[1, 2\]; expected a row for each of 34 nodes"),
    "a number": (lambda y: y.sum(), 2, r"outputs are \[\], but the task reads 2"),
    "a tuple": (lambda y: (y, y), 2, "the model returned a tuple, but the task reads one tensor"),
    "nothing": (lambda y: None, 2, "the model returned a NoneType"),
    "whole numbers": (lambda y: y.long(), 2, "outputs are int64, but must be real numbers"),
    "without gradient": (lambda y: y.detach(), 2, "the loss does not depend on the model's weights"),
    "not a number": (lambda y: y * float("nan"), 2, "step 1: the loss is nan; no weight has moved yet"),
}


@pytest.mark.parametrize(("change", "classes", "what"), OUTPUTS.values(), ids=OUTPUTS)
def test_outputs_that_the_task_cannot_read_are_named(change: Callable[..., Any], classes: int, what: str) -> None:
    with pytest.raises(EdgewiseError, match=what):
        fit(karate(), Returning(change, classes), steps=1)


def test_paths_and_patterns_that_are_none_are_named() -> None:
    with pytest.raises(ConfigError, match="run must be a path, not 3"):
        fit(karate(), GCN(34, 2), 3, steps=1)
    with pytest.raises(ConfigError, match="holds a zero, which no path does"):
        fit(karate(), GCN(34, 2), "a\0b", steps=1)
    with pytest.raises(GraphError, match="the pattern made a NoneType of 34 positions, and not a Graph"):
        fit(karate(), GCN(34, 2), graph=lambda n: None, steps=1)


class Affine(nn.Module):
    """a x + b, on no graph."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(1, 1)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        return self.map(x)


def test_an_error_of_pytorch_s_says_what_the_model_was_called_with() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught:
        fit(karate(), Affine(), steps=1)
    assert caught.value.__notes__[0].startswith("fit called Affine as karate has it: Features(inputs=34, outputs=2")
    assert caught.value.__notes__[0].endswith("and numbers in float32")


def test_a_task_and_a_module_of_one_s_own_are_trained() -> None:
    model = Affine()
    result = fit(Line(), model, steps=200, optimizer="adam", learning_rate=0.05)
    assert result.test is not None and result.test < 1e-3 and result.measure == "test mse"
    assert model.map.weight.item() == pytest.approx(3, abs=0.05) and not model.training
    assert Line().predict(model, None, "2", "cpu")["y"] == pytest.approx(5, abs=0.1)
    assert not result.run.exists()


def test_it_is_the_recipe_s_own_training_bit_for_bit(tmp_path) -> None:
    settings = TrainSettings(steps=8, seed=3)
    config = RunConfig(Choice("karate"), Choice("gnn"), train=settings)
    known = train(config, tmp_path / "known", progress=False)
    task, model = assemble(config)
    result = fit(task, model, tmp_path / "own", train=settings)
    assert (result.test, result.valid, result.best_step) == (known.test, known.valid, known.best_step)
    lines = [(tmp_path / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines() for name in ("known", "own")]
    losses = [[json.loads(line).get("loss") for line in some] for some in lines]
    assert losses[0] == losses[1]


def test_a_graph_of_one_s_own_stands_in_for_the_data_s(tmp_path) -> None:
    task, graphs = karate(), []

    class Seen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = GCN(34, 2)

        def forward(self, graph: Graph, x: Tensor) -> Tensor:
            graphs.append(graph.num_edges)
            return self.layer(graph, x)

    for graph, edges in ((window(34, 1), 100), ("complete", 34 * 34), (PatternChoice("window", {"radius": 1}), 100)):
        graphs.clear()
        fit(task, Seen(), graph=graph, steps=1)
        assert set(graphs) == {edges}


def interrupt(run: Path) -> None:
    """Take a finished run its result and its last checkpoint, as if it had been stopped before."""
    shutil.rmtree(sorted((run / "checkpoints").iterdir())[-1])
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:-1]), encoding="utf-8")


def test_it_goes_on_to_the_same_bits_and_loads_what_is_finished(tmp_path) -> None:
    def model() -> Affine:
        torch.manual_seed(0)
        return Affine()

    options = {"steps": 6, "checkpoints": {"every": 2, "keep": 9}}
    whole = fit(Line(), model(), tmp_path / "whole", **options)
    fit(Line(), model(), tmp_path / "run", **options)
    interrupt(tmp_path / "run")
    again = model()
    result = fit(Line(), again, tmp_path / "run", resume=True, **options)
    assert (result.test, result.valid) == (whole.test, whole.valid)
    loaded = model()
    assert fit(Line(), loaded, tmp_path / "run", resume=True, **options) == result
    assert loaded.map.weight.equal(again.map.weight)
    assert evaluate(loaded, Line(), "test", 16)["mse"] == pytest.approx(result.test, rel=1e-6)


class Frozen(Affine):
    """A map that trains, after one that does not and that every model draws anew."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = nn.Linear(1, 1).requires_grad_(False)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        y: Tensor = self.map(self.drawn(x))
        return y


def test_frozen_weights_are_those_that_the_run_was_begun_with(tmp_path: Path) -> None:
    options: dict[str, Any] = {"steps": 6, "checkpoints": {"every": 2, "keep": 9}, "evaluation": {"every": 1}}
    models = [Frozen() for _ in range(3)]
    result = fit(Line(), models[0], tmp_path / "run", **options)
    assert fit(Line(), models[1], tmp_path / "run", resume=True, **options) == result
    interrupt(tmp_path / "run")
    resumed = fit(Line(), models[2], tmp_path / "run", resume=True, **options)
    assert (resumed.test, resumed.valid) == (result.test, result.valid)
    for model in models[1:]:
        for name, weight in model.state_dict().items():
            assert weight.equal(models[0].state_dict()[name]), name
    interrupt(tmp_path / "run")
    with pytest.raises(CheckpointError, match="was begun with other weights frozen"):
        fit(Line(), Frozen().requires_grad_(True), tmp_path / "run", resume=True, **options)


def ring(n: int, step: int = 1) -> Graph:
    return Graph.from_edge_index([list(range(n)), [(i + step) % n for i in range(n)]], num_nodes=n)


def closed(step: int) -> Callable[[int], Graph]:
    return lambda n: ring(n, step)


@pytest.mark.parametrize(
    ("first", "other", "what"),
    [
        ("causal", "complete", "graph=causal, not complete"),
        ("complete", PatternChoice("window", {"radius": 2}), "graph=complete, not {'name': 'window', 'radius': 2}"),
        (ring(34), ring(34, 2), "graph={'name': \"of one's own\", 'sha256'"),
        (partial(ring, step=1), partial(ring, step=2), "graph={.*'function': 'ring', 'step': 1}, not {.*'step': 2"),
        (closed(1), closed(2), "their graph, features or targets"),
    ],
)
def test_another_graph_is_refused_where_a_run_goes_on(tmp_path: Path, first: Any, other: Any, what: str) -> None:
    result = fit(karate(), GCN(34, 2), tmp_path / "run", graph=first, steps=1)
    with pytest.raises(EdgewiseError, match=what):
        fit(karate(), GCN(34, 2), tmp_path / "run", graph=other, resume=True, steps=1)
    again = Graph.from_edge_index(first.edge_index(), 34) if first == ring(34) else first
    assert fit(karate(), GCN(34, 2), tmp_path / "run", graph=again, resume=True, steps=1) == result


def test_another_task_or_model_is_refused_where_a_run_goes_on(tmp_path: Path) -> None:
    fit(Line(), Affine(), tmp_path / "run", steps=1)
    with pytest.raises(ConfigError, match=r"was begun with model\.class=Affine, not Normed"):
        fit(Line(), Normed(), tmp_path / "run", resume=True, steps=1)
    with pytest.raises(ConfigError, match=r"was begun with task\.class=Line, not Worse"):
        fit(Worse(), Affine(), tmp_path / "run", resume=True, steps=1)


def test_mistakes_are_named(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ConfigError, match="fit takes no option 'step'; did you mean 'steps'"):
        fit(Line(), Affine(), step=3)
    with pytest.raises(ConfigError, match=r"fit\(task, model\), not Affine and Line"):
        fit(Affine(), Line())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="optimizer 'adma' is unknown; did you mean 'adam'"):
        fit(Line(), Affine(), optimizer="adma")
    with pytest.raises(ConfigError, match="train must be a section of a recipe"):
        fit(Line(), Affine(), train=3)
    with pytest.raises(ConfigError, match="give its folder"):
        fit(Line(), Affine(), resume=True)
    with pytest.raises(ConfigError, match="graph must be a Graph, a pattern or its name, not int"):
        fit(Line(), Affine(), graph=3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Affine has no weight that trains: each is frozen"):
        fit(Line(), Affine().requires_grad_(False), steps=1)
    with pytest.raises(ConfigError, match="run is the name of a folder, and empty"):
        fit(Line(), Affine(), "", steps=1)
    fit(Line(), Affine(), tmp_path / "run", steps=1)
    for named, told in (
        ({"steps": 2}, r"train\.steps=1, not 2"),
        ({"learning_rate": 0.5}, r"learning_rate=.*, not 0\.5"),
    ):
        with pytest.raises(ConfigError, match=rf"was begun with .*{told}: give its own settings"):
            fit(Line(), Affine(), tmp_path / "run", resume=True, **{"steps": 1} | named)
    assert fit(Line(), Affine(), tmp_path / "run", resume=True, steps=1, machine={"threads": 1}).steps == 1
    with pytest.raises(ConfigError, match="already holds a run"):
        fit(Line(), Affine(), tmp_path / "run", steps=1)
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "was trained by edgewise.fit" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"give them in Python, edgewise\.load\(.*, task=\.\.\., model=\.\.\.\)"):
        load(tmp_path / "run", task=Line())
    spoilt = Affine()
    nn.init.constant_(spoilt.map.weight, float("nan"))
    with pytest.raises(NonFiniteError):
        fit(Line(), spoilt, steps=1)
    assert list(Path(tmp_path).glob("edgewise-fit-*")) == []


@pytest.mark.parametrize("threads", [0, 1])
def test_a_model_is_trained_in_training_mode_and_comes_back_in_evaluation_mode(tmp_path, threads: int) -> None:
    class Modes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.modes = GCN(34, 2), set[bool]()

        def forward(self, graph: Graph, x: Tensor) -> Tensor:
            if torch.is_grad_enabled():
                self.modes.add(self.training)
            return self.layer(graph, x)

    model, machine = Modes().eval(), {"device": "cpu", "threads": threads}
    fit(karate(), model, tmp_path / "run", steps=2, machine=machine)
    assert model.modes == {True} and not model.training
    loaded = Modes()
    fit(karate(), loaded, tmp_path / "run", steps=2, machine=machine, resume=True)
    assert loaded.modes == set() and not loaded.training


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.map = nn.BatchNorm1d(1), nn.Linear(1, 1)
        self.read: list[Tensor] = []  # for the statistics alone

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        if self.training and not torch.is_grad_enabled():
            self.read.append(x)
        y: Tensor = self.map(self.norm(self.map(x)))
        return y


def test_the_averaged_model_is_judged_and_kept_with_statistics_of_an_epoch_of_training() -> None:
    torch.manual_seed(0)
    model = Normed()
    options = {"steps": 20, "learning_rate": 0.1, "optimizer": "sgd", "average": {"start": 10}}
    fit(Line(), model, evaluation={"every": 20}, **options)
    y = torch.stack([model.map(x)[:, 0, 0] for x in model.read])
    assert len(y) == 2  # of 64 examples in batches of 32
    assert model.norm.running_mean.item() == pytest.approx(y.mean(1).mean().item(), rel=1e-4)
    assert model.norm.running_var.item() == pytest.approx(y.var(1).mean().item(), rel=1e-4)


class Stacked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.fails = nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)]), False

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        if self.fails:
            raise OSError("disk")
        for block in self.blocks:
            assert isinstance(block.forward, partial)
            x = block(x)
        return x


@pytest.mark.parametrize("fails", [False, True])
def test_a_model_is_recomputed_only_while_it_trains(fails: bool) -> None:
    model = Stacked()
    model.fails = fails
    with pytest.raises(OSError, match="disk") if fails else nullcontext():
        fit(Line(), model, steps=1, machine={"recompute": True, "threads": 1})
    assert all("forward" not in vars(block) for block in model.blocks)


def test_a_part_that_is_frozen_in_evaluation_mode_stays_so() -> None:
    model = Normed()
    model.norm.eval()
    fit(Line(), model, steps=3, evaluation={"every": 1}, average={"start": 1})
    assert model.norm.num_batches_tracked == 0 and model.norm.running_mean == 0


class Worse(Line):
    """Training takes the weights away from what the validation asks for."""

    def batches(self, split: Any, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        for batch in super().batches(split, size, pattern):
            batch.target[:] = -3 * batch.x.reshape(-1)
            yield batch


def test_a_finished_run_gives_its_best_weights(tmp_path: Path) -> None:
    options: dict[str, Any] = {"steps": 6, "learning_rate": 0.1, "optimizer": "sgd", "evaluation": {"every": 1}}
    first, again = Affine(), Affine()
    result = fit(Worse(), first, tmp_path / "run", **options)
    assert result.best_step < 6
    fit(Worse(), again, tmp_path / "run", resume=True, **options)
    assert again.map.weight.equal(first.map.weight)


def test_a_run_is_loaded_with_its_task_and_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {"steps": 6, "learning_rate": 0.1, "optimizer": "sgd", "evaluation": {"every": 1}}
    first = Affine()
    result = fit(Worse(), first, tmp_path / "run", **options)
    best = load(tmp_path / "run", task=Worse(), model=Affine())
    assert best.predict([2])[0]["y"] == pytest.approx(Line().predict(first, None, "2", "cpu")["y"])
    assert evaluate(best.model, best.task, "test", 16)["mse"] == pytest.approx(result.test)
    last = load(tmp_path / "run", "last", task=Worse(), model=Affine())
    assert not last.model.map.weight.equal(first.map.weight)
    for task, model in ((Line(), Affine()), (Worse(), Stacked())):
        with pytest.raises(ConfigError, match=r"was begun with (task|model)\.class="):
            load(tmp_path / "run", task=task, model=model)
    fit(Worse(), Affine(), tmp_path / "other", **options | {"learning_rate": 0.2})
    runs, page = [str(tmp_path / name) for name in ("run", "other")], tmp_path / "page.html"
    assert main(["report", "compare", *runs, "--out", str(page)]) == 0
    assert "B" in capsys.readouterr().out and "learning_rate" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("graph", [ring(34), "complete", PatternChoice("window", {"radius": 2})])
def test_a_run_s_own_graph_is_loaded_too(tmp_path: Path, graph: Any) -> None:
    model = GCN(34, 2)
    fit(karate(), model, tmp_path / "run", graph=graph, steps=2)
    given = graph if isinstance(graph, Graph) else None
    loaded = load(tmp_path / "run", task=karate(), model=GCN(34, 2), graph=given)
    assert loaded.predict([3]) == karate().predict(model, pattern_of(graph), "3", "cpu")["nodes"]
    if given:
        with pytest.raises(ConfigError, match="was begun with graph="):
            load(tmp_path / "run", task=karate(), model=GCN(34, 2))


class Named(Line):
    """Its metric is of another name, or not of a name that says which is better."""

    def __init__(self, metric: str, **said: bool) -> None:
        self.metric = metric
        vars(self).update(said)

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        scores = super().score(outputs, batch)
        return {self.metric: -scores["mse"] if self.maximise else scores["mse"], "count": scores["count"]}


def test_which_weights_are_best_follows_from_the_metric_s_name_or_is_said() -> None:
    for task in (Named("R²"), Named("neg_mean_squared_error"), Named("perplexity"), Named("merit", maximise=True)):
        result = fit(task, Affine(), steps=12, optimizer="sgd", learning_rate=0.3, evaluation={"every": 1})
        assert abs(result.valid) < 0.01, task.metric
    for metric in ("merit", "error of accuracy"):
        with pytest.raises(ConfigError, match=f"more or less {metric!r} is better does not follow from its name: give"):
            fit(Named(metric), Affine(), steps=1)


class OfEdges(nn.Module):
    """It reads the features of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(1, 2)

    def forward(self, graph: Graph, x: Tensor, e: Tensor) -> Tensor:
        return self.map(collect(graph, e))


class OfEdgeIndex(OfEdges):
    """The same, of PyTorch Geometric's form."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:  # type: ignore[override]
        return self.map(x.new_zeros(len(x), 1).index_add(0, edge_index[1], edge_weight[:, None]))


def test_features_of_edges_are_given_to_whoever_reads_them(tmp_path: Path) -> None:
    labels = torch.arange(30) // 5 % 2
    parts = {split: torch.arange(30)[part::3] for part, split in enumerate(("train", "valid", "test"))}
    e = labels[ring(30).receivers, None].float()
    task = NodeClassification("ring", Nodes(ring(30), torch.ones(30, 1), labels, ("a", "b"), parts, e))
    for model in (OfEdges(), OfEdgeIndex()):
        result = fit(task, model, tmp_path / type(model).__name__, steps=60, learning_rate=0.1)
        assert result.test == 1
        loaded = load(result.run, task=task, model=type(model)())
        assert loaded.predict([7])[0]["label"] == "b"
    with pytest.raises(ConfigError, match=r"Affine is called model\(graph, x, e\) on ring, and its forward takes"):
        fit(task, Affine(), steps=1)
