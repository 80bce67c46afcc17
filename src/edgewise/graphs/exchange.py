"""Graphs from and to other libraries. Each library is imported by the functions that need it, and by no others."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy
import torch
from torch import Tensor

from edgewise.errors import ConfigError, DataError, EdgewiseError, GraphError, ShapeError, installing
from edgewise.graphs import checks
from edgewise.graphs.adjacency import Adjacency
from edgewise.graphs.layout import mapped_edges
from edgewise.graphs.tracing import lasting

if TYPE_CHECKING:
    import networkx
    import scipy.sparse
    import torch_geometric.data


class TypedData(NamedTuple):
    """What a PyTorch Geometric `HeteroData` holds, as one graph and tensors beside it; a type's nodes follow in a row.

    Symbols     graph = all edges; types [N] int64 = each node's place in `kinds`; relation [E] int64, in the graph's
                order = each edge's place in `relations`, (sender's type, name, receiver's type); x [N, C] and e [E, D]
                = `x` and `edge_attr` of all types, zeros behind those that are narrower or have none; None where no
                type has any
    """

    graph: Any  # a Graph
    types: Tensor
    relation: Tensor
    x: Tensor | None
    e: Tensor | None
    kinds: tuple[str, ...]
    relations: tuple[tuple[str, str, str], ...]

    def rows(self, kind: str) -> slice:
        """Where the nodes of a type are: `y[data.rows("paper")]` are a model's outputs for papers.

        Errors      GraphError for a type that there is not
        """
        if kind not in self.kinds:
            raise GraphError(f"no type of nodes {kind!r}: there are {', '.join(self.kinds)}")
        place = self.kinds.index(kind)
        first = int((self.types < place).sum())
        return slice(first, first + int((self.types == place).sum()))


class Exchange(Adjacency):
    """Graphs from other libraries, and to them."""

    @classmethod
    def open(cls, store: Path | str) -> Self:
        """The graph of a store, mapped: its edges are read where they lie on the disk, when they are needed.

        Errors      DataError: a folder that is no store, or a file of it that is missing or cut short; what would list
                    all edges of a graph for which there is too little memory is a GraphError
        Cost        milliseconds, whatever the size; `sample_neighbors` and `rows` read the rows that they need
        Edge cases  a pickled graph holds the store's path alone

        >>> import tempfile
        >>> from edgewise.data import build_store
        >>> from edgewise.graphs import Graph
        >>> store = Path(tempfile.mkdtemp()) / "ring"
        >>> manifest = build_store(store, [([0, 1, 2], [1, 2, 0], None)])
        >>> Graph.open(store)
        Graph(3 receivers, 3 senders, 3 edges)
        """
        with torch.inference_mode(False):  # what it makes would be copied
            nodes, offsets, senders = mapped_edges(store)
        return cls._of(nodes, nodes, offsets=offsets, _compact=(offsets, senders), _store=str(Path(store).absolute()))

    def __getstate__(self) -> dict[str, Any]:
        self.check_unwritten()
        stored = vars(self).get("_store")
        return {"_store": stored} if stored is not None and self.device.type == "cpu" else super().__getstate__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "device" not in state:
            vars(self).update(vars(self.open(state["_store"])))
            return
        vars(self).update({name: lasting(value) for name, value in state.items()})
        self.watch({name: vars(self)[name] for name in self._definition})

    @classmethod
    def from_networkx(cls, graph: networkx.Graph[Any]) -> Self:
        """The graph of a networkx graph: an edge u -> v means that v listens to u.

        Edge cases  nodes are numbered in the order of `graph.nodes`; an undirected edge goes both ways (a self-loop is
                    one edge); a multigraph's parallel edges stay parallel; attributes are left behind
                    `sort_edges` takes values in the order of `graph.edges`; for an undirected graph, those of all edges
                    as listed, then those of all reversed edges without the self-loops

        >>> import networkx
        >>> from edgewise.graphs import Graph
        >>> Graph.from_networkx(networkx.path_graph(["a", "b", "c"])).edge_index().tolist()
        [[1, 0, 2, 1], [0, 1, 1, 2]]
        """
        if not (hasattr(graph, "nodes") and hasattr(graph, "edges") and hasattr(graph, "is_directed")):
            raise GraphError(f"from_networkx takes a networkx graph, not {type(graph).__name__}")
        number = {node: i for i, node in enumerate(graph.nodes)}
        pairs = [(number[edge[0]], number[edge[1]]) for edge in graph.edges]  # edge[2] is a multigraph's key
        if not graph.is_directed():
            pairs += [(v, u) for u, v in pairs if u != v]
        edges = torch.tensor(pairs, dtype=torch.int64).view(-1, 2).T
        return cls.from_edge_index(edges, len(number))

    @classmethod
    def from_graph6(cls, line: str) -> Self:
        """The undirected graph of a line in graph6, as nauty, SageMath and the House of Graphs write them.

        Errors      DataError for a line that is no graph6, is cut short or goes on too long
        Edge cases  the header ">>graph6<<" may be there
        Reference   McKay, "graph6 and sparse6 graph formats", 2015

        >>> from edgewise.graphs import Graph
        >>> Graph.from_graph6("Bw").edge_index().tolist()  # a triangle
        [[1, 2, 0, 2, 0, 1], [0, 0, 1, 1, 2, 2]]
        """
        import networkx

        if not isinstance(line, str):
            raise DataError(f"a graph in graph6 is a line of text, not {checks.shown(line)}")
        try:
            return cls.from_networkx(networkx.from_graph6_bytes(line.strip().encode("ascii")))
        except (IndexError, ValueError, networkx.NetworkXException) as error:
            raise DataError(f"{line[:40]!r} is no graph6: {error}") from error

    def to_networkx(self) -> networkx.DiGraph[int] | networkx.MultiDiGraph[int]:
        """A directed networkx graph on the nodes 0, 1, ...: j -> i where i listens to j; a multigraph if edges repeat.

        >>> from edgewise.graphs import Graph
        >>> sorted(Graph.from_edge_index([[0, 1], [1, 1]], num_nodes=2).to_networkx().edges)
        [(0, 1), (1, 1)]
        """
        import networkx

        self.require_square("a networkx graph")
        result: networkx.DiGraph[int] = networkx.MultiDiGraph() if self.has_duplicates else networkx.DiGraph()
        result.add_nodes_from(range(self.num_receivers))
        result.add_edges_from(zip(self.senders.tolist(), self.receivers.tolist(), strict=True))
        return result

    @classmethod
    def from_scipy(cls, matrix: scipy.sparse.sparray | scipy.sparse.spmatrix) -> Self:
        """The graph of a sparse matrix A [I, J]: i listens to j where A[i, j] is stored.

        Errors      GraphError for anything else, and for a matrix whose `indptr` or indices lead out of it
        Edge cases  an entry that is stored is an edge, even if its value is 0 (`A.eliminate_zeros()` drops those), and
                    two entries stored in one place are two edges; `sort_edges` takes `A.tocoo().data`

        >>> import scipy.sparse
        >>> from edgewise.graphs import Graph
        >>> A = scipy.sparse.coo_array(([0.5, 2.0], ([1, 0], [0, 2])), shape=(2, 3))
        >>> graph = Graph.from_scipy(A)
        >>> graph.edge_index().tolist(), graph.sort_edges(torch.from_numpy(A.tocoo().data)).tolist()
        ([[2, 0], [0, 1]], [2.0, 0.5])
        """
        if not hasattr(matrix, "tocoo") or len(getattr(matrix, "shape", ())) != 2:
            raise GraphError(f"from_scipy takes a two-dimensional scipy.sparse matrix, not {type(matrix).__name__}")
        bounds, indices = getattr(matrix, "indptr", None), getattr(matrix, "indices", ())
        if bounds is not None:  # SciPy follows them in memory
            bounds = checks.index_tensor(bounds, "indptr", axes=1)
            _check_rising(bounds, "indptr", min(int(bounds[-1]), len(indices)), "entries")
        try:
            entries = matrix.tocoo()
        except ValueError as error:
            raise GraphError(f"this {type(matrix).__name__} is damaged: {error}") from error
        edges = numpy.stack([entries.col, entries.row])
        return cls.from_edge_index(edges, num_nodes=entries.shape[1], num_receivers=entries.shape[0])

    def to_scipy(self, weight: Tensor | None = None) -> scipy.sparse.csr_array:
        """The matrix A [I, J] with one entry per edge: A[i, j] = weight [E], in the graph's order, or 1.

        >>> from edgewise.graphs import Graph
        >>> Graph.from_edge_index([[0, 1], [1, 1]], num_nodes=2).to_scipy().toarray().tolist()
        [[0.0, 0.0], [1.0, 1.0]]
        """
        import scipy.sparse

        self.check_unwritten()
        if weight is None:
            weight = torch.ones(self.num_edges)
        if not isinstance(weight, Tensor) or weight.shape != (self.num_edges,):
            raise ShapeError(
                f"weight must be a tensor [{self.num_edges}], one for each edge, not {checks.shown(weight)}"
            )
        narrow = weight.is_floating_point() and weight.element_size() < 4  # which SciPy does not compute with
        weight = weight.float() if narrow else weight
        data, senders, offsets = (t.detach().cpu().numpy() for t in (weight, self.senders, self.offsets))
        return scipy.sparse.csr_array((data, senders, offsets), shape=(self.num_receivers, self.num_senders), copy=True)

    @classmethod
    def from_pyg(cls, data: Any) -> Any:
        """The graph of a PyTorch Geometric `Data` or `Batch`, or of anything with `edge_index` and `num_nodes`.

        Edge cases  `graph.edge_attr` is `data.edge_attr` in the graph's order; a `Batch` gives a batch: `sizes` are
                    read from its `ptr`; a `HeteroData` gives `TypedData`: one graph of all types, and the types,
                    relations and features beside it
        Errors      GraphError where something is missing or no index of a node; ShapeError for features without a row
                    for each node or edge

        >>> from types import SimpleNamespace
        >>> from edgewise.graphs import Graph
        >>> Graph.from_pyg(SimpleNamespace(edge_index=torch.tensor([[0], [1]]), num_nodes=2))
        Graph(2 receivers, 2 senders, 1 edges)
        """
        if hasattr(data, "node_types") and hasattr(data, "edge_types"):
            return cls._typed(data)
        edges, nodes = getattr(data, "edge_index", None), getattr(data, "num_nodes", None)
        if edges is None or nodes is None:
            raise GraphError(f"from_pyg takes edge_index and num_nodes, which this {type(data).__name__} lacks")
        e, ptr = getattr(data, "edge_attr", None), getattr(data, "ptr", None)
        graph = cls.from_edge_index(edges, nodes, edge_attr=e if isinstance(e, Tensor) else None)
        named = data.edge_attrs() if hasattr(data, "edge_attrs") else ("edge_weight",)
        graph._remember(getattr(data, name, None) for name in named if name not in ("edge_index", "edge_attr"))
        if ptr is None:
            return graph
        return graph._with_members(checks.index_tensor(ptr, "ptr", axes=1), "ptr")

    @classmethod
    def _typed(cls, data: Any) -> TypedData:
        """A `HeteroData` as one graph: the nodes type after type, and the edges of all relations."""
        kinds, relations = tuple(data.node_types), tuple(data.edge_types)
        counts = {kind: data[kind].num_nodes for kind in kinds}
        for kind, count in counts.items():
            if count is None:
                raise GraphError(f"this HeteroData does not say how many nodes of {kind!r} there are: set num_nodes")
        ends = [counts[kind] for kind in kinds]
        first = dict(zip(kinds, [0, *itertools.accumulate(ends)], strict=False))
        edges = [torch.zeros(2, 0, dtype=torch.int64)]
        for relation in relations:
            name, index = ", ".join(relation), data[relation].get("edge_index")
            if index is None:
                raise GraphError(f"the edges ({name}) have no edge_index: others, such as adj_t, are not read")
            sender, _, receiver = relation
            if sender not in counts or receiver not in counts:
                raise GraphError(f"the edges ({name}) join types of nodes of which there are only {', '.join(kinds)}")
            try:
                senders, receivers = checks.edge_index(index)
                checks.ends(receivers, senders, (counts[receiver], counts[sender]))
            except EdgewiseError as error:
                raise type(error)(f"the edges ({name}): {error}") from error
            edges.append(torch.stack([senders + first[sender], receivers + first[receiver]]))
        sizes = [index.shape[1] for index in edges[1:]]
        graph = cls.from_edge_index(torch.cat([part.to(edges[-1].device) for part in edges], 1), sum(ends))
        types, relation_of = (
            torch.arange(len(rows)).repeat_interleave(torch.tensor(rows, dtype=torch.int64)).to(graph.device)
            for rows in (ends, sizes)
        )
        x = _side_by_side([(f"x of {kind!r}", data[kind].get("x"), counts[kind]) for kind in kinds])
        e = _side_by_side(
            [(f"edge_attr of {r}", data[r].get("edge_attr"), n) for r, n in zip(relations, sizes, strict=True)]
        )
        e = None if e is None else graph.sort_edges(e)
        return TypedData(graph, types, graph.sort_edges(relation_of), x, e, kinds, relations)

    @classmethod
    def from_dgl(cls, graph: Any) -> Self:
        """The graph of a DGL graph or block: an edge u -> v means that v listens to u.

        Errors      GraphError for a graph of several types of edges: `graph[kind]` is one of them; for ends of another
                    number, an index of no node, or members of a batch that are not all nodes or that an edge joins
        Edge cases  `sort_edges` takes `graph.edata`, in the order of the edges' numbers; a batched graph gives a batch

        >>> from types import SimpleNamespace
        >>> from edgewise.graphs import Graph
        >>> edges = torch.tensor([0, 1]), torch.tensor([1, 2])
        >>> pair = SimpleNamespace(edges=lambda order: edges, num_src_nodes=lambda: 3, num_dst_nodes=lambda: 3)
        >>> Graph.from_dgl(pair).edge_index().tolist()
        [[0, 1], [1, 2]]
        """
        if not all(hasattr(graph, name) for name in ("edges", "num_src_nodes", "num_dst_nodes")):
            raise GraphError(f"from_dgl takes a DGL graph, not {type(graph).__name__}")
        kinds: Any = getattr(graph, "canonical_etypes", ())
        if len(kinds) > 1:
            raise GraphError(f"this graph has {len(kinds)} types of edges: give one of them, as graph[{kinds[0]!r}]")
        ends = [checks.index_tensor(end, "an end of the edges", axes=1) for end in _edges_of_dgl(graph)]
        if len(ends) != 2 or len(ends[0]) != len(ends[1]):
            found = " and ".join(str(len(end)) for end in ends)
            raise GraphError(f"edges are as many senders as receivers, not {found}")
        counts = graph.num_src_nodes(), graph.num_dst_nodes()
        made = cls.from_edge_index(torch.stack(ends), *counts)
        made._remember(getattr(graph, "edata", {}).values())
        is_block = getattr(graph, "is_block", False) or counts[0] != counts[1]
        if is_block or getattr(graph, "batch_size", 1) == 1:
            return made
        sizes = checks.index_tensor(graph.batch_num_nodes(), "batch_num_nodes", axes=1)
        return made._with_members(torch.nn.functional.pad(sizes.cumsum(0), (1, 0)), "the sum of batch_num_nodes")

    def _with_members(self, bounds: Tensor, name: str) -> Self:
        """The same edges as those of a batch, whose members' nodes begin and end at `bounds`."""
        _check_rising(bounds, name, self.num_receivers, "nodes")
        sizes = bounds.diff().to(self.device)
        member = torch.repeat_interleave(sizes)
        across = (member[self.senders] != member[self.receivers]).nonzero()
        if len(across):
            j, i = self.edge_index()[:, across[0, 0]].tolist()
            raise GraphError(f"the edge from {j} to {i} joins two graphs of the batch: {name} or the edges are wrong")
        forms = {"offsets": self.offsets, "senders": self.senders, "_order": self._order, "sizes": sizes}
        made = self._of(self.num_receivers, self.num_senders, 0, self.device, **forms)
        made._remember(self._beside)
        return self._taken(made, slice(None))

    def to_pyg(self) -> torch_geometric.data.Data:
        """A PyTorch Geometric `Data`: edge_index in the graph's order, num_nodes; for a batch also batch and ptr."""
        try:
            from torch_geometric.data import Data
        except ModuleNotFoundError:
            raise ConfigError(f"to_pyg needs PyTorch Geometric: {installing('pyg')}") from None
        self.require_square("a PyTorch Geometric Data")
        data = Data(edge_index=self.edge_index(), num_nodes=self.num_receivers)
        if len(self.sizes) > 1:
            data.batch = torch.repeat_interleave(self.sizes)
            data.ptr = torch.nn.functional.pad(self.sizes.cumsum(0), (1, 0))
        return data

    def to_dgl(self) -> Any:
        """A DGL graph with the edges in the graph's order, and `edata["edge_attr"]` where there are features of edges.

        Edge cases  where the receivers are not the senders it is a block; a batch has its members' numbers of nodes and
                    edges, so `dgl.unbatch` takes it apart
        Errors      ConfigError where DGL is not installed
        """
        try:
            import dgl
        except ModuleNotFoundError:
            raise ConfigError("to_dgl needs DGL, which is not installed: pip install dgl") from None
        self.check_unwritten()
        ends = self.senders, self.receivers
        if self.is_square:
            made = dgl.graph(ends, num_nodes=self.num_receivers)
        else:
            made = dgl.create_block(ends, self.num_senders, self.num_receivers)
        if len(self.sizes) > 1 and self.is_square:
            made.set_batch_num_nodes(self.sizes)
            made.set_batch_num_edges(self.offsets[torch.nn.functional.pad(self.sizes.cumsum(0), (1, 0))].diff())
        if self.edge_attr is not None:
            made.edata["edge_attr"] = self.edge_attr
        return made


