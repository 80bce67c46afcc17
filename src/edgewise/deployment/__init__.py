"""Floor 7: trained models out in the world. A run as a plain module that predicts, and files that run elsewhere."""

from edgewise.deployment.exporting import Exported as Exported
from edgewise.deployment.exporting import export as export
from edgewise.deployment.exporting import export_run as export_run
from edgewise.deployment.rows import predict_file as predict_file
from edgewise.deployment.trained import Trained as Trained
from edgewise.deployment.trained import load as load
