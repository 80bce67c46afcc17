"""A trial: a run that reads no test data and tells of each evaluation, so that it can be stopped early."""

from collections.abc import Callable
from pathlib import Path

from edgewise.training import Result, RunConfig, finished
from edgewise.training.distributed import World, join
from edgewise.training.integrity import CONFIG
from edgewise.training.loop import Trainer
from edgewise.training.runs import create, read_config, refuse_used

Watch = Callable[[int, float], None]  # after an evaluation: the step, and the best validation figure so far


class Trial(Trainer):
    """A run whose evaluations are watched, and which holds the test split back."""

    def __init__(self, config: RunConfig, run: Path, world: World, watch: Watch) -> None:
        super().__init__(config, run, world)
        self.watch = watch

    def validate(self) -> tuple[int, str]:
        """Evaluate, and tell of it."""
        evaluated = super().validate()
        self.watch(self.step, self.best["valid"][self.task.metric])
        return evaluated

    def tested(self) -> dict[str, dict[str, float]]:
        """Nothing: the options are chosen without the test data."""
        return {}


def carry_out(config: RunConfig, run: Path, watch: Watch) -> Result:
    """Train, or go on from the newest checkpoint of the same configuration; `watch` may stop it by an exception."""
    world = join(config.machine.device)
    begun = (run / CONFIG).is_file() and read_config(run) == config
    if begun and (result := finished(run)) is not None:
        return result
    if not begun:
        refuse_used(run)
    trial = Trial(config, run, world, watch)
    if not begun:
        create(run, config, trial.task)
    return trial.fit(progress=False)