def _edges_of_dgl(graph: Any) -> tuple[Any, ...]:
    """Senders and receivers in the order of the edges' numbers, also where rows or columns alone are held."""
    kept = graph.formats() if hasattr(graph, "formats") else {}
    kinds = {kind for part in ("created", "not created") for kind in kept.get(part, ())}
    if not kinds or "coo" in kinds:
        return tuple(graph.edges(order="eid"))
    kind = "csc" if "csc" in kinds else "csr"
    offsets, others, number = graph.adj_tensors(kind)
    rows = torch.repeat_interleave(offsets.diff())
    order = number.argsort() if len(number) else torch.arange(len(rows), device=rows.device)
    senders, receivers = (others, rows) if kind == "csc" else (rows, others)
    return senders[order], receivers[order]


def _check_rising(bounds: Tensor, name: str, last: int, things: str) -> None:
    ends = bounds[:1].tolist() + bounds[-1:].tolist()
    if ends != [0, last] or bool(checks.falls(bounds).any()):
        raise GraphError(f"{name} must rise from 0 to the number of {things}, {last}, not {bounds.tolist()[:10]}")


def _side_by_side(parts: list[tuple[str, Tensor | None, int]]) -> Tensor | None:
    """The rows of several tensors in one, zeros behind those that are narrower or missing; None where all are."""
    known = [x for _, x, _ in parts if x is not None]
    if not known:
        return None
    for name, x, rows in parts:
        if x is not None and (not isinstance(x, Tensor) or x.ndim != 2 or len(x) != rows):
            shape = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ShapeError(f"{name} is {shape}; expected [{rows}, C], a row for each")
    width = max(x.shape[1] for x in known)
    dtype = functools.reduce(torch.promote_types, (x.dtype for x in known))
    made = [
        known[0].new_zeros(rows, width, dtype=dtype)
        if x is None
        else torch.nn.functional.pad(x.to(dtype), (0, width - x.shape[1]))
        for _, x, rows in parts
    ]
    return torch.cat(made)
