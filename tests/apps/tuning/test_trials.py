import pytest

from edgewise.apps import recipes
from edgewise.apps.options import configure
from edgewise.apps.tuning.trials import carry_out
from edgewise.training import read_metrics, train

OPTIONS = [("train.steps", "6"), ("evaluation.every", "2"), ("train.checkpoints.every", "2"), ("model.width", "8")]


class Stopped(Exception):
    pass


def test_a_trial_is_the_run_without_its_test(tmp_path):
    config = configure(recipes.read("karate"), OPTIONS)
    seen: list[tuple[int, float]] = []
    result = carry_out(config, tmp_path / "trial", lambda *evaluation: seen.append(evaluation))
    run = train(config, tmp_path / "run", progress=False)
    assert [step for step, _ in seen] == [2, 4, 6]
    assert seen[-1][1] == result.valid == run.valid
    assert result.test is None and run.test is not None
    assert not any("test" in record for record in read_metrics(tmp_path / "trial"))


def test_a_stopped_trial_goes_on_to_the_same_figure(tmp_path):
    config = configure(recipes.read("karate"), OPTIONS)

    def stop(step: int, value: float) -> None:
        if step == 4:
            raise Stopped

    with pytest.raises(Stopped):
        carry_out(config, tmp_path / "stopped", stop)
    steps: list[int] = []
    resumed = carry_out(config, tmp_path / "stopped", lambda step, _: steps.append(step))
    whole = carry_out(config, tmp_path / "whole", lambda *_: None)
    assert steps == [4, 6]  # from the checkpoint of step 2
    assert (resumed.valid, resumed.best_step) == (whole.valid, whole.best_step)
    assert carry_out(config, tmp_path / "stopped", stop).valid == whole.valid  # a finished one is read
