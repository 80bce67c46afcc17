"""Draws the gallery: one picture for each system, by the system itself. About seven minutes on one core.

python docs/gallery/draw.py             all, into docs/gallery/pictures
python docs/gallery/draw.py B2 D5       these
"""

import sys
from pathlib import Path

import attentions
import geometry
import networks
import optimisation
import structure
import transformers
from canvas import Picture

import tasks

FOLDER = Path(__file__).parent / "pictures"
PICTURES: dict[str, Picture] = {
    "A1": optimisation.perceptron,
    "A2": optimisation.optimisers,
    "A3": optimisation.langevin,
    "A4": optimisation.constant_rate,
    "A5": optimisation.averaging,
    "A6": optimisation.schedules,
    "A7": optimisation.randomised,
    "A8": transformers.recurrent,
    "A9": optimisation.low_rank,
    "A10": optimisation.codes,
    "B1": transformers.kernel_regression,
    "B2": transformers.heads,
    "B3": transformers.blocks,
    "B4": transformers.reversal,
    "B5": transformers.decoder,
    "B6": transformers.masked,
    "B7": transformers.denoising,
    "B8": transformers.vision,
    "B9": transformers.windows,
    "B10": transformers.positions,
    "C1": attentions.sparse,
    "C2": attentions.hashing,
    "C3": attentions.routing,
    "C4": attentions.sorting,
    "C5": attentions.performer,
    "C6": attentions.linear,
    "C7": attentions.memories,
    "D1": networks.passing,
    "D2": networks.convolution,
    "D3": networks.sampling,
    "D4": networks.layers,
    "D5": networks.gat,
    "D6": networks.multisets,
    "D7": networks.gates,
    "D8": networks.monet,
    "D9": networks.edge_conv,
    "D10": networks.graph_network,
    "D11": networks.refinement,
    "D12": networks.smoothing,
    "E1": structure.graph_transformer,
    "E2": structure.kernels,
    "E3": structure.encodings,
    "E4": structure.gps,
    "E5": structure.min_cut,
    "E6": structure.slide,
    "F1": geometry.schnet,
    "F2": geometry.radial,
    "F3": geometry.egnn,
    "F4": geometry.spherical,
    "F5": geometry.invariance,
    "F6": geometry.turning,
    "F7": geometry.falling,
    "G1": tasks.nodes,
    "G2": tasks.links,
    "G3": tasks.molecules,
    "G4": tasks.generation,
    "G5": tasks.surprise,
    "G6": tasks.fine_tuning,
    "G7": tasks.store,
    "G8": tasks.explanation,
    "H1": tasks.beyond,
    "H2": tasks.kin,
}


def caption(system: str) -> str:
    """What a picture shows, in the words of its function."""
    return " ".join((PICTURES[system].__doc__ or "").split())


if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        svg = PICTURES[name]().svg(caption(name))
        (FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8")
