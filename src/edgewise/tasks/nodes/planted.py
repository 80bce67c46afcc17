"""Graphs without files: Zachary's karate club, and generated ones with planted classes, of any size or of papers."""

from __future__ import annotations

import torch
from torch import Tensor

from edgewise.data.splits import Splits, ascending, cut
from edgewise.errors import ConfigError
from edgewise.graphs import Graph
from edgewise.tasks.nodes.classification import NodeClassification, Nodes, SampledNodes


def karate(loops: bool = False, weights: bool = False) -> NodeClassification:
    """Guess each member's club from the friendships, knowing only the instructor's and the administrator's.

    Nodes are the members with one-hot features; edges are friendships, both ways. The two leaders (nodes 0
    and 33) are the training set; of the others the 16 even numbers are the validation set and the 16 odd ones the test
    set.

    Reference   Zachary 1977, as distributed with networkx

    Args:
        loops: Let every member attend to itself as well. Off by default, because layers that want self-loops (GCN,
            GAT) add them and others (GIN, GraphSAGE) treat the node itself apart.
        weights: Give each friendship's weight, in how many places the two met, divided by the mean: A_ij [E, 1], for a
            model that reads features of edges. A member's own loop, where there is one, has the weight 1.

    Example
        >>> task = karate()
        >>> task.graph().num_receivers, task.graph().num_edges, task.nodes.classes
        (34, 156, ('Mr. Hi', 'Officer'))
    """
    import networkx

    club = networkx.karate_club_graph()
    friends = torch.tensor(list(club.edges)).T
    alone = torch.arange(len(club) if loops else 0).expand(2, -1)
    graph = Graph.from_edge_index(torch.cat([friends, friends.flip(0), alone], 1), len(club))
    classes = ("Mr. Hi", "Officer")
    labels = torch.tensor([classes.index(club.nodes[member]["club"]) for member in sorted(club)])
    splits: Splits = {"train": torch.tensor([0, 33]), "valid": torch.arange(2, 33, 2), "test": torch.arange(1, 33, 2)}
    met = torch.tensor([float(weight) for *_, weight in club.edges(data="weight")])
    e = torch.cat([met / met.mean(), met / met.mean(), torch.ones(alone.shape[1])])
    known = graph.sort_edges(e[:, None]) if weights else None
    return NodeClassification("karate", Nodes(graph, torch.eye(len(club)), labels, classes, splits, known))


SAME, SIGNAL = 0.6, 0.3  # how often a neighbour is of the node's class; the deviation of the classes' centres


