"""Floor 4, beside the models: why a model predicts what it predicts, per edge and per node; and how far to trust it.

It reads models through the verbs and through nothing else, so that it needs no task, and tasks may say with it what
can be explained of an input.
"""

from edgewise.explanations.curves import Curve as Curve
from edgewise.explanations.curves import Fidelity as Fidelity
from edgewise.explanations.curves import fidelity as fidelity
from edgewise.explanations.explained import Explained as Explained
from edgewise.explanations.explained import Target as Target
from edgewise.explanations.methods import EXPLANATIONS as EXPLANATIONS
from edgewise.explanations.methods import Explanation as Explanation
from edgewise.explanations.methods import explain as explain
from edgewise.explanations.methods import scores as scores
from edgewise.explanations.naming import Feature as Feature
from edgewise.explanations.naming import Names as Names
