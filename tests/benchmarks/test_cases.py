"""Every contender that needs nothing but PyTorch computes what its case asks for."""

from functools import cache

import pytest
import torch

from benchmarks import inputs
from benchmarks.cases import CASES, CASES_OF_A_GPU
from benchmarks.contenders import PEERS, ours_on
from benchmarks.exact import errors, solve
from benchmarks.inputs import Attention, Product
from edgewise.kernels import BACKENDS

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # PyTorch Geometric's

SMALL = ("csr-4x16", "gat-4x16", "gatv2-4x16", "spmm-64", "window-4096", "complete-1024", "causal-1024", "small-causal")
SMALL += ("molecules-complete", "molecules-sparse")
OURS = ours_on("cpu")
CONTENDERS = OURS | PEERS
EASY = [(case, name) for case in SMALL for name in (*OURS, *CASES[case].peers) if not CONTENDERS[name].compiles]


@cache
def solved(case: str) -> tuple[Attention | Product, dict[str, torch.Tensor]]:
    """A case at a small size, with the oracle's answer."""
    made = next(iter(CASES[case].parts.values())).make(0.002)
    assert isinstance(made, Attention | Product)
    return made, solve(made)


@pytest.mark.parametrize(("case", "name"), EASY)
def test_a_contender_is_right(case: str, name: str) -> None:
    made, exact = solved(case)
    contender = CONTENDERS[name]
    refusal = contender.refuses(made)
    if refusal is not None:
        assert name in OURS or refusal.startswith("needs ")
        return
    y = contender.prepare(made)()
    grads = torch.autograd.grad(y, list(made.leaves.values()), made.gradient)
    assert max(errors(made, y, dict(zip(made.leaves, grads, strict=True)), exact).values()) < 1e-5


def test_every_backend_of_the_cpu_but_the_oracle_takes_part() -> None:
    of_the_gpu = {"bitmap", "flex", "ragged", "triton"}
    assert set(OURS) == {"edgewise", *BACKENDS} - {"reference", *of_the_gpu}


@pytest.mark.studies
def test_the_numba_sampler_draws_neighbours_without_replacement() -> None:
    pytest.importorskip("numba")
    from benchmarks.contenders import numba_sampling

    graph = inputs.uniform(50, 1000)
    case = inputs.Sampling(graph, torch.arange(20), (5, 40))
    sample = numba_sampling.prepare(case)
    sample()  # leaves its table clean for the next one
    nodes, hops = sample()
    offsets, senders = graph.offsets, graph.senders
    assert len(nodes.unique()) == len(nodes)
    for (starts, found), fanout in zip(hops, case.fanouts, strict=True):
        for place in range(len(starts) - 1):
            mine = senders[offsets[nodes[place]] : offsets[nodes[place] + 1]].tolist()
            drawn = nodes[found[starts[place] : starts[place + 1]]].tolist()
            assert len(drawn) == min(fanout, len(mine))
            assert all(drawn.count(sender) <= mine.count(sender) for sender in drawn)
    assert torch.equal(nodes[:20], case.seeds)
    assert len(hops[1][0]) - 1 == 20 + len(set(hops[0][1].tolist()) - set(range(20)))


def test_cases_and_contenders_know_each_other() -> None:
    assert set(PEERS) == {name for case in CASES.values() for name in case.peers}
    assert {name for case in CASES_OF_A_GPU.values() for name in case.peers} <= set(PEERS)
