"""Floor 5: tasks. What a model is trained for: batches, a loss and a metric."""

from collections.abc import Callable

from edgewise.tasks.citation import citation
from edgewise.tasks.clouds import clouds
from edgewise.tasks.digits import digits
from edgewise.tasks.images import ImageClassification, Images
from edgewise.tasks.karate import karate
from edgewise.tasks.mnist import mnist
from edgewise.tasks.nodes import NodeClassification, Nodes
from edgewise.tasks.skip_links import skip_links
from edgewise.tasks.task import Batch, Pattern, PatternChoice, Split, Task
from edgewise.tasks.text import Text, text
from edgewise.tasks.whole_graphs import WholeGraphClassification, WholeGraphs

TASKS: dict[str, Callable[..., Task]] = {
    "karate": karate,
    "digits": digits,
    "text": text,
    "citation": citation,
    "mnist": mnist,
    "clouds": clouds,
    "skip-links": skip_links,
}

__all__ = [
    "TASKS",
    "Batch",
    "ImageClassification",
    "Images",
    "NodeClassification",
    "Nodes",
    "Pattern",
    "PatternChoice",
    "Split",
    "Task",
    "Text",
    "WholeGraphClassification",
    "WholeGraphs",
    "citation",
    "clouds",
    "digits",
    "karate",
    "mnist",
    "skip_links",
    "text",
]