def planted(
    nodes: int = 100_000,
    degree: int = 10,
    classes: int = 8,
    channels: int = 16,
    fanouts: tuple[int, ...] = (5, 5),
    inductive: bool = True,
    layerwise: bool = False,
    workers: int = 0,
    generated: int = 0,
) -> NodeClassification:
    """Guess the planted classes of a generated graph's nodes, on sampled neighbours, for graphs of any size.

    Each node has a class, evenly drawn; it attends to `degree` others, each drawn from its own class with probability
    0.6 and from all nodes else. Its features are normal noise of deviation 1 around its class's centre, and the
    centres are normal with deviation 0.3. Half of the nodes train, a quarter chooses the weights, a quarter tests.

    Reference   Holland, Laskey & Leinhardt 1983 (stochastic block models); Hamilton et al. 2017 (sampling)

    Args:
        nodes: How many nodes.
        degree: How many others each node attends to.
        classes: How many classes.
        channels: Width of the features.
        fanouts: Neighbours to draw in each hop of training, one number per layer. Empty: all nodes at once.
        inductive: Hide all but the training nodes, and their edges, from training.
        layerwise: Draw `fanouts` senders for each layer by importance among all nodes (FastGCN), not neighbours.
        workers: Threads that draw the batches of the next steps while this one trains; 0: each is drawn when it is
            needed. The batches are the same.
        generated: Seed of the generator.
    """
    if min(nodes, degree, classes, channels) < 1 or nodes < 8 * classes:
        raise ConfigError(
            "the numbers of nodes, neighbours, classes and channels must be at least 1, nodes 8 per class"
        )
    draw = torch.Generator().manual_seed(generated)
    labels = torch.arange(nodes) % classes  # evenly; which number a node has means nothing
    receivers = torch.arange(nodes).repeat_interleave(degree)
    anyone = torch.randint(nodes, (nodes * degree,), generator=draw)
    own = torch.randint(nodes // classes, (nodes * degree,), generator=draw) * classes + labels[receivers]
    senders = torch.where(torch.rand(nodes * degree, generator=draw) < SAME, own, anyone)
    centres = SIGNAL * torch.randn(classes, channels, generator=draw)
    x = centres[labels] + torch.randn(nodes, channels, generator=draw)
    order = torch.randperm(nodes, generator=draw)
    splits = ascending(cut(order, (nodes // 2, nodes // 2 + nodes // 4)))
    graph = Graph.from_edge_index(torch.stack([senders, receivers]), nodes)
    names = tuple(f"class {c}" for c in range(classes))
    return SampledNodes("planted", Nodes(graph, x, labels, names, splits), fanouts, inductive, layerwise, workers)


KINDS = ("author", "paper", "venue")
RELATIONS = ("writes", "is written by", "reviews", "is reviewed by", "publishes", "appears in")
WRITERS, REVIEWERS = 2, 3  # of each paper
WORDS, CENTRES, FOCUS = 29, 0.4, 0.8  # features; the deviation of the topics' centres; how often a topic is shared


def bibliography(
    authors: int = 900,
    papers: int = 1500,
    venues: int = 30,
    topics: int = 6,
    generated: int = 0,
) -> NodeClassification:
    """Guess the topics of authors from the words of papers: who wrote a paper shares its topic, its reviewers do not.

    Each author and each venue has a topic. A paper's topic is that of its first author; its second author and its
    venue have the same topic with probability 0.8, and any else. Its three reviewers have other topics. Its 29 words
    are normal noise of deviation 1 around the centre of the paper's topic, and the centres are normal with deviation
    0.4; authors and venues have none, and every node has its type, one-hot. Of the authors half train, a quarter
    chooses the weights, a quarter tests. A link is two edges, one of each direction, of a kind each.

    Reference   Hu et al., 2020, whose types of nodes and links these are like; all of it is generated

    Args:
        authors: How many authors.
        papers: How many papers.
        venues: How many venues.
        topics: How many topics, the classes.
        generated: Seed of the generator.

    Example
        >>> bibliography(authors=60, papers=80, venues=6).contents
        '146 nodes of 6 classes'
    """
    if topics < 2 or authors < 10 * topics or venues < topics or papers < 1:
        raise ConfigError("a bibliography has papers, 2 topics, a venue and 10 authors of each topic, or more")
    draw = torch.Generator().manual_seed(generated)
    of_author = torch.arange(authors) % topics  # of venues too: who has a topic goes round
    first = torch.randint(authors, (papers,), generator=draw)
    topic = of_author[first]

    def of_topic(count: int, wanted: Tensor) -> Tensor:
        """A member of each wanted topic, among `count` whose topics go round."""
        return torch.randint(count // topics, wanted.shape, generator=draw) * topics + wanted

    def mostly(count: int) -> Tensor:
        """One of the paper's topic with the probability FOCUS, and any else."""
        own = torch.rand(papers, generator=draw) < FOCUS
        return torch.where(own, of_topic(count, topic), torch.randint(count, (papers,), generator=draw))

    writers = torch.stack([first, mostly(authors)], 1)
    other = (topic[:, None] + torch.randint(1, topics, (papers, REVIEWERS), generator=draw)) % topics
    links = {0: writers, 2: of_topic(authors, other), 4: mostly(venues)[:, None] + authors + papers}
    edges, relation = [], []
    for kind, ends in links.items():
        pair = torch.stack([ends.flatten(), (authors + torch.arange(papers)).repeat_interleave(ends.shape[1])])
        edges += [pair, pair.flip(0)]
        relation += [torch.full((pair.shape[1],), kind), torch.full((pair.shape[1],), kind + 1)]
    count = authors + papers + venues
    graph = Graph.from_edge_index(torch.cat(edges, 1), count)
    x = torch.zeros(count, WORDS + len(KINDS))
    centres = CENTRES * torch.randn(topics, WORDS, generator=draw)
    x[authors : authors + papers, :WORDS] = centres[topic] + torch.randn(papers, WORDS, generator=draw)
    types = torch.arange(len(KINDS)).repeat_interleave(torch.tensor([authors, papers, venues]))
    x[torch.arange(count), WORDS + types] = 1.0
    labels = torch.full((count,), -1).index_copy(0, torch.arange(authors), of_author)
    splits = ascending(cut(torch.randperm(authors, generator=draw), (authors // 2, 3 * authors // 4)))
    names = tuple(f"topic {c}" for c in range(topics))
    e = graph.sort_edges(torch.cat(relation))
    nodes = Nodes(graph, x, labels, names, splits, e, relations=len(RELATIONS), kinds=len(KINDS))
    return NodeClassification("bibliography", nodes)
