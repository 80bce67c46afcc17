"""Floor 5: tasks. What a model is trained for: batches, a loss and a metric."""

from collections.abc import Callable

from edgewise.tasks.core.task import Batch, Pattern, PatternChoice, Split, Task
from edgewise.tasks.graphs.clouds import clouds
from edgewise.tasks.graphs.generation import GraphGeneration, graph_generation
from edgewise.tasks.graphs.molecules import molecules
from edgewise.tasks.graphs.musk import BagClassification, Bags, musk
from edgewise.tasks.graphs.prediction import GraphClassification, GraphRegression, Graphs
from edgewise.tasks.graphs.reconstruction import GraphReconstruction, graph_reconstruction
from edgewise.tasks.graphs.skip_links import skip_links
from edgewise.tasks.graphs.smiles import SmilesRegression, masked_smiles, smiles
from edgewise.tasks.graphs.tudataset import tudataset
from edgewise.tasks.images.classification import ImageClassification, Images
from edgewise.tasks.images.digits import digits
from edgewise.tasks.images.mnist import mnist, mnist_rotated
from edgewise.tasks.links.prediction import LinkPrediction, citation_links
from edgewise.tasks.nodes.citation import citation
from edgewise.tasks.nodes.classification import NodeClassification, Nodes
from edgewise.tasks.nodes.curve import CurveRegression, curve
from edgewise.tasks.nodes.folder import node_folder
from edgewise.tasks.nodes.karate import karate
from edgewise.tasks.nodes.planted import SampledNodes, planted
from edgewise.tasks.nodes.webkb import webkb
from edgewise.tasks.particles.granular import granular
from edgewise.tasks.particles.molecular_dynamics import EnergiesAndForces, molecular_dynamics
from edgewise.tasks.particles.nbody import Forecast, nbody
from edgewise.tasks.particles.simulation import Rollout, Scene, Simulation
from edgewise.tasks.slides.classification import SlideClassification, Slides, read_slides, slides
from edgewise.tasks.text.denoising import Denoising, Noise, multi30k_denoising
from edgewise.tasks.text.language import Text, text
from edgewise.tasks.text.listops import ListOps, listops
from edgewise.tasks.text.masked import MaskedTokens
from edgewise.tasks.text.translation import Translation, multi30k

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
