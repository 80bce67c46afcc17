"""Floor 5: tasks. What a model is trained for: batches, a loss and a metric."""

from collections.abc import Callable

from edgewise.tasks.citation import citation
from edgewise.tasks.curve import CurveRegression, curve
from edgewise.tasks.digits import digits
from edgewise.tasks.images import ImageClassification, Images
from edgewise.tasks.karate import karate
from edgewise.tasks.mnist import mnist
from edgewise.tasks.musk import BagClassification, Bags, musk
from edgewise.tasks.nodes import NodeClassification, Nodes
from edgewise.tasks.task import Batch, Pattern, PatternChoice, Split, Task
from edgewise.tasks.text import Text, text

TASKS: dict[str, Callable[..., Task]] = {
    "karate": karate,
    "digits": digits,
    "text": text,
    "citation": citation,
    "mnist": mnist,
    "musk": musk,
    "curve": curve,
}

__all__ = [
    "TASKS",
    "BagClassification",
    "Bags",
    "Batch",
    "CurveRegression",
    "ImageClassification",
    "Images",
    "NodeClassification",
    "Nodes",
    "Pattern",
    "PatternChoice",
    "Split",
    "Task",
    "Text",
    "citation",
    "curve",
    "digits",
    "karate",
    "mnist",
    "musk",
    "text",
]
