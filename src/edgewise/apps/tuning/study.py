"""The trials of a search: Optuna's, in a database that any number of processes share and that outlives a kill."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from statistics import fmean
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from edgewise.apps.command.runs import repetitions
from edgewise.apps.options import Overrides, configure
from edgewise.apps.recipes import Recipe
from edgewise.apps.tuning.space import Dimension, Value, as_text, own
from edgewise.errors import CheckpointError, ConfigError, EdgewiseError, installing
from edgewise.files import claimed, lock, make_folder
from edgewise.memory import was_short
from edgewise.tasks import Task
from edgewise.training import Result, RunConfig, finished, settled
from edgewise.training.distributed import World, join
from edgewise.training.integrity import CONFIG
from edgewise.training.lengths import sized
from edgewise.training.loop import Trainer
from edgewise.training.runs import create, placed, read_config, refuse_used
from edgewise.training.seeds import mix

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.trial import FrozenTrial

TRIALS = "trials.db"  # Optuna's
RUNS = "trials"  # the folder of their runs
STARTED = 5  # trials that are trained to their end before others are compared with them
FIRST = 5  # no trial of one run is stopped in its first fifth
REFUSED = "refused"  # the attribute with the reason why values do not run
Watch = Callable[[int, float], None]  # after an evaluation: the step, and the best validation figure so far


class OutOfTime(Exception):
    """The time is over in the middle of a trial, which the next call goes on with."""


@dataclass(frozen=True)
class Search:
    """A recipe with options from the command line, what is searched, and how many runs a trial is the mean of.

    Symbols     folds = whether these runs are one for each fold of the data, instead of one for each seed
    """

    recipe: Recipe
    overrides: Overrides
    dimensions: list[Dimension]
    repeats: int = 1
    folds: bool = False

    @property
    def config(self) -> RunConfig:
        """The recipe as it stands."""
        return self.with_values({})

    def to_plain(self) -> dict[str, Any]:
        """All that decides the figures of a trial."""
        return {
            "recipe": self.config.to_plain(),
            "search": [str(dimension) for dimension in self.dimensions],
            "repeat": {"folds" if self.folds else "seeds": self.repeats},
        }

    def own(self) -> dict[str, Value]:
        """The recipe's own values where they are searched, those of the first trial."""
        return own(self.config, self.dimensions)

    @property
    def has_recipe(self) -> bool:
        """Whether the recipe's own values are all among those that are searched: it is the first trial then."""
        return len(self.own()) == len(self.dimensions)

    def with_values(self, values: Mapping[str, Value]) -> RunConfig:
        """The recipe with a trial's values, as `edgewise train` would train it."""
        given = [(option, as_text(value)) for option, value in values.items()]
        return settled(configure(self.recipe, [*self.overrides, *given]))

    def decided(self) -> list[Dimension]:
        """The dimensions that change nothing: options of a model that `start.hub` brings."""
        found = []
        for one in self.dimensions if self.config.start.hub else ():
            made = [self.with_values({one.option: value}) for value in one.tried]
            if all(config == made[0] for config in made):
                found.append(one)
        return found

    def repetitions(self, values: Mapping[str, Value], *, fresh: bool = False) -> list[RunConfig]:
        """The configurations of a trial's runs; fresh ones have seeds that no trial has."""
        config = self.with_values(values)
        if fresh:
            config = replace(config, train=replace(config.train, seed=config.train.seed + self.repeats))
        return repetitions(config, self.repeats, self.folds)

    def run_name(self, config: RunConfig) -> str:
        """The name of a run among a trial's."""
        return f"fold-{config.task.options['fold']}" if self.folds else f"seed-{config.train.seed}"


class Watched(Trainer):
    """A run whose evaluations are watched, and which does not read the test split."""

    def __init__(self, config: RunConfig, run: Path, world: World, watch: Watch) -> None:
        super().__init__(config, run, world)
        self.watch = watch

    def validate(self) -> tuple[int, str]:
        evaluated = super().validate()
        self.watch(self.step, self.best["valid"][self.task.metric])
        return evaluated

    def tested(self) -> dict[str, Any]:
        return {}


