"""How long a run trains where its configuration leaves that to the data."""

from dataclasses import replace
from math import ceil

from edgewise.errors import counted
from edgewise.tasks.core.task import Task
from edgewise.training.settings import RunConfig

PASSES, EXAMPLES = 200, 4000  # over so many examples; over more fewer, by the square root of their number
FEWEST = 1000  # steps
EVALUATIONS = 100  # of a run, and at most `PER_PASS` in a pass
PER_PASS = 4


def pass_of(config: RunConfig, task: Task) -> int:
    """The steps of one pass over the examples that train."""
    return ceil(max(1, task.epoch_size) / config.train.batch)


def sized(config: RunConfig, task: Task) -> RunConfig:
    """The configuration with the numbers of steps that it leaves to its data: `train.epochs` or a `train.steps` of 0,
    and an `evaluation.every` of 0.

    Equation    steps = max(1000, 200 √(4000 / n) s), n examples that train and s steps for a pass over them; an
                evaluation at each hundredth of the steps, and not more than four in a pass
    Edge cases  a whole graph is a pass in one step, whatever the number n of its nodes that train
    """
    train, evaluation, each = config.train, config.evaluation, pass_of(config, task)
    steps, every = train.steps, evaluation.every
    if steps and every and not train.epochs:
        return config
    if train.epochs:
        steps = ceil(train.epochs * each)
    elif not steps:
        examples = len(task.splits["train"]) if "train" in task.splits else task.epoch_size
        steps = max(FEWEST, ceil(PASSES * (EXAMPLES / max(1, examples)) ** 0.5 * each))
    every = every or min(steps, max(ceil(steps / EVALUATIONS), ceil(each / PER_PASS)))
    train, evaluation = replace(train, steps=steps, epochs=0.0), replace(evaluation, every=every)
    return replace(config, train=train, evaluation=evaluation)


def length(config: RunConfig, task: Task) -> str:
    """How long a run trains at most, in a line."""
    steps, passes = config.train.steps, config.train.steps / pass_of(config, task)
    over = "the graph" if task.epoch_size == 1 else f"{task.epoch_size:,} {task.unit}"
    limit = f", for {config.train.time:g} s" if config.train.time else ""
    ends = f"; it ends when the validation {task.metric} stands still" if config.evaluation.patience else ""
    return f"trains at most {counted(steps, 'step')}, {passes:.3g} passes over {over}{limit}{ends}"
