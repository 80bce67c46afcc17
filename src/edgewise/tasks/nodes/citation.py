"""Citation graphs: papers, their words, who cites whom, and the subject of a few."""

from typing import Literal

import numpy as np
import torch
from scipy.sparse import diags

from edgewise.data.splits import SPLITS, Splits
from edgewise.errors import ConfigError
from edgewise.graphs import Graph
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.tasks.core.source import Remote, find_folder
from edgewise.tasks.nodes.classification import NodeClassification, Nodes
from edgewise.tasks.nodes.planetoid import PARTS, read_planetoid
from edgewise.tasks.nodes.sampled import SampledNodes

_ADDRESS = "https://raw.githubusercontent.com/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data/"
# In the order of PARTS. The tests compare Cora's hashes with its files; the other two data sets' are published ones.
_SHA256 = {
    "cora": (
        "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
        "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
        "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
        "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
        "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
        "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
        "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
        "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    ),
    "citeseer": (
        "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
        "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
        "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
        "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
        "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
        "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
        "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
        "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    ),
    "pubmed": (
        "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
        "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
        "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
        "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
        "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
        "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
        "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
        "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    ),
}
CLASSES = {
    "cora": ("theory", "reinforcement learning", "genetic algorithms", "neural networks", "probabilistic methods",
             "case based", "rule learning"),
}  # fmt: skip


def remotes(dataset: str) -> list[Remote]:
    """The eight files of a data set, in the order of PARTS."""
    names = [f"ind.{dataset}.{part}" for part in PARTS]
    hashes = _SHA256[dataset]
    return [Remote(name, _ADDRESS + name, sha256, 1 << 25) for name, sha256 in zip(names, hashes, strict=True)]


def citation(
    dataset: Literal["cora", "citeseer", "pubmed"] = "cora",
    folder: str | None = None,
    download: bool = False,
    normalise: bool = True,
    fanouts: tuple[int, ...] = (),
) -> NodeClassification:
    """Guess a paper's subject from its words and from whom it cites, knowing 20 papers of each subject.

    The public split of Planetoid: 20 papers of each class train (140 for Cora), 500 validate, 1,000 test. Citations
    count in both directions, each once, without self-loops (layers that want them add them). The bags of words stay
    sparse. Cora has 2,708 papers of 1,433 words and 10,556 directed edges.

    Reference   Sen et al. 2008; Yang, Cohen and Salakhutdinov 2016

    Args:
        dataset: "cora", "citeseer" or "pubmed". The project's tests read Cora's real files, and CiteSeer's where they
            are there; of PubMed only generated miniatures and published hashes.
        folder: Where the files ind.NAME.x etc. lie (default: planetoid in $EDGEWISE_DATA, then the cache).
        download: Fetch what is missing from the planetoid repository, over TLS and verified by its hash.
        normalise: Divide each paper's words by their sum, as the GCN paper does.
        fanouts: Neighbours to draw in each hop of training, one number per layer. Empty: the whole graph at once.

    Errors      a file that is missing, damaged, or whose pickle holds more than arrays is a `DataError` that names
                it.
    """
    if dataset not in _SHA256:
        raise ConfigError(f"unknown citation data set {dataset!r}; known are {', '.join(_SHA256)}")
    data = read_planetoid(find_folder("planetoid", remotes(dataset), folder, download), dataset)
    words = data.features
    if normalise:
        totals = np.asarray(words.sum(1)).ravel()
        words = diags(np.divide(1, totals, out=np.zeros_like(totals), where=totals > 0)) @ words
    graph = Graph.from_edge_index(torch.from_numpy(data.edges), len(data.labels))
    classes = CLASSES.get(dataset, tuple(f"class {c}" for c in range(data.classes)))
    splits: Splits = {split: torch.from_numpy(getattr(data, split)) for split in SPLITS}
    labels = torch.from_numpy(data.labels)
    nodes = Nodes(graph, SparseFeatures.from_scipy(words), labels, classes, splits)
    return SampledNodes(dataset, nodes, fanouts, inductive=False)
