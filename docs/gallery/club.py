"""Zachary's karate club, which many pictures of the gallery are drawn on."""

from functools import cache

import networkx
import torch
from canvas import Box, Point, fitted
from torch import Tensor

from edgewise import Graph

LINKS = networkx.karate_club_graph()


@cache
def club(loops: bool = False) -> Graph:
    graph = Graph.from_networkx(LINKS)
    return graph.add_self_loops() if loops else graph


def places(box: Box = (14, 14, 292, 172)) -> list[Point]:
    spots = networkx.kamada_kawai_layout(LINKS, weight=None)
    return fitted([(spots[node][0], spots[node][1]) for node in range(34)], box)


def pairs(graph: Graph) -> list[tuple[int, int]]:
    return list(zip(graph.receivers.tolist(), graph.senders.tolist(), strict=True))


def factions() -> Tensor:
    return torch.tensor([int(LINKS.nodes[node]["club"] != "Mr. Hi") for node in range(34)])
