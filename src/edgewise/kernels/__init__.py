"""Floor 2: scores, the three verbs, the planner and one file per backend."""

from edgewise.kernels.backends.cpu.networks import aggregate_both_ways, edge_network, gaussians, shifted_softplus
from edgewise.kernels.choose.dispatch import BACKENDS, Recorded, record, use_backend
from edgewise.kernels.choose.planner import Plan
from edgewise.kernels.messages import collect_messages
from edgewise.kernels.operator.dropout import dropout
from edgewise.kernels.scores import (
    Additive,
    Dot,
    EdgeBias,
    EdgeVectors,
    GatedAdditive,
    Gaussian,
    Kernel,
    RelativeBias,
    Score,
    SenderBias,
    Uniform,
)
from edgewise.kernels.verbs import aggregate, attend, collect, ends, plan

__all__ = [
    "BACKENDS",
    "Additive",
    "Dot",
    "EdgeBias",
    "EdgeVectors",
    "GatedAdditive",
    "Gaussian",
    "Kernel",
    "Plan",
    "Recorded",
    "RelativeBias",
    "Score",
    "SenderBias",
    "Uniform",
    "aggregate",
    "aggregate_both_ways",
    "attend",
    "collect",
    "collect_messages",
    "dropout",
    "edge_network",
    "ends",
    "gaussians",
    "plan",
    "record",
    "shifted_softplus",
    "use_backend",
]
