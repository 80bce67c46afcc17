"""Floor 5: tasks. What a model is trained for: batches, a loss and a metric.

A line below is a public name's one entry: `TASKS` holds the functions, which make a task from its options.
"""

from collections.abc import Callable
from types import FunctionType

from edgewise.data.splits import Split as Split
from edgewise.tasks.core.abilities import Predicts as Predicts
from edgewise.tasks.core.batch import Batch as Batch
from edgewise.tasks.core.task import Pattern as Pattern
from edgewise.tasks.core.task import PatternChoice as PatternChoice
from edgewise.tasks.core.task import Task as Task
from edgewise.tasks.graphs.clouds import clouds as clouds
from edgewise.tasks.graphs.generation import GraphGeneration as GraphGeneration
from edgewise.tasks.graphs.generation import GraphReconstruction as GraphReconstruction
from edgewise.tasks.graphs.generation import graph_generation as graph_generation
from edgewise.tasks.graphs.generation import graph_reconstruction as graph_reconstruction
from edgewise.tasks.graphs.isomorphism import isomorphism as isomorphism
from edgewise.tasks.graphs.isomorphism import skip_links as skip_links
from edgewise.tasks.graphs.molecules import molecules as molecules
from edgewise.tasks.graphs.musk import BagClassification as BagClassification
from edgewise.tasks.graphs.musk import Bags as Bags
from edgewise.tasks.graphs.musk import musk as musk
from edgewise.tasks.graphs.prediction import GraphClassification as GraphClassification
from edgewise.tasks.graphs.prediction import GraphRegression as GraphRegression
from edgewise.tasks.graphs.prediction import Graphs as Graphs
from edgewise.tasks.graphs.tudataset import tudataset as tudataset
from edgewise.tasks.images.classification import ImageClassification as ImageClassification
from edgewise.tasks.images.classification import Images as Images
from edgewise.tasks.images.digits import digits as digits
from edgewise.tasks.images.digits import mnist as mnist
from edgewise.tasks.images.digits import mnist_rotated as mnist_rotated
from edgewise.tasks.images.reconstruction import ImageReconstruction as ImageReconstruction
from edgewise.tasks.images.reconstruction import Recall as Recall
from edgewise.tasks.images.reconstruction import digits_recall as digits_recall
from edgewise.tasks.images.reconstruction import digits_reconstruction as digits_reconstruction
from edgewise.tasks.images.reconstruction import mnist_reconstruction as mnist_reconstruction
from edgewise.tasks.links.knowledge import Facts as Facts
from edgewise.tasks.links.knowledge import KnowledgeGraph as KnowledgeGraph
from edgewise.tasks.links.knowledge import kinship as kinship
from edgewise.tasks.links.knowledge import knowledge_folder as knowledge_folder
from edgewise.tasks.links.prediction import LinkPrediction as LinkPrediction
from edgewise.tasks.links.prediction import citation_links as citation_links
from edgewise.tasks.links.recommendation import Choices as Choices
from edgewise.tasks.links.recommendation import Recommendation as Recommendation
from edgewise.tasks.links.recommendation import own_choices as own_choices
from edgewise.tasks.links.recommendation import tastes as tastes
from edgewise.tasks.links.store import StoredLinks as StoredLinks
from edgewise.tasks.links.store import link_store as link_store
from edgewise.tasks.nodes.citation import citation as citation
from edgewise.tasks.nodes.classification import NodeClassification as NodeClassification
from edgewise.tasks.nodes.classification import NodeRegression as NodeRegression
from edgewise.tasks.nodes.classification import Nodes as Nodes
from edgewise.tasks.nodes.classification import SampledNodes as SampledNodes
from edgewise.tasks.nodes.curve import CurveRegression as CurveRegression
from edgewise.tasks.nodes.curve import curve as curve
from edgewise.tasks.nodes.planted import bibliography as bibliography
from edgewise.tasks.nodes.planted import karate as karate
from edgewise.tasks.nodes.planted import planted as planted
from edgewise.tasks.nodes.store import StoredNodes as StoredNodes
from edgewise.tasks.nodes.store import node_store as node_store
from edgewise.tasks.nodes.webkb import webkb as webkb
from edgewise.tasks.own.frames import atom_frames as atom_frames
from edgewise.tasks.own.graphs import graph_folder as graph_folder
from edgewise.tasks.own.graphs import point_folder as point_folder
from edgewise.tasks.own.images import image_folder as image_folder
from edgewise.tasks.own.language import text_files as text_files
from edgewise.tasks.own.nodes import link_folder as link_folder
from edgewise.tasks.own.nodes import node_folder as node_folder
from edgewise.tasks.own.parallel import parallel_text as parallel_text
from edgewise.tasks.own.texts import molecule_table as molecule_table
from edgewise.tasks.own.texts import text_table as text_table
from edgewise.tasks.own.trajectories import trajectories as trajectories
from edgewise.tasks.own.unlabelled import damaged_texts as damaged_texts
from edgewise.tasks.own.unlabelled import masked_texts as masked_texts
from edgewise.tasks.particles.atoms import EnergiesAndForces as EnergiesAndForces
from edgewise.tasks.particles.atoms import molecular_dynamics as molecular_dynamics
from edgewise.tasks.particles.nbody import Forecast as Forecast
from edgewise.tasks.particles.nbody import nbody as nbody
from edgewise.tasks.particles.simulation import Rollout as Rollout
from edgewise.tasks.particles.simulation import Scene as Scene
from edgewise.tasks.particles.simulation import Simulation as Simulation
from edgewise.tasks.particles.simulation import granular as granular
from edgewise.tasks.slides.classification import SlideClassification as SlideClassification
from edgewise.tasks.slides.classification import Slides as Slides
from edgewise.tasks.slides.classification import slides as slides
from edgewise.tasks.text.denoising import Denoising as Denoising
from edgewise.tasks.text.denoising import MaskedTokens as MaskedTokens
from edgewise.tasks.text.denoising import Noise as Noise
from edgewise.tasks.text.denoising import multi30k_denoising as multi30k_denoising
from edgewise.tasks.text.language import Text as Text
from edgewise.tasks.text.language import text as text
from edgewise.tasks.text.listops import ListOps as ListOps
from edgewise.tasks.text.listops import listops as listops
from edgewise.tasks.text.smiles import SmilesRegression as SmilesRegression
from edgewise.tasks.text.smiles import masked_smiles as masked_smiles
from edgewise.tasks.text.smiles import smiles as smiles
from edgewise.tasks.text.translation import Translation as Translation
from edgewise.tasks.text.translation import multi30k as multi30k

TASKS: dict[str, Callable[..., Task]] = {
    name.replace("_", "-"): task for name, task in tuple(globals().items()) if isinstance(task, FunctionType)
}
