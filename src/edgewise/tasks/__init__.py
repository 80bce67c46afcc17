"""Floor 5: tasks. What a model is trained for: batches, a loss and a metric."""

from collections.abc import Callable

from edgewise.tasks.citation import citation
from edgewise.tasks.clouds import clouds
from edgewise.tasks.curve import CurveRegression, curve
from edgewise.tasks.denoising import Denoising, Noise, multi30k_denoising
from edgewise.tasks.digits import digits
from edgewise.tasks.granular import granular
from edgewise.tasks.graph_generation import GraphGeneration, graph_generation
from edgewise.tasks.graph_reconstruction import GraphReconstruction, graph_reconstruction
from edgewise.tasks.graphs import GraphClassification, GraphRegression, Graphs
from edgewise.tasks.images import ImageClassification, Images
from edgewise.tasks.karate import karate
from edgewise.tasks.links import LinkPrediction, citation_links
from edgewise.tasks.listops import ListOps, listops
from edgewise.tasks.masked import MaskedTokens
from edgewise.tasks.mnist import mnist, mnist_rotated
from edgewise.tasks.molecular_dynamics import EnergiesAndForces, molecular_dynamics
from edgewise.tasks.molecules import molecules
from edgewise.tasks.musk import BagClassification, Bags, musk
from edgewise.tasks.nbody import Forecast, nbody
from edgewise.tasks.node_folder import node_folder
from edgewise.tasks.nodes import NodeClassification, Nodes
from edgewise.tasks.planted import SampledNodes, planted
from edgewise.tasks.simulation import Rollout, Scene, Simulation
from edgewise.tasks.skip_links import skip_links
from edgewise.tasks.slides import SlideClassification, Slides, read_slides, slides
from edgewise.tasks.smiles import SmilesRegression, masked_smiles, smiles
from edgewise.tasks.task import Batch, Pattern, PatternChoice, Split, Task
from edgewise.tasks.text import Text, text
from edgewise.tasks.translation import Translation, multi30k
from edgewise.tasks.tudataset import tudataset
from edgewise.tasks.webkb import webkb

TASKS: dict[str, Callable[..., Task]] = {
    "karate": karate,
    "digits": digits,
    "text": text,
    "citation": citation,
    "mnist": mnist,
    "mnist-rotated": mnist_rotated,
    "clouds": clouds,
    "skip-links": skip_links,
    "tudataset": tudataset,
    "slides": slides,
    "molecules": molecules,
    "masked-smiles": masked_smiles,
    "smiles": smiles,
    "citation-links": citation_links,
    "webkb": webkb,
    "node-folder": node_folder,
    "nbody": nbody,
    "molecular-dynamics": molecular_dynamics,
    "granular": granular,
    "planted": planted,
    "musk": musk,
    "listops": listops,
    "curve": curve,
    "multi30k": multi30k,
    "multi30k-denoising": multi30k_denoising,
    "graph-generation": graph_generation,
    "graph-reconstruction": graph_reconstruction,
}

__all__ = [
    "TASKS",
    "BagClassification",
    "Bags",
    "Batch",
    "CurveRegression",
    "Denoising",
    "EnergiesAndForces",
    "Forecast",
    "GraphClassification",
    "GraphGeneration",
    "GraphReconstruction",
    "GraphRegression",
    "Graphs",
    "ImageClassification",
    "Images",
    "LinkPrediction",
    "ListOps",
    "MaskedTokens",
    "NodeClassification",
    "Nodes",
    "Noise",
    "Pattern",
    "PatternChoice",
    "Rollout",
    "SampledNodes",
    "Scene",
    "Simulation",
    "SlideClassification",
    "Slides",
    "SmilesRegression",
    "Split",
    "Task",
    "Text",
    "Translation",
    "citation",
    "citation_links",
    "clouds",
    "curve",
    "digits",
    "granular",
    "graph_generation",
    "graph_reconstruction",
    "karate",
    "listops",
    "masked_smiles",
    "mnist",
    "mnist_rotated",
    "molecular_dynamics",
    "molecules",
    "multi30k",
    "multi30k_denoising",
    "musk",
    "nbody",
    "node_folder",
    "planted",
    "read_slides",
    "skip_links",
    "slides",
    "smiles",
    "text",
    "tudataset",
    "webkb",
]
