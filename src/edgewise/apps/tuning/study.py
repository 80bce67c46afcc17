"""The study of one recipe: its trials in a journal that any number of processes share and that outlives a kill."""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from statistics import fmean
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import yaml

from edgewise.apps.tuning.search import Search
from edgewise.apps.tuning.space import Value
from edgewise.apps.tuning.trials import carry_out
from edgewise.configuration import read_yaml
from edgewise.errors import CheckpointError, ConfigError, EdgewiseError, installing
from edgewise.files import lock, make_folder, write_file
from edgewise.memory import was_short
from edgewise.tasks import Task
from edgewise.training import RunConfig, read_metrics
from edgewise.training.seeds import mix

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.trial import FrozenTrial

SEARCH = "search.yaml"  # what is searched
JOURNAL = "trials.jsonl"  # Optuna's
LOCK = "study.lock"  # held while a process begins, or takes a trial
STARTED = 5  # trials that are trained to their end before others are compared with them
FIRST = 5  # no trial of one run is stopped in its first fifth
REFUSED = "refused"  # the attribute with the reason why values do not run


class OutOfTime(Exception):
    """The time is over in the middle of a trial, which the next call goes on with."""


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
        self.locks: dict[int, IO[bytes]] = {}  # of the trials that this process carries out

    def open(self) -> None:
        """Make the folder, or go on with the one that is there.

        Errors      ConfigError: the folder holds another search, or something else
        """
        self.library = library()
        self.states = self.library.trial.TrialState
        names = {path.name for path in self.folder.iterdir()} if self.folder.exists() else set[str]()
        begun = {SEARCH} if JOURNAL in names else {SEARCH, LOCK}  # of a process that begins, the lock comes first
        if names and not names & begun:
            raise ConfigError(f"{self.folder} holds something else: name a new folder with --run")
        make_folder(self.folder)
        with held(self.folder / LOCK):
            self._begin()
            self.optuna = self._optuna()

    def _begin(self) -> None:
        """Write what is searched, or compare it with what the folder has."""
        path, content = self.folder / SEARCH, self.search.to_plain()
        if not path.is_file():
            make_folder(self.folder / "trials")
            write_file(path, yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode())
        found = read_yaml(path)
        for part in content:
            if not isinstance(found, dict) or found.get(part) != content[part]:
                message = f"{self.folder} holds another search: its {part!r} in {SEARCH} is not that of this command"
                raise ConfigError(f"{message}; repeat the command that made it, or name a new folder with --run")

    def _optuna(self) -> Any:
        """Optuna's study. Its sampler draws anew in each process, from what all have found."""
        optuna, journal = self.library, self.folder / JOURNAL
        place = self.folder / "journal.lock"
        with held(place):
            cut(journal)
        backend = optuna.storages.journal.JournalFileBackend(str(journal), lock_obj=JournalLock(place))
        study = optuna.create_study(
            storage=optuna.storages.JournalStorage(backend),
            study_name=self.search.recipe.name,
            direction="maximize" if self.maximise else "minimize",
            load_if_exists=True,
        )
        trials, train = len(study.get_trials(deepcopy=False)), self.search.config.train
        study.sampler = optuna.samplers.TPESampler(
            seed=mix(train.seed, trials) % 2**32, multivariate=True, n_startup_trials=2 * STARTED
        )
        first = 1 if self.search.repeats > 1 else train.steps // FIRST
        study.pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTED, n_warmup_steps=first)
        if not trials:
            study.enqueue_trial(self.search.own())
        return study

    def trials(self, *states: Any) -> "list[FrozenTrial]":
        """The trials in these states, by their numbers."""
        found: list[FrozenTrial] = self.optuna.get_trials(deepcopy=False, states=states)
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
        with held(self.folder / LOCK):
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
        with held(self.folder / LOCK):
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
        folder = self.folder / "trials" / str(number)
        make_folder(folder)
        file = (folder / "lock").open("ab")
        if not lock(file):
            file.close()
            return False
        self.locks[number] = file
        return True

    def train(self, trial: "Trial", end: float) -> None:
        """Train a trial's runs, and tell the study their mean."""
        folder, alone = self.folder / "trials" / str(folder_of(trial)), self.search.repeats == 1
        values, told = list[float](), set[int]()

        def report(step: int, value: float) -> None:
            if step not in told:
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
                if alone:
                    told.update(self.replay(trial, config, run))
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

    def replay(self, trial: "Trial", config: RunConfig, run: Path) -> Iterator[int]:
        """Tell a trial that goes on what it had reached before, and yield the steps."""
        by_loss = config.evaluation.choose_by == "loss"
        best: dict[str, float] = {}
        for record in read_metrics(run):
            if "valid" not in record or "metric" in record:
                continue
            by, more = ("loss", False) if by_loss else (self.metric, self.maximise)
            now = record["valid"]
            if not best or (now[by] > best[by] if more else now[by] < best[by]):
                best = now
            trial.report(best[self.metric], record["step"])
            yield record["step"]


def folder_of(trial: "Trial | FrozenTrial") -> int:
    """The number of a trial's folder: its own, or that of the one which it goes on with."""
    return int(trial.user_attrs.get("folder", trial.number))


def library() -> Any:
    """Optuna, which is to say nothing of itself."""
    try:
        import optuna
        import optuna.storages.journal
    except ImportError:
        raise ConfigError(f"edgewise tune needs Optuna: {installing('tune')}") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna


class JournalLock:
    """What Optuna holds while it writes its journal, as a lock of the system's: free as soon as its process ends."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def acquire(self) -> bool:
        self.holding = held(self.path)
        self.holding.__enter__()
        return True

    def release(self) -> None:
        self.holding.__exit__(None, None, None)


def cut(journal: Path) -> None:
    """Drop a last line that a kill has left half written: the next one would follow it on the same line."""
    with suppress(FileNotFoundError), journal.open("rb+") as file:
        file.truncate(file.read().rfind(b"\n") + 1)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a file's lock, once it is free."""
    with path.open("ab") as file:
        while not lock(file):
            time.sleep(0.01)
        yield
