"""Layers on a graph that two, three or four ranks share: the numbers of one process, and no byte too many sent."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from kernels.ranks import CASES, CROSS, NODES, WIDTH

ROOT = Path(__file__).parents[1]
# What a row takes on its way, in numbers: forward and, as its gradient, backward.
WIDTHS = {"gcn": 5, "gat": 8, "gatv2": 8, "gin": WIDTH, "egnn": 8 + 3, "attention": 2 * WIDTH}
WIDTHS |= dict.fromkeys(("causal", "window", "apart", "strided", "biased", "biased around"), 2 * WIDTH)
WIDTHS |= {"sequences": 2 * 2 * WIDTH, "past": 16}

AROUND = {"complete": WIDTH, "around": 2 * 2 * WIDTH}  # two numbers of two sequences


SMOKE = ("gat", "egnn", "causal")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each rank found, by its number."""
    return run_ranks(tmp_path_factory.mktemp("ranks"))


def run_ranks(folder, *names):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    script = Path(__file__).with_name("ranks.py")
    command = [sys.executable, str(script), str(folder), *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(4)]


@pytest.mark.processes
def test_layers_on_two_ranks_are_those_of_one_process(tmp_path):
    found = run_ranks(tmp_path, *SMOKE)
    assert all(found[rank][f"{name} 2 float64"]["furthest"] < 1e-12 for rank in range(2) for name in SMOKE)


@pytest.mark.processes
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients_on_some_ranks_are_those_of_one_process(found, name, size):
    for rank in range(size):
        assert found[rank][f"{name} {size} float32"]["furthest"] < 1e-6
        assert found[rank][f"{name} {size} float64"]["furthest"] < 1e-12


@pytest.mark.processes
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("name", CROSS)
def test_receivers_and_senders_may_be_other_nodes(found, name, size):
    assert all(found[rank][f"{name} {size}"] < 1e-6 for rank in range(size))


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "size"), [(name, size) for name in WIDTHS for size in (2, 3, 4) if (name, size) != ("causal", 2)]
)
def test_each_rank_sends_the_rows_that_others_read_and_no_more(found, name, size):
    graph = CASES[name][1]
    reads = graph.dense_mask()
    bounds = [NODES * rank // size for rank in range(size + 1)]
    owner = torch.bucketize(torch.arange(NODES), torch.tensor(bounds[1:]), right=True)
    # rows[r, s]: how many rows of rank s the receivers of rank r read
    rows = torch.stack([
        torch.zeros(size).index_add(0, owner, reads[bounds[rank] : bounds[rank + 1]].any(0).float())
        for rank in range(size)
    ]).fill_diagonal_(0)  # fmt: skip
    for dtype, itemsize in (("float32", 4), ("float64", 8)):
        for rank in range(size):
            crossing = int(rows[:, rank].sum()) + int(rows[rank].sum())  # forward to others, gradients back to others
            assert found[rank][f"{name} {size} {dtype}"]["sent"] == crossing * WIDTHS[name] * itemsize


@pytest.mark.processes
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("name", AROUND)
def test_on_a_complete_graph_each_rank_passes_blocks_of_rows_around_a_ring(found, name, size):
    bounds = [NODES * rank // size for rank in range(size + 1)]
    held = [stop - start for start, stop in pairwise(bounds)]
    for dtype, itemsize in (("float32", 4), ("float64", 8)):
        for rank in range(size):
            # all blocks but the next rank's forward and backward, and gradients of all blocks but its own
            passed = 2 * (NODES - held[(rank + 1) % size]) + NODES - held[rank]
            assert found[rank][f"{name} {size} {dtype}"]["sent"] == passed * AROUND[name] * itemsize


# Numbers of a row's query, keys, values and result, all sequences and heads.
SHARED = {("causal", 2): 4 * WIDTH} | {("heads", size): 2 * (24 + 12 + 12 + 24) * WIDTH for size in (2, 3, 4)}


@pytest.mark.processes
@pytest.mark.parametrize(("name", "size"), SHARED)
def test_on_a_causal_graph_ranks_share_the_heads_where_their_number_divides_them(found, name, size):
    held = [NODES * (rank + 1) // size - NODES * rank // size for rank in range(size)]
    for dtype, itemsize in (("float32", 4), ("float64", 8)):
        for rank in range(size):
            # q, k, v go with this rank's rows, y with those of others; backward the other way round
            own, others = held[rank] * (size - 1), NODES - held[rank]
            numbers = (own + others) * SHARED[name, size] // size
            assert found[rank][f"{name} {size} {dtype}"]["sent"] == numbers * itemsize


@pytest.mark.processes
@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_edges_of_a_graph_are_shared_out(found, size):
    for name in ("attention", "causal", "complete"):
        edges = [found[rank][f"{name} {size} float32"]["edges"] for rank in range(size)]
        assert sum(edges) == CASES[name][1].num_edges
