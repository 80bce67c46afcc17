"""Floor 6: training. One loop, exact resumption, and the run folder that it leaves."""

from edgewise.configuration import Choice as Choice
from edgewise.training.fitting import fit as fit
from edgewise.training.loop import resume as resume
from edgewise.training.loop import train as train
from edgewise.training.optimizers.descent import OPTIMIZERS as OPTIMIZERS
from edgewise.training.optimizers.schedules import SCHEDULES as SCHEDULES
from edgewise.training.pretrained import settled as settled
from edgewise.training.runs import LoadedRun as LoadedRun
from edgewise.training.runs import Moved as Moved
from edgewise.training.runs import Result as Result
from edgewise.training.runs import assemble as assemble
from edgewise.training.runs import begin as begin
from edgewise.training.runs import evaluate as evaluate
from edgewise.training.runs import finished as finished
from edgewise.training.runs import load_run as load_run
from edgewise.training.runs import read_config as read_config
from edgewise.training.runs import read_metrics as read_metrics
from edgewise.training.settings import AverageSettings as AverageSettings
from edgewise.training.settings import CheckpointSettings as CheckpointSettings
from edgewise.training.settings import EvaluationSettings as EvaluationSettings
from edgewise.training.settings import LogSettings as LogSettings
from edgewise.training.settings import MachineSettings as MachineSettings
from edgewise.training.settings import RunConfig as RunConfig
from edgewise.training.settings import StartSettings as StartSettings
from edgewise.training.settings import TrainSettings as TrainSettings
