"""Floor 6: training. One loop, exact resumption, and the run folder that it leaves."""

from edgewise.training.checkpoint import write_file
from edgewise.training.loop import resume, train
from edgewise.training.optimizers.descent import OPTIMIZERS
from edgewise.training.optimizers.schedules import SCHEDULES
from edgewise.training.plain import build
from edgewise.training.runs import (
    LoadedRun,
    Result,
    assemble,
    begin,
    evaluate,
    finished,
    load_run,
    read_config,
    read_metrics,
)
from edgewise.training.settings import (
    Choice,
    OptimizerSettings,
    RunConfig,
    ScheduleSettings,
    StartSettings,
    TrainSettings,
)

__all__ = [
    "OPTIMIZERS",
    "SCHEDULES",
    "Choice",
    "LoadedRun",
    "OptimizerSettings",
    "Result",
    "RunConfig",
    "ScheduleSettings",
    "StartSettings",
    "TrainSettings",
    "assemble",
    "begin",
    "build",
    "evaluate",
    "finished",
    "load_run",
    "read_config",
    "read_metrics",
    "resume",
    "train",
    "write_file",
]
