"""What a model reads of a graph that no standard operators compute: inputs of its file, and lines of numpy for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from edgewise.errors import ExportError
from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.graphs.make.regular import clique_counts
from edgewise.graphs.make.spectral import Spectrum, component_spectra


def spectra(edge_index: numpy.ndarray, nodes: int, count: int) -> dict[str, numpy.ndarray]:
    """Of each connected component the first eigenvalues of I - D^-1/2 A D^-1/2 and their eigenvectors, by node.

    A is without directions, self-loops and parallel edges. A component of fewer nodes has eigenvalues 2, vectors 0.
    """
    from scipy.sparse.csgraph import connected_components

    a = numpy.zeros((nodes, nodes))
    a[edge_index[1], edge_index[0]] = a[edge_index[0], edge_index[1]] = 1
    numpy.fill_diagonal(a, 0)
    values, vectors = numpy.full((nodes, count), 2.0), numpy.zeros((nodes, count))
    parts, part = connected_components(a)
    for number in range(parts):
        of = numpy.flatnonzero(part == number)
        b = a[of][:, of]
        root = numpy.sqrt(numpy.maximum(b.sum(1), 1))
        w, v = numpy.linalg.eigh(numpy.eye(len(of)) - b / root / root[:, None])
        w[0] = 0  # of an isolated node, too
        largest = (abs(v) >= (1 - 1e-6) * abs(v).max(0)).argmax(0)
        v *= numpy.where(v[largest, range(len(of))] < 0, -1, 1)  # the largest entry, or the first of several, above 0
        values[of, : len(of)], vectors[of, : len(of)] = w[:count], v[:, :count]
    return {"eigenvalues": values, "eigenvectors": vectors}


def cliques(edge_index: numpy.ndarray, nodes: int, largest: int) -> dict[str, numpy.ndarray]:
    """In how many cliques of 3, 4, ..., largest nodes each node is, whatever the directions of edges."""
    near: list[set[int]] = [set() for _ in range(nodes)]
    for j, i in edge_index.T.tolist():
        near[i].add(j)
        near[j].add(i)
    counts, growing = numpy.zeros((nodes, largest - 2)), [([i], {j for j in near[i] if j > i}) for i in range(nodes)]
    while growing:
        clique, common = growing.pop()
        if len(clique) > 2:
            counts[clique, len(clique) - 3] += 1
        if len(clique) < largest:
            growing += [([*clique, j], {k for k in common & near[j] if k > j}) for j in common]
    return {"cliques": counts}


@dataclass(frozen=True)
class Precomputed:
    """What a file reads in place of a value that is computed of a graph and of one number.

    Symbols     compute = the value, of a graph; tensors = the inputs that it is read as; value = it, of the inputs;
                alone = the inputs in numpy, of edge_index, the number of nodes and that one number
    """

    compute: Callable[[Graph, int], Any]
    tensors: Callable[[Any], dict[str, Tensor]]
    value: Callable[[Mapping[str, Tensor]], Any]
    alone: Callable[[numpy.ndarray, int, int], dict[str, numpy.ndarray]]


def _of_nodes(spectrum: Spectrum) -> dict[str, Tensor]:
    return {"eigenvalues": spectrum.values[spectrum.part], "eigenvectors": spectrum.vectors}


def _spectrum(given: Mapping[str, Tensor]) -> Spectrum:
    """Each node a part of its own, since eigenvalues are given by node."""
    values = given["eigenvalues"]
    return Spectrum(values, given["eigenvectors"], torch.arange(values.shape[0], device=values.device))


PRECOMPUTED = {
    "edgewise.graphs.make.spectral.component_spectra": Precomputed(
        cached(component_spectra), _of_nodes, _spectrum, spectra
    ),
    "edgewise.graphs.make.regular.clique_counts": Precomputed(
        cached(clique_counts), lambda counts: {"cliques": counts}, lambda given: given["cliques"], cliques
    ),
}


def precomputed_by(model: nn.Module, graph: Graph, *tensors: Any) -> tuple[tuple[str, int], ...]:
    """Which values of `PRECOMPUTED` a model reads of a graph of edges, each with its number.

    Errors      ExportError for a model that reads one of them with several numbers
    """
    unread = copy(graph)  # without what was computed of it before
    model(unread, *tensors)
    keys = tuple(key for key in unread._memo if isinstance(key, tuple) and key[0] in PRECOMPUTED)
    if len({name for name, *_ in keys}) < len(keys):
        raise ExportError("it reads eigenvectors, or cliques, of several numbers: an exported model has one input")
    return keys


def lines_of(keys: Sequence[tuple[str, int]], inputs: Mapping[str, Any]) -> str:
    """A function `completed` of arrays by name: them, and the inputs of these keys where they lack them."""
    if not keys:
        return ""
    first, axis = next(
        (name, -1 if name == "tokens" else -2) for name in ("x", "positions", "tokens") if name in inputs
    )
    functions = [(PRECOMPUTED[name].alone, number) for name, number in keys]
    calls = [f"**{each.__name__}(arrays['edge_index'], nodes, {number})" for each, number in functions]
    completed = f"""def completed(arrays):
    nodes = arrays["{first}"].shape[{axis}]
    return {{{", ".join([*calls, "**arrays"])}}}
"""
    return "\n\n".join([*(inspect.getsource(each) for each, _ in functions), completed])
