"""The loop: what a step is, which weights are chosen, and what happens at the first number that is none."""

import json
from dataclasses import replace

import pytest
import torch

from edgewise.errors import ConfigError, NonFiniteError
from edgewise.tasks import TASKS
from edgewise.training import Choice, RunConfig, finished, read_config, resume, train
from edgewise.training.distributed import World
from edgewise.training.loop import Trainer
from training.tiny import Tiny, configured, losses, records, same_run, tiny, trained, weights

CPU = World(torch.device("cpu"))


def test_training_learns_and_tells_what_it_reached(tmp_path):
    result = train(configured(steps=200, model=None), tmp_path / "run", progress=False)
    assert result.metric == "accuracy"
    assert result.test > 0.85
    assert result.valid > 0.85
    assert result.steps == 200
    assert result.best_step % 8 == 0
    assert 0 < result.step_seconds < result.seconds
    assert result.run == tmp_path / "run"
    assert sorted(path.name for path in result.run.iterdir()) == ["checkpoints", "config.yaml", "metrics.jsonl"]
    assert read_config(result.run) == configured(steps=200)
    assert finished(result.run) == result


def test_the_records_hold_every_number(tmp_path):
    config = configured(schedule=Choice("linear", {"warmup": 10}), log_every=5)
    lines = records(trained(tmp_path / "run", config))
    logged = {line["step"]: line for line in lines if "loss" in line}
    assert list(logged) == [5, 10, 15, 20, 25, 30, 35, 40]
    assert set(logged[5]) == {"step", "loss", "gradient_norm", "learning_rate"}
    assert logged[5]["learning_rate"] == pytest.approx(0.05 * 5 / 11)
    assert logged[40]["learning_rate"] == pytest.approx(0.05 * 1 / 30)
    assert [line["step"] for line in lines if "valid" in line] == [8, 16, 24, 32, 40, 40]
    assert set(lines[-1]) == {"step", "metric", "best_step", "valid", "test"}


def test_the_same_configuration_gives_the_same_bits(tmp_path):
    runs = [trained(tmp_path / str(k), configured(seed=k // 2)) for k in range(4)]
    assert same_run(runs[0], runs[1])
    assert same_run(runs[2], runs[3])
    assert not same_run(runs[0], runs[2])


@pytest.mark.parametrize("name", ["sgld", "cyclical-sgld"])
def test_the_noise_of_langevin_dynamics_is_that_of_the_runs_seed(name):
    moved = []
    for seed in (0, 0, 7):
        optimizer = Trainer(configured(optimizer=Choice(name), seed=seed), None, CPU).optimizer
        w = optimizer.param_groups[0]["params"][0]
        w.data.zero_()
        w.grad = torch.zeros_like(w)
        optimizer.explore = 0.0
        optimizer.step()
        moved.append(w.detach())
    assert moved[0].any() and moved[0].equal(moved[1]) and not moved[0].equal(moved[2])


@pytest.mark.parametrize("machine", [{"precision": "float16"}, {"compile": True}])
def test_newtons_method_is_refused_where_it_has_no_second_derivatives(tmp_path, machine):
    with pytest.raises(ConfigError, match="'newton' runs in one process, not in float16 and not compiled"):
        train(configured(optimizer=Choice("newton"), **machine), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.compiled
def test_training_may_be_compiled(tmp_path, monkeypatch):
    compiled = []

    def traced(model):
        compiled.append(model)
        return compiler(model, backend="eager")  # the same operations: the default would take long to start

    compiler = torch.compile
    monkeypatch.setattr(torch, "compile", traced)
    runs = [trained(tmp_path / str(k), configured(steps=3, compile=bool(k))) for k in (0, 1)]
    assert len(compiled) == 1
    first, second = map(weights, runs)
    assert first.keys() == second.keys() and all(torch.allclose(first[name], second[name]) for name in first)


def update(config):
    """One step from the initial weights: how far it went, the loss, and the gradient's norm."""
    trainer = Trainer(config, None, CPU)
    before = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    trainer.step = 1
    loss, norm, _ = trainer.update()
    return {name: weight - before[name] for name, weight in trainer.model.state_dict().items()}, loss, norm


PLAIN = Choice("sgd", {"learning_rate": 1.0})


def test_a_step_is_the_gradient_of_the_batchs_mean_loss():
    config = configured(model={"dropout": 0.0}, optimizer=PLAIN)
    moves, loss, norm = update(config)
    trainer = Trainer(config, None, CPU)
    trainer.step = 1
    ((weights_of, batch),) = trainer.share_of_batch()
    assert weights_of == (1.0, 1.0)
    assert len(batch.x) == 16
    expected = torch.nn.functional.cross_entropy(trainer.model(None, batch.x), batch.target)
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-6)
    gradients = {name: parameter.grad for name, parameter in trainer.model.named_parameters()}
    for name, gradient in gradients.items():
        torch.testing.assert_close(moves[name], -gradient)
    assert norm == pytest.approx(sum(g.square().sum() for g in gradients.values()).sqrt().item(), rel=1e-6)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_models_own_loss_is_added_to_the_tasks(accumulate):
    config = configured(model={"dropout": 0.0, "double": True}, task={"double": True}, optimizer=PLAIN)
    config = replace(config, train=replace(config.train, accumulate=accumulate))
    plain, loss, _ = update(config)
    own_moves, own_loss, _ = update(replace(config, model=Choice("penalised", config.model.options)))
    weight = Trainer(config, None, CPU).model.first.weight
    assert own_loss == pytest.approx(loss + 0.1 * weight.square().sum().item())
    torch.testing.assert_close(own_moves["first.weight"], plain["first.weight"] - 0.2 * weight.detach())
    torch.testing.assert_close(own_moves["second.weight"], plain["second.weight"])


@pytest.mark.parametrize(("double", "tolerance", "accumulate"), [(False, 1e-6, 3), (True, 1e-12, 7), (True, 1e-12, 40)])
def test_micro_batches_add_up_to_their_batch(double, tolerance, accumulate):
    model = {"dropout": 0.0, "double": double}
    config = configured({"double": double}, model, PLAIN)
    whole, loss, norm = update(config)
    cut = replace(config, train=replace(config.train, accumulate=accumulate))  # 16 = 6 + 5 + 5, or not to be cut
    parts, loss_of_parts, norm_of_parts = update(cut)
    for name, move in whole.items():
        torch.testing.assert_close(parts[name], move, rtol=0, atol=tolerance)
    assert (loss_of_parts, norm_of_parts) == pytest.approx((loss, norm), rel=tolerance)


def test_clipping_shortens_a_long_gradient_and_leaves_a_short_one():
    def length(moves):
        return sum(move.square().sum() for move in moves.values()).sqrt().item()

    free, _, norm = update(configured(optimizer=PLAIN))
    assert length(free) == pytest.approx(norm, rel=1e-5)
    short, _, told = update(configured(optimizer=PLAIN, clip=norm / 3))
    assert told == norm
    assert length(short) == pytest.approx(norm / 3, rel=1e-4)
    for name, move in free.items():
        torch.testing.assert_close(short[name] * 3, move, rtol=1e-4, atol=1e-6)
    same, _, _ = update(configured(optimizer=PLAIN, clip=norm * 1.01))
    assert all(torch.equal(same[name], move) for name, move in free.items())


def test_a_whole_graph_is_cut_and_moved_once():
    trainer = Trainer(configured(accumulate=2), None, CPU)
    batch = trainer.task.train_batch(4, torch.Generator())
    trainer.task.train_batch = lambda *_: batch
    assert trainer.share_of_batch() is trainer.share_of_batch()


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision_computes_in_halves_and_keeps_whole_weights(tmp_path, precision):
    run = trained(tmp_path / "half", configured(precision=precision, steps=40))
    whole = trained(tmp_path / "whole", configured())
    assert all(weight.dtype == torch.float32 for weight in weights(run).values())
    assert losses(run) != losses(whole)
    assert losses(run)[:3] == pytest.approx(losses(whole)[:3], rel=0.03)
    assert finished(run).test > 0.8


def test_a_float16_overflow_skips_the_step_and_scales_less(tmp_path):
    trainer = Trainer(configured(precision="float16"), None, CPU)
    before = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    trainer.scaler.load_state_dict(trainer.scaler.state_dict() | {"scale": 2.0**40})
    trainer.step = 1
    _, norm, _ = trainer.update()
    assert not norm < float("inf")
    assert trainer.scaler.get_scale() == 2.0**39
    assert all(torch.equal(weight, before[name]) for name, weight in trainer.model.state_dict().items())


def test_patience_ends_training_with_a_checkpoint(tmp_path):
    still = Choice("sgd", {"learning_rate": 1e-30})
    run = trained(tmp_path / "run", configured(optimizer=still, patience=3, evaluate_every=4, steps=1000))
    result = finished(run)
    assert (result.best_step, result.steps) == (4, 16)  # the first evaluation, and three that are no better
    assert [path.name for path in sorted((run / "checkpoints").iterdir())] == ["step-00000010", "step-00000016"]


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
def test_the_weights_are_chosen_on_the_validation_split(tmp_path, metric):
    run = trained(tmp_path / "run", configured({"metric": metric}, evaluate_every=3, steps=90))
    told = [(line["step"], line["valid"]) for line in records(run) if "valid" in line and "test" not in line]
    sign = 1 if metric == "accuracy" else -1
    best = max(told, key=lambda line: (sign * line[1][metric], -line[1]["loss"], -line[0]))
    result = finished(run)
    assert (result.metric, result.best_step, result.valid) == (metric, best[0], best[1][metric])


def test_the_test_split_is_read_once_at_the_end(tmp_path, monkeypatch):
    made = []

    def watched():
        made.append(tiny())
        return made[-1]

    monkeypatch.setitem(TASKS, "tiny", watched)
    trained(tmp_path / "run", configured())
    assert made[0].read == ["valid"] * 5 + ["test"]


@pytest.mark.parametrize(
    ("poison", "message"),
    [
        ("loss", r"step 25: the loss is inf; lower optimizer.learning_rate"),
        ("gradient", r"step 25: the gradient of 'first.weight' is not finite"),
        ("valid", r"the valid loss is nan after step 32"),
        ("rank", r"step 25: the loss is nan"),
    ],
)
def test_training_stops_by_name_at_the_first_number_that_is_none(tmp_path, poison, message):
    run = tmp_path / "run"
    with pytest.raises(NonFiniteError, match=message):
        train(configured({"poison": poison, "at": 25}), run, progress=False)
    steps = [path.name[-2:] for path in sorted((run / "checkpoints").iterdir())]
    assert steps == (["20", "30"] if poison == "valid" else ["10", "20"])
    assert all(torch.isfinite(weight).all() for weight in weights(run).values())
    assert all(json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines())
    assert finished(run) is None
    resume(run, progress=False)  # in a new process the tiny task is healthy for 24 batches more
    assert same_run(run, trained(tmp_path / "healthy", configured()))


@pytest.mark.parametrize(
    ("every", "message"),
    [
        (1, r"the weight 'first.weight' is not finite after step 1"),
        (10, r"step 2: the weight 'first.\w+' was no longer"),
    ],
)
def test_a_weight_that_grew_too_large_is_named_and_never_written(tmp_path, every, message):
    huge = Choice("sgd", {"learning_rate": 1e25})
    config = configured({"poison": "power", "at": 1}, optimizer=huge, checkpoint_every=every)
    with pytest.raises(NonFiniteError, match=message):
        train(config, tmp_path / "run", progress=False)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_away_from_a_terminal_training_is_quiet(tmp_path, capsys):
    train(configured(), tmp_path / "quiet", progress=False)
    assert capsys.readouterr() == ("", "")
    train(configured(), tmp_path / "told")
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("step 40/40  loss 0.")
    assert "valid accuracy 0." in err


def test_the_best_weights_are_chosen_by_the_loss_where_asked(tmp_path, capsys):
    chosen = {}
    for choice, told in (("metric", "(best 0."), ("loss", "(best by loss 0.")):
        result = train(configured(choose_by=choice, evaluate_every=1), tmp_path / choice)
        chosen[choice] = result.best_step
        assert told in capsys.readouterr().err
    lines = [line for line in records(tmp_path / "loss") if "valid" in line and "metric" not in line]
    assert chosen["loss"] == min(lines, key=lambda line: line["valid"]["loss"])["step"]
    assert chosen["metric"] == max(lines, key=lambda line: (line["valid"]["accuracy"], -line["valid"]["loss"]))["step"]
    assert chosen["loss"] != chosen["metric"], "the test needs a task on which the two differ"


def averaged(task, model, **options):
    """A trainer of an average of weights, once a step and an evaluation are over."""
    content = {"task": task, "model": model, "train": {"steps": 1, "average": {"start": 1}, **options}}
    return Trainer(RunConfig.from_plain(content), None, CPU)


def test_the_batch_norms_of_an_average_hear_what_trains_alone():
    """The whole graph was read for them, also where training reads the graph of the training nodes alone."""
    task = {"name": "planted", "nodes": 60, "classes": 3, "inductive": True, "fanouts": []}
    trainer = averaged(task, {"name": "gnn", "layer": "gcn", "norm": "batch"})
    read = list(trainer.training_batches())
    assert [len(inputs[1]) for inputs in read] == [len(trainer.task.splits["train"])]
    trainer = averaged(task | {"fanouts": [3, 3]}, {"name": "gnn", "layer": "sage-mean", "norm": "batch"}, batch=16)
    trained = trainer.task.nodes.x[trainer.task.splits["train"]]
    assert all(bool((row == trained).all(-1).any()) for _, x in trainer.training_batches() for row in x)


def test_the_batch_norms_of_an_average_read_batches_as_training_draws_them():
    """The last of them could be a single example, and a task that draws every batch anew had none."""
    short = {"examples": 9, "longest": 12, "shortest": 4}
    tasks = {"tiny": ({}, {"name": "two maps"}, 9), "listops": (short, {"name": "transformer", "readout": "mean"}, 4)}
    for name, (options, model, batch) in tasks.items():
        trainer = averaged({"name": name, **options}, model, batch=batch, accumulate=2)
        read, size = list(trainer.training_batches()), trainer.task.epoch_size
        assert len(read) == 2 * -(-size // batch)
        again, drawn = list(trainer.training_batches()), trainer.make(1)[1]
        assert all(torch.equal(one[1], other[1]) for one, other in zip(read, again, strict=True))
        assert all(torch.equal(one[1], other.x) for one, other in zip(read, drawn, strict=False))


def test_weights_are_not_chosen_by_a_loss_that_is_no_score(tmp_path, monkeypatch):
    score = Tiny.score
    monkeypatch.setattr(Tiny, "score", lambda *given: {n: v for n, v in score(*given).items() if n != "loss"})
    with pytest.raises(ConfigError, match="chosen by 'loss', but the scores of the task 'tiny' are 'accuracy'"):
        train(configured(choose_by="loss"), tmp_path / "run", progress=False)
