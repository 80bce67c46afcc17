"""Memory of nodes that events change as time passes."""

from typing import Annotated

import torch
from torch import Tensor, nn

from edgewise.configuration import Count, Natural
from edgewise.graphs import Graph
from edgewise.layers.plain.layer import Layer, checked
from edgewise.layers.plain.linear import Linear, check_features
from edgewise.layers.plain.sides import Edges, NodeRows, check_nodes


class TimeEncoding(nn.Linear):
    """Spans of time as waves of learned frequency.

    Equation    φ(t) = cos(ω t + β), where ω begins as 1, ..., 10⁻⁹ and β as 0
    Symbols     weight = ω, bias = β
    Shapes      t [*, 1] -> [*, channels], in the unit in which times are told
    Reference   Xu et al., "Inductive representation learning on temporal graphs", 2020, (4)

    Example
        >>> TimeEncoding(2)(torch.zeros(3, 1)).tolist()
        [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    """

    @checked
    def __init__(self, channels: Count) -> None:
        super().__init__(1, channels)
        with torch.no_grad():
            self.weight.copy_(10 ** -torch.linspace(0, 9, channels).unsqueeze(-1))
            self.bias.zero_()

    def forward(self, t: Tensor) -> Tensor:
        return super().forward(t).cos()


class EventMemory(Layer):
    """Memory of temporal graph networks: the latest event of each node changes what it remembers, through a GRU.

    Equation    m_i = [s_i ‖ s_j ‖ φ(t_ij - t_i) ‖ W e_ij] of the latest event (i, j)
                s_i' = GRU(m_i, s_i);  t_i' = t_ij
    Symbols     graph = the events since the memory was last written, an edge from j to i for each that i hears of;
                s = memory; t_i = when it was written, `written`; t_ij = `time`; encoding = φ; edges = W
    Shapes      s [N, channels], written [N, 1], time [E, 1] (, e [E, edges]), in the graph's edge order
                -> s' [N, channels], written' [N, 1]
    Edge cases  a node without an event keeps its memory and its time; of events at one time the last edge counts; times
                are counted in the dtype of `written`: int64 or float64 for seconds since 1970, which float32 would lose
    Cost        time O(E log E + N C²), of which the GRU takes nodes with an event alone; memory O(N C)
    Reference   Rossi et al., "Temporal graph networks for deep learning on dynamic graphs", 2020, §3.1 (identity
                messages, the most recent one)

    Train it one batch of events late, as the paper's algorithm 2 does: what a batch is asked is answered from a memory
    that has read the batch before, so that its weights have a gradient; then detach s.

    Example
        >>> met = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=3)  # 0 and 1, at time 5
        >>> memory = EventMemory(4)
        >>> s, written = memory(met, torch.zeros(3, 4), torch.zeros(3, 1), torch.full((2, 1), 5.0))
        >>> written.flatten().tolist(), s[2].tolist()
        ([5.0, 5.0, 0.0], [0.0, 0.0, 0.0, 0.0])
    """

    def __init__(self, channels: Count, edges: Natural = 0) -> None:
        super().__init__()
        self.encoding = TimeEncoding(channels)
        self.edges = Linear(edges, channels, bias=False) if edges else None
        self.gru = nn.GRUCell((4 if edges else 3) * channels, channels)

    def forward(
        self, graph: Graph, s: NodeRows, written: Tensor,
        time: Annotated[Tensor, Edges("encoding")], e: Annotated[Tensor | None, Edges("edges")] = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        check_features(s, self.gru.weight_hh)
        check_nodes(graph, written, 1, "written", whole=True)
        i, latest = latest_edges(graph, time)
        s_i, s_j, t_ij = s[i], s[graph.senders[latest]], time[latest].to(written.dtype)
        m_i = [s_i, s_j, self.encoding((t_ij - written[i]).to(s.dtype))]
        if self.edges is not None and e is not None:
            m_i.append(self.edges(e[latest]))
        return s.index_copy(0, i, self.gru(torch.cat(m_i, -1), s_i)), written.index_copy(0, i, t_ij)


def latest_edges(graph: Graph, time: Tensor) -> tuple[Tensor, Tensor]:
    """The receivers that have edges, and of each the edge of the latest time [E, 1]; of equal times the last edge."""
    order = time.flatten().argsort(stable=True)
    order = order[graph.receivers[order].argsort(stable=True)]
    i = graph.in_degrees().nonzero().flatten()
    return i, order[graph.offsets[i + 1] - 1]