def carry_out(config: RunConfig, run: Path, watch: Watch) -> Result:
    """Train, or go on from the newest checkpoint of the same configuration; `watch` may stop it by an exception."""
    world, config = join(config.machine.device), placed(config)
    begun = (run / CONFIG).is_file() and read_config(run) == config
    if begun and (result := finished(run)) is not None:
        return result
    if not begun:
        refuse_used(run)
    trial = Watched(config, run, world, watch)
    if not begun:
        create(run, config, trial.task)
    return trial.fit(progress=False)


class Reached(NamedTuple):
    """A trial that was trained to its end, and its validation figure."""

    trial: "FrozenTrial"
    value: float

    @property
    def number(self) -> int:
        """The number of its folder."""
        return folder_of(self.trial)

    @property
    def params(self) -> dict[str, Value]:
        """The values of the options."""
        return self.trial.params


class Study:
    """The trials of a search, in a folder, and the figure that they are compared by."""

    def __init__(self, search: Search, folder: Path, task: Task) -> None:
        self.search, self.folder = search, folder
        self.metric, self.maximise = task.metric, task.maximise
        self.settings = sized(search.config, task).train
        self.locks: dict[int, IO[bytes]] = {}  # of the trials that this process carries out

    def open(self) -> None:
        """Make the folder, or go on with the one that is there.

        Errors      ConfigError: the folder holds another search, or something else
        """
        self.library = optuna = library()
        self.states = optuna.trial.TrialState
        names = {path.name for path in self.folder.iterdir()} if self.folder.exists() else set[str]()
        if names and not names & {TRIALS, RUNS}:
            raise ConfigError(f"{self.folder} holds something else: name a new folder with --run")
        make_folder(self.folder / RUNS)
        first = 1 if self.search.repeats > 1 else self.settings.steps // FIRST
        with claimed(self.folder, wait=True):
            place = f"sqlite:///{self.folder / TRIALS}"
            storage = optuna.storages.RDBStorage(place, engine_kwargs={"connect_args": {"timeout": 60}})
            self.optuna = optuna.create_study(
                storage=storage,
                study_name=self.search.recipe.name,
                direction="maximize" if self.maximise else "minimize",
                load_if_exists=True,
                pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTED, n_warmup_steps=first),
            )
            self._compare()
            trials = len(self.trials())
            # The sampler draws anew in each process, from what all have found.
            self.optuna.sampler = optuna.samplers.TPESampler(
                seed=mix(self.settings.seed, trials) % 2**32, multivariate=True, n_startup_trials=2 * STARTED
            )
            if not trials:
                self.optuna.enqueue_trial(self.search.own())

    def _compare(self) -> None:
        """Record what is searched, or compare it with what the study has."""
        content = self.search.to_plain()
        known = self.optuna.user_attrs or content
        for part in content:
            if known.get(part) != content[part]:
                message = f"{self.folder} holds another search: its {part!r} is not that of this command"
                raise ConfigError(f"{message}; repeat the command that made it, or name a new folder with --run")
            self.optuna.set_user_attr(part, content[part])

    def trials(self, *states: Any) -> "list[FrozenTrial]":
        """The trials in these states, or all, by their numbers."""
        found: list[FrozenTrial] = self.optuna.get_trials(deepcopy=False, states=states or None)
        return found

    def done(self) -> "list[FrozenTrial]":
        """The trials that are finished, those that were stopped early among them."""
        return self.trials(self.states.COMPLETE, self.states.PRUNED)

    def complete(self) -> "list[Reached]":
        """The trials that were trained to their end, the best first."""
        found = [Reached(one, float(one.value)) for one in self.trials(self.states.COMPLETE) if one.value is not None]
        return sorted(found, key=lambda one: -one.value if self.maximise else one.value)

    def refused(self) -> dict[int, str]:
        """Why the values of a trial did not run, by its number."""
        return {folder_of(one): one.user_attrs[REFUSED] for one in self.done() if REFUSED in one.user_attrs}

    def recipes_own(self) -> float | None:
        """What the recipe reaches as it stands, once that is known; never where it is no trial."""
        return next((one.value for one in self.complete() if one.number == 0 and self.search.has_recipe), None)

    def carry_out(self, most: int, seconds: float) -> Iterator["FrozenTrial"]:
        """Carry out trials until there are `most` or the time is over, and yield each at its end."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and (trial := self.take(most)) is not None:
            try:
                self.train(trial, end)
            except OutOfTime:
                return
            finally:
                self.locks.pop(folder_of(trial)).close()
            yield self.optuna.get_trials(deepcopy=False)[trial.number]

    def take(self, most: int) -> "Trial | None":
        """The next trial: one that a killed process has left, or a new one; None where there are enough."""
        with claimed(self.folder, wait=True):
            running = self.trials(self.states.RUNNING)
            left = [trial for trial in running if self.claim(folder_of(trial))]
            for trial in left:
                self.optuna.tell(trial.number, state=self.states.FAIL)
                begun = len(trial.params) == len(self.search.dimensions)
                values = trial.params if begun else self.search.own() if trial.number == 0 else {}
                if values:
                    self.optuna.enqueue_trial(values, user_attrs={"folder": folder_of(trial)})
            self.release()  # they wait, and any process may be given them
            if len(self.done()) + len(running) - len(left) >= most:
                return None
            trial = self.optuna.ask()
            for dimension in self.search.dimensions:
                dimension.suggest(trial)
            if not self.claim(folder_of(trial)):
                raise ConfigError(f"another process works in {self.folder / 'trials' / str(folder_of(trial))}")
            return trial

    def elsewhere(self) -> list[int]:
        """The trials that other processes carry out."""
        with claimed(self.folder, wait=True):
            numbers = [folder_of(trial) for trial in self.trials(self.states.RUNNING)]
            found = [number for number in numbers if not self.claim(number)]
            self.release()
        return found

    def release(self) -> None:
        """Let other processes work in the folders that this one has claimed."""
        while self.locks:
            self.locks.popitem()[1].close()

    def claim(self, number: int) -> bool:
        """Whether no other process works in a trial's folder; if so, this one does from now on."""
        if number in self.locks:
            return True
        folder = self.folder / RUNS / str(number)
        make_folder(folder)
        file = (folder / "lock").open("ab")
        if not lock(file):
            file.close()
            return False
        self.locks[number] = file
        return True

    def train(self, trial: "Trial", end: float) -> None:
        """Train a trial's runs, and tell the study their mean."""
        folder, alone = self.folder / RUNS / str(folder_of(trial)), self.search.repeats == 1
        values: list[float] = []

        def report(step: int, value: float) -> None:
            trial.report(value, step)
            if trial.should_prune():
                raise self.library.TrialPruned

        def watch(step: int, value: float) -> None:
            if alone:
                report(step, value)
            if time.monotonic() > end:
                raise OutOfTime

        try:
            for config in self.search.repetitions(trial.params):
                run = folder / self.search.run_name(config)
                values.append(carry_out(config, run, watch).valid)
                if not alone:
                    report(len(values), fmean(values))
            self.optuna.tell(trial, fmean(values))
        except self.library.TrialPruned:
            self.optuna.tell(trial, state=self.states.PRUNED)
        except CheckpointError:  # of a full disk, whatever the values
            raise
        except EdgewiseError as error:  # a loss that is no number, or values that do not go together
            self.refuse(trial, str(error))
        except (MemoryError, OverflowError, RuntimeError) as error:
            kind, short = type(error).__name__, was_short(error)
            if not short and ("CUDA error" in str(error) or not self.done()):  # so would others
                raise
            what = "this machine has too little memory for it" if short else f"{error}".partition("\n")[0]
            self.refuse(trial, f"{what} ({kind})")
        for checkpoints in folder.glob("*/checkpoints"):
            rmtree(checkpoints)

    def refuse(self, trial: "Trial", why: str) -> None:
        """Say of a trial that its values do not run."""
        trial.set_user_attr(REFUSED, why)
        self.optuna.tell(trial, state=self.states.PRUNED)


def folder_of(trial: "Trial | FrozenTrial") -> int:
    """The number of a trial's folder: its own, or that of the one which it goes on with."""
    return int(trial.user_attrs.get("folder", trial.number))


def library() -> Any:
    """Optuna, which is to say nothing of itself."""
    try:
        import optuna
    except ImportError:
        raise ConfigError(f"edgewise tune needs Optuna: {installing('tune')}") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna
