"""How long a run trains: by passes, by time, by the data, and until the validation score stands still."""

from dataclasses import replace

import pytest

from edgewise.training import Choice, finished, read_config, resume, train
from edgewise.training.lengths import sized
from training.tiny import configured, records, same_run, tiny, trained

STILL = Choice("sgd", {"learning_rate": 1e-30})  # no evaluation is better than the first


def open_ended(**options):
    config = configured(steps=1, **options)
    return replace(config, train=replace(config.train, steps=0), evaluation=replace(config.evaluation, every=0))


@pytest.mark.parametrize(
    ("examples", "steps", "every"),
    [(64, 6325, 64), (4000, 50_000, 500), (16_000, 100_000, 1000), (4_000_000, 1_581_139, 62_500)],
)
def test_the_number_of_examples_says_how_long(examples, steps, every):
    task = tiny()
    task.epoch_size = examples
    config = sized(open_ended(), task)
    assert (config.train.steps, config.evaluation.every) == (steps, every)
    assert sized(config, task) == config


def test_epochs_are_passes_over_the_examples(tmp_path, capsys):
    config = open_ended()
    result = train(replace(config, train=replace(config.train, epochs=2.5)), tmp_path / "run")
    assert result.steps == 10  # of 16 of the 64 examples
    assert read_config(tmp_path / "run").train.steps == 10
    assert "trains at most 10 steps, 2.5 passes over 64 examples" in capsys.readouterr().err


def test_time_ends_training_with_its_schedule(tmp_path):
    config = configured(steps=10**6, schedule=Choice("linear"), log_every=1, evaluate_every=10**6)
    run = trained(tmp_path / "run", replace(config, train=replace(config.train, time=0.5)))
    rates = [line["learning_rate"] for line in records(run) if "learning_rate" in line]
    assert 2 < finished(run).steps < 10**6
    assert finished(run).best_step == finished(run).steps
    assert rates[0] > 0.04 and rates[-1] < 0.005 and rates == sorted(rates, reverse=True)


def plateau(**options):
    return configured(
        optimizer=STILL,
        schedule=Choice("plateau", {"minimum": 0.05}),
        patience=2,
        log_every=4,
        evaluate_every=4,
        **options,
    )


def test_a_plateau_cuts_the_rate_then_ends(tmp_path):
    run = trained(tmp_path / "run", plateau(steps=1000))
    assert (finished(run).best_step, finished(run).steps) == (4, 28)  # three rates: 1, 0.3 and 0.09
    rates = [line["learning_rate"] / 1e-30 for line in records(run) if "learning_rate" in line]
    assert rates == pytest.approx([1, 1, 1, 0.3, 0.3, 0.09, 0.09])


def test_a_cut_goes_on_from_the_best_weights_and_resumes_to_the_same_bits(tmp_path):
    options = {"schedule": Choice("plateau"), "patience": 1, "evaluate_every": 2, "log_every": 1, "checkpoint_every": 3}
    first = trained(tmp_path / "first", configured(optimizer=Choice("sgd", {"learning_rate": 30.0}), **options))
    stopping = configured({"poison": "stop", "at": 8}, optimizer=Choice("sgd", {"learning_rate": 30.0}), **options)
    with pytest.raises(KeyboardInterrupt):
        train(stopping, tmp_path / "second", progress=False)
    text = (tmp_path / "second" / "config.yaml").read_text()
    (tmp_path / "second" / "config.yaml").write_text(text.replace("stop", "none"))
    resume(tmp_path / "second", progress=False, accept=True)
    rates = {line["learning_rate"] for line in records(first) if "learning_rate" in line}
    assert len(rates) > 1
    assert same_run(first, tmp_path / "second")
