"""The one training loop: it resumes to the same bits after a kill, and stops by name at the first NaN."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from copy import copy
from math import isfinite
from operator import is_not
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.configuration import chosen
from edgewise.data.splits import Split
from edgewise.errors import CheckpointError, ConfigError, NonFiniteError, counted
from edgewise.files import path_of
from edgewise.models.signature import evaluating
from edgewise.tasks.core.abilities import Measures
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.measures import Answers, measures
from edgewise.tasks.core.task import Parts, Task, figure
from edgewise.tasks.own.several import SeveralTargets
from edgewise.training.calibration import calibrate, fitted, recorded, uncalibrate
from edgewise.training.checkpoint import Checkpoint, clean, load_weights, newest, saved_state, unbounded, write_state
from edgewise.training.distributed import World, join, restarted
from edgewise.training.integrity import CONFIG, check, check_frozen, check_split, file_hashes, frozen_of, split_of
from edgewise.training.journal import Display, Journal, say, summary_writer
from edgewise.training.lengths import length, sized
from edgewise.training.loss import Weights, mean_loss, weighed
from edgewise.training.machine import Captured, Prefetch, recomputed, worthwhile
from edgewise.training.optimizers.averaging import NAMES, WeightAverage
from edgewise.training.optimizers.descent import (
    OPTIMIZERS,
    Sampler,
    SecondOrder,
    optimizer_for,
    optimizer_tensors,
    restore_optimizer,
)
from edgewise.training.optimizers.newton import Newton
from edgewise.training.optimizers.schedules import SCHEDULES
from edgewise.training.pretrained import settled
from edgewise.training.runs import (
    Moved,
    Result,
    assemble,
    begin,
    create,
    examined,
    finished,
    measure_by,
    placed,
    read_config,
    refuse_few,
    refuse_used,
)
from edgewise.training.seeds import mix, repeatable, seed
from edgewise.training.settings import RunConfig, idle

Drawn = tuple[int, list[Batch]]  # the terms of a step's global batch, and this rank's parts of it
HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def train(config: RunConfig, run: Path | str, *, progress: bool = True, task: Task | None = None) -> Result:
    """Train from the beginning, into a new run folder; under `torchrun`, every rank calls it.

    Symbols: task = that of the configuration, as `assemble` made it, whose data are then not read again
    Errors: a configuration that cannot run is a `ConfigError` before anything is written; a loss, gradient or weight
    that is no longer finite is a `NonFiniteError`, and the checkpoints before it stay. Where `torchrun` starts its
    processes again, because one has died, they go on from the newest checkpoint.
    """
    config = placed(settled(config))
    world, folder = join(config.machine.device, config.train.partition, config.train.shard), Path(run)
    if world.once(lambda: restarted() and (folder / CONFIG).is_file() and _same(read_config(folder), config)):
        return resume(folder, progress=progress)
    world.once(lambda: refuse_used(folder))
    with world.together(folder):
        for change in (task.changes or ()) if task else ():
            say(f"{folder}: {change}")
        trainer = Trainer(config, folder, world, shared=task)
        world.once(lambda: create(folder, trainer.config, trainer.task))
        return trainer.fit(progress)


def _same(begun: RunConfig, config: RunConfig) -> bool:
    """Whether a run was begun with a configuration, some of which its data had to say."""
    return begun == config or begun == sized(config, assemble(config)[0])


def resume(run: Path | str, *, progress: bool = True, accept: bool = False, folder: Moved | None = None) -> Result:
    """Continue a run from its newest intact checkpoint, to the bits it would have reached; a finished one says so.

    Symbols     folder = where the task's data lie now, if not where they were, as in `read_config`
    Errors      CheckpointError: its configuration was altered or its history is spoilt, unless one accepts them so
    """
    run = path_of(run, "run", CheckpointError)
    config = read_config(run, folder)
    world = join(config.machine.device, config.train.partition, config.train.shard)
    world.once(lambda: check(run, accept))
    if (result := finished(run)) is not None:
        if progress:
            say(f"{run} is finished: it was trained for {counted(result.steps, 'step')}")
        return result
    with world.together(run):
        return Trainer(config, run, world, accept).fit(progress)


class Trainer:
    """A run in progress: what is neither here nor in a checkpoint follows from the configuration and the step."""

    journal: Journal  # of the first rank, which alone writes
    files: dict[str, str]  # by name, the sha256 of those that decide the run
    split: dict[str, Any]  # which examples train and test
    checkpoint: Checkpoint  # the newest

    def __init__(
        self,
        config: RunConfig,
        run: Path,
        world: World,
        accept: bool = False,
        made: tuple[Task, nn.Module] | None = None,  # what trains where the configuration does not say it
        shared: Task | None = None,  # the task of the configuration, where it has been made
    ) -> None:
        self.config, self.settings, self.run, self.world, self.accept = config, config.train, run, world, accept
        descent = chosen("optimizer", config.optimizer, OPTIMIZERS)()
        if world.shard and (isinstance(descent, Sampler) or config.machine.precision == "float16"):
            sampler = f"the optimizer {config.optimizer.name!r}: choose another, such as adamw"
            what = sampler if isinstance(descent, Sampler) else "float16: choose bfloat16"
            raise ConfigError(f"train.shard does not go with {what}")
        machine, second = config.machine, isinstance(descent, SecondOrder)
        if second and (world.size > 1 or machine.precision == "float16" or machine.compile):
            where = "runs in one process, not in float16 and not compiled"
            raise ConfigError(f"the optimizer 'newton' {where}: choose another optimizer")
        self.task, model = made or assemble(config, run, shared)
        refuse_few(self.task, "what trains")
        if made and config.evaluation.metric:
            self.task = copy(self.task)
            measure_by(self.task, config.evaluation.metric)
        self.config = sized(config, self.task)
        self.settings = self.config.train
        self.said = [] if self.config == config else [length(self.config, self.task)]
        self.whole = made is not None  # then nothing else says what the frozen weights are
        self.frozen = frozen_of(model, config.start, self.whole)
        self.model = model.to(world.device)
        self.parallel, self.gradients = world.wrap(self.model)
        self.forward: Callable[..., Any] = torch.compile(self.parallel) if machine.compile else self.parallel
        alone = world.size == 1 and world.device.type == "cuda" and made is None and self.settings.accumulate == 1
        usual = not (machine.compile or machine.recompute or second or machine.precision == "float16")
        if machine.capture and alone and usual:
            self.forward = Captured(self.model, self.autocast)
        self.parameters = list(self.model.parameters())
        self.learning_rate = descent.learning_rate
        self.schedule = chosen("schedule", config.schedule, SCHEDULES)()
        self.optimizer = optimizer_for(self.model, descent, self.settings.seed)
        mean = self.settings.average
        self.average = WeightAverage(self.optimizer, mean.start, mean.every, mean.decay) if mean.start else None
        self.scaler = torch.amp.GradScaler(world.device.type, enabled=config.machine.precision == "float16")
        self.made: Callable[[int], Drawn] = self.make
        self.parts: tuple[list[Batch], list[tuple[Weights, Batch]]] = ([], [])
        self.unbounded = unbounded(self.model)
        self.step, self.stale = 0, 0  # and evaluations since the best one
        self.cuts, self.spent = 0, 0.0  # how often these were too many, and the share of the time that is over
        self.best: dict[str, Any] = {}  # step and validation scores of the best evaluation
        self.best_weights: dict[str, Tensor] = {}
        self.began = time.perf_counter()
        self.durations: list[float] = []
        if self.settings.log.tensorboard:
            summary_writer()

    def fit(self, progress: bool) -> Result:
        """Train to the last step or the end of patience, then read the test split."""
        settings, evaluation = self.settings, self.config.evaluation
        shown = progress and self.world.first
        for line in (*idle(self.config, self.task, self.model, self.world.size), *self.said) if shown else ():
            say(line)
        if not self.model.training:  # else parts of it that are frozen in evaluation mode stay so
            self.model.train()
        with ExitStack() as opened:
            opened.enter_context(repeatable(self.config.machine.deterministic, self.config.machine.threads))
            if self.config.machine.recompute:
                opened.enter_context(recomputed(self.model))
            self.restore(self.world.once(lambda: self.open(opened, shown)), shown)
            alone = self.world.device.type == "cpu" and not self.world.partition  # else all ranks would rehearse
            if not self.config.machine.threads and alone and not self.over:
                torch.set_num_threads(worthwhile(self.rehearse, torch.get_num_threads()))
            if self.task.workers:
                ahead = Prefetch(self.make, settings.steps, self.task.workers)
                self.made = opened.enter_context(closing(ahead))
            display = opened.enter_context(closing(Display(settings.steps, self.step, shown)))
            while not self.over:
                self.step += 1
                started = time.perf_counter()
                loss, norm, rate = self.update()
                self.durations.append(time.perf_counter() - started)
                display.advance()
                if self.step % settings.log.every == 0 and self.world.first:
                    gradient_norm = norm if isfinite(norm) else None
                    own = self.task.measured() if isinstance(self.task, Measures) else {}
                    measured = own | self.world.measured()
                    self.record(loss=loss, gradient_norm=gradient_norm, learning_rate=rate, **measured)
                if self.step % evaluation.every == 0 or self.over:
                    self.stale, scores = self.validate()
                    if 0 < evaluation.patience <= self.stale:
                        self.cut()
                    display.scores(self.step, f"loss {loss:.4f}  {scores}", last=self.over)
                if self.step % settings.checkpoints.every == 0 or self.over:
                    self.save()
            if not self.best:  # resumed with fewer steps than have been taken, before any evaluation
                self.validate()
                self.save()
            if shown and self.best["step"] == self.step > evaluation.every:
                steps = counted(self.step, "step")
                say(f"the last evaluation was the best: training longer than {steps} may reach more")
            return Result.from_record(self.conclude(), self.run)

    @property
    def over(self) -> bool:
        return self.step >= self.settings.steps or self.spent >= 1 or not self.schedule.left(self.cuts)

    def cut(self) -> None:
        """Lower the rate, and go on from the best weights; or end."""
        self.cuts += 1
        if self.schedule.left(self.cuts):
            self.stale = 0
            with torch.no_grad():
                for name, weight in saved_state(self.model).items():
                    weight.copy_(self.best_weights[name])

    def update(self) -> tuple[float, float, float]:
        """One step: the gradient of the global batch's mean loss moves the weights. Its loss, norm and rate."""
        settings = self.settings
        # Steps are counted from 1 here, from 0 in a schedule.
        if settings.time:
            self.spent = float(self.world.share((time.perf_counter() - self.began) / settings.time))
        at = max(self.step - 1, self.spent * settings.steps)
        rate = self.learning_rate * self.schedule(at, settings.steps) * self.schedule.left(self.cuts)
        seed(mix(settings.seed, self.step, self.world.rank), self.world.device)
        parts = self.share_of_batch()
        total = self.gradient(parts)
        total = self.gradients.add_up(total) if self.gradients else self.world.sum(total)
        self.scaler.unscale_(self.optimizer)
        norm = self.world.norm(self.parameters)
        loss, length = float(total), float(norm)
        if not isfinite(loss) or (not isfinite(length) and self.scaler.get_scale() <= 1):
            raise self.diverged(loss)  # a float16 overflow is none: the scaler skips the step and scales less
        if settings.clip and length > settings.clip:
            self.world.clip(self.parameters, settings.clip, norm)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        return loss, length, rate

    def gradient(self, parts: Sequence[tuple[Weights, Batch]]) -> Tensor:
        """Add the gradient of micro-batches' mean loss to those of the weights; the loss."""
        total, ranks = torch.zeros((), device=self.world.device), 1 if self.gradients else self.world.size
        for number, (weights, part) in enumerate(parts, start=1):
            with nullcontext() if number == len(parts) else self.world.alone(self.parallel):
                with self.autocast(), self.world.reading(part):
                    loss = mean_loss(self.task, self.forward(*part.inputs), part, weights)
                # DistributedDataParallel and FSDP2 divide by the number of ranks.
                self.backward(self.scaler.scale(loss * ranks))
            total = total + loss.detach()
        return total

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a loss to those of the weights; an optimiser of second order has its own way."""
        if not loss.requires_grad:
            what = "detached, computed without gradients, or rounded"
            raise ConfigError(f"the loss does not depend on the model's weights: are its outputs {what}?")
        if isinstance(self.optimizer, Newton):
            self.optimizer.backward(loss)
        else:
            loss.backward()

    def rehearse(self) -> None:
        """The forward pass of a micro-batch, which changes nothing."""
        batch = self.make(1)[1][0].to(self.world.device)
        with evaluating(self.model):
            self.model(*batch.inputs)

    def share_of_batch(self) -> list[tuple[Weights, Batch]]:
        """This rank's micro-batches of the step's global batch, each with its weights in the global mean."""
        terms, mine = self.made(self.step)
        if len(mine) != len(self.parts[0]) or any(map(is_not, mine, self.parts[0])):  # a whole graph is always the same
            per_graph, device = self.task.signature.whole_graph, self.world.device
            own = [(whole, self.world.part(whole)) for whole in mine]
            self.parts = mine, [(weighed(*pair, terms, per_graph), pair[1].to(device)) for pair in own]
        return self.parts[1]

    def make(self, step: int, whole: bool = False) -> Drawn:
        """The terms of a step's global batch, and this rank's parts of it, or all; seed and step alone decide them."""
        generator = torch.Generator().manual_seed(mix(self.settings.seed, step))
        count, world = self.settings.accumulate, self.world
        size, rank = (1, 0) if world.partition else (world.size, world.rank)
        every = range(size * count)
        parts = Parts(len(every), every if whole else every[rank * count : (rank + 1) * count])
        return self.task.train_parts(self.settings.batch, generator, self.config.graph, parts)

    def autocast(self) -> AbstractContextManager[Any]:
        half = HALVES.get(self.config.machine.precision)
        cached = not isinstance(self.forward, Captured)  # weights that are cast once are lost to a CUDA graph
        return nullcontext() if half is None else torch.autocast(self.world.device.type, half, cache_enabled=cached)

    def validate(self) -> tuple[int, str]:
        """Evaluate on the validation split, on every rank, and copy the best weights so far; how stale those are."""
        with nullcontext() if self.average is None else self.average.applied(self.model, self.training_batches):
            merit = self.merit(scores := self.scores("valid"))
            better = not self.best or merit > self.merit(self.best["valid"])
            if better:
                self.best = {"step": self.step, "valid": scores}
                self.best_weights = {name: weight.clone() for name, weight in saved_state(self.model).items()}
        if self.world.first:
            self.record(valid=scores)
        metric, best = self.task.metric, self.best
        by = " by loss" if self.config.evaluation.choose_by == "loss" and metric != "loss" else ""
        summary = f"valid {metric} {scores[metric]:.4f} (best{by} {best['valid'][metric]:.4f} at step {best['step']})"
        return 0 if better else self.stale + 1, summary

    def training_batches(self) -> Iterator[tuple[Any, ...]]:
        """What the model reads in an epoch of training, the same on every rank: nothing that is held out."""
        for step in range(-(-self.task.epoch_size // self.settings.batch)):
            for batch in self.make(step + 1, whole=True)[1]:
                yield self.world.part(batch).to(self.world.device).inputs

    def scores(self, split: Split) -> dict[str, float]:
        """The task's scores over a split."""
        return self.examined(split)[0]

    def examined(self, split: Split, whole: bool = False) -> tuple[dict[str, float], list[Answers]]:
        """These scores, and what the model said, if it is wanted."""
        self.world.align(self.model)
        size, pattern = self.config.evaluation_batch, self.config.graph
        try:
            return examined(self.model, self.task, split, size, pattern, self.world, whole)
        except NonFiniteError as error:
            raise NonFiniteError(f"{error} after step {self.step}") from error

    def merit(self, scores: dict[str, float]) -> tuple[float, float]:
        """What the best evaluation has most of: the metric, and among equals the lower loss; among those, the first."""
        if self.config.evaluation.choose_by == "loss":
            return -figure(scores, "loss", self.task), 0.0
        value = scores[self.task.metric]
        return value if self.task.maximise else -value, -scores.get("loss", 0.0)

    def record(self, **entry: Any) -> dict[str, Any]:
        """Write a line of `metrics.jsonl`."""
        entry = {"step": self.step, **entry, "seconds": round(time.perf_counter() - self.began, 4)}
        self.journal.write(entry)
        return entry

    def save(self) -> None:
        """Write a checkpoint, unless a weight is no longer finite; every rank calls it."""
        weights = saved_state(self.model, self.whole)
        if (name := self.world.non_finite(weights, self.unbounded)) is not None:
            raise NonFiniteError(f"the weight {name!r} is not finite after step {self.step}")
        averages = self.average.tensors(self.model) if self.average else {}
        memory = optimizer_tensors(self.optimizer, self.model) | averages
        parts = {"model": weights, "best": self.best_weights, "optimizer": memory}
        folder, state = self.run / "checkpoints", dict[str, Any]()

        def known() -> dict[str, Any]:
            state.update(
                step=self.step, best=self.best, stale=self.stale, cuts=self.cuts, scaler=self.scaler.state_dict()
            )
            state.update(seconds=time.perf_counter() - self.began, metrics=self.journal.known())
            state.update(files=self.files, split=self.split, frozen=self.frozen)
            state.update(optimizer=self.config.optimizer.name, step_seconds=self.step_seconds)
            return state

        name = self.world.save(folder, known, parts, self.settings.checkpoints.keep)
        if self.world.first:
            self.checkpoint = Checkpoint(folder / name, state)

    def open(self, opened: ExitStack, shown: bool) -> tuple[str, dict[str, Any]] | None:
        """Open the journal and choose the newest intact checkpoint: its name and state; what came after it is cut."""
        folder = self.run / "checkpoints"
        self.journal = opened.enter_context(closing(Journal(self.run, self.settings.log.tensorboard)))
        checkpoint = newest(folder, say if shown else lambda _: None)
        clean(folder, checkpoint)
        self.journal.cut(checkpoint.state["metrics"]["bytes"] if checkpoint else 0)
        self.files, self.split = file_hashes(self.run, self.task.kept), split_of(self.task, self.config)
        return (checkpoint.path.name, checkpoint.state) if checkpoint else None

    def restore(self, resumed: tuple[str, dict[str, Any]] | None, shown: bool) -> None:
        """Continue from the newest checkpoint, on every rank; without one, begin."""
        if resumed is None:
            begin(self.model, self.config, shown)
        else:
            name, state = resumed
            check_split(self.run, self.task, self.config, state.get("split"), self.accept)
            check_frozen(self.run, self.config.start, self.frozen, state.get("frozen"), self.accept)
            self.checkpoint = checkpoint = Checkpoint(self.run / "checkpoints" / name, state)
            own = saved_state(self.model, self.whole)
            shared = own.get if self.world.shard else None
            load_weights(self.model, checkpoint.tensors("model", shared), checkpoint.path, self.whole)
            of_weight = (lambda name: own.get(name.rpartition("/")[0])) if self.world.shard else None
            saved = checkpoint.tensors("optimizer", of_weight)
            memory = {name: tensor for name, tensor in saved.items() if name.rpartition("/")[2] not in NAMES}
            chosen_now = self.config.optimizer.name
            if (before := state.get("optimizer", chosen_now)) != chosen_now:
                if self.world.first:
                    say(f"the optimizer {chosen_now!r} begins anew: {checkpoint.path} has the memory of {before!r}")
                memory = {}
            restore_optimizer(self.optimizer, self.model, memory)
            if self.average is not None:
                self.average.restore(self.model, saved, state["step"])
            if state["scaler"]:  # not of another precision
                self.scaler.load_state_dict(state["scaler"])
            self.best_weights = {n: w.to(self.world.device) for n, w in checkpoint.tensors("best", shared).items()}
            self.step, self.best, self.stale = state["step"], state["best"], state["stale"]
            self.cuts = state.get("cuts", 0)
        self.began = time.perf_counter() - (resumed[1]["seconds"] if resumed else 0.0)

    def conclude(self) -> dict[str, Any]:
        """Read the test split, if there is one, this once, with the best weights, which the validation split calibrates
        where the data are one's own; the last record holds the result."""
        load_weights(self.model, self.best_weights, self.run)
        reached = {"best_step": self.best["step"], "valid": self.best["valid"]} | self.tested()
        return self.world.once(lambda: self._last_record(reached))

    def tested(self) -> dict[str, Any]:
        """The scores over the test split, if there is one; and all measures of it, or else of the validation data."""
        split: Split = "test" if self.task.has_test else "valid"
        own = isinstance(self.task, SeveralTargets)
        valid = self.examined("valid", whole=True)[1] if own else []
        calibrate(self.model, self.task, fitted(valid, self.config.evaluation))
        scores, answers = self.examined(split, whole=True)
        made = ({split: scores} if split == "test" else {}) | ({"measures": measures(answers)} if answers else {})
        if valid and isinstance(self.task, SeveralTargets):
            made["calibration"] = recorded(self.task, max(map(len, valid)), answers)
        if self.whole:  # a module that `fit` was given stays as it is; `load` calibrates it
            uncalibrate(self.model, self.task)
        return made

    @property
    def step_seconds(self) -> float:
        """The median time of a step since the run was begun or resumed."""
        return statistics.median(self.durations) if self.durations else self.checkpoint.state.get("step_seconds", 0.0)

    def _last_record(self, reached: dict[str, Any]) -> dict[str, Any]:
        entry = self.record(metric=self.task.metric, **reached, step_seconds=self.step_seconds)
        known = {"metrics": self.journal.known(), "files": self.files, "split": self.split, "frozen": self.frozen}
        write_state(self.checkpoint.path, self.checkpoint.state | known)  # it may be from before they were accepted
        return entry

    def diverged(self, loss: float) -> NonFiniteError:
        """The error that names what is no longer finite, where it began: in a weight, the loss or a gradient."""
        gradients = {n: p.grad for n, p in self.model.named_parameters() if p.grad is not None}
        if (name := self.world.non_finite(self.model.state_dict(), self.unbounded)) is not None:
            what = f"the weight {name!r} was no longer finite after step {self.step - 1}, so the loss is {loss}"
        elif not isfinite(loss):
            what = f"the loss is {loss}"
        elif (name := self.world.non_finite(gradients)) is not None:
            what = f"the gradient of {name!r} is not finite"
        else:
            what = "the gradient's norm is too large for its precision"
        at_first = "no weight has moved yet, so look into the model and what it reads"
        advice = at_first if self.step == 1 else "lower optimizer.learning_rate or set train.clip"
        return NonFiniteError(f"step {self.step}: {what}; {advice}. The checkpoints before it are intact")
