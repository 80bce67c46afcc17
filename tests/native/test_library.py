"""The compiled module as a whole: threads, forks, instruction sets."""

import math
import multiprocessing
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from edgewise import Graph
from edgewise.native import library
from edgewise.training.seeds import repeatable
from kernels.drawn import SCORES, attention, covering, messages, product, random_graph, results, same

pytestmark = pytest.mark.skipif(library is None, reason="the native kernels were not built")

CALLS = {
    **{f"{kind} attention": (lambda graph, kind=kind: attention(graph, kind, "edge", 2, 2, 5, 4)) for kind in SCORES},
    "attention with dropout": lambda graph: attention(graph, "dot", "", 4, 4, 8, 8, (2,), dropout=0.2),
    **{
        f"weighted {reduce}": (lambda graph, reduce=reduce: product(graph, reduce, "heads", 3, 5))
        for reduce in ("sum", "mean", "max", "min")
    },
    "sum with shared weights": lambda graph: product(graph, "sum", "edge", 1, 16, (2,)),
    "messages": lambda graph: messages(graph, "sum", 6),
}


@pytest.fixture
def keeps_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def large() -> Graph:
    """60,000 edges, half of them into one receiver: several pieces, of very different sizes."""
    torch.manual_seed(0)
    graph = random_graph(3000, 2500, 60_000)
    assert graph.in_degrees().max() > 30_000
    return graph


@pytest.mark.usefixtures("keeps_threads")
@pytest.mark.parametrize(("name", "dtype"), covering(list(CALLS), [torch.float32, torch.float32, torch.bfloat16]))
def test_the_bits_are_the_same_at_any_number_of_threads(name, dtype, large):
    leaves, call = CALLS[name](large)
    found = []
    for count in (1, 2, 4):
        torch.set_num_threads(count)
        torch.manual_seed(0)
        found.append(results(call, leaves, "native", dtype))
    for other in found[1:]:
        for key, value in found[0].items():
            assert torch.equal(value, other[key]), key


STARTED = """
import os, sys, torch
from edgewise import Graph, attend
torch.set_num_threads(1)
graph = Graph.from_edge_index(torch.randint(300, (2, 60_000)), num_nodes=300)
q = torch.randn(300, 4, 8)
attend(graph, q, q, q, backend="segment")
torch.set_num_threads(int(sys.argv[1]))
before = len(os.listdir("/proc/self/task"))
attend(graph, q, q, q, backend="native")
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.processes
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are counted in /proc")
def test_the_number_of_threads_is_pytorchs():
    def started(count):
        command = [sys.executable, "-c", STARTED, str(count)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert started(1) == 0
    assert started(3) == 2


def in_a_fork(function, timeout=60):
    """What the function puts into a queue in a forked process, within so many seconds."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=function, args=(queue,))
    process.start()
    try:
        return queue.get(timeout=timeout)
    finally:
        process.kill()
        process.join()


def _steps(net):
    x, optimizer = torch.ones(800, 800), torch.optim.AdamW(net.parameters())
    net(x).square().mean().backward()
    optimizer.step()
    with repeatable(deterministic=True, threads=2):  # as a training run with these settings in the child
        return net(x).detach()


@pytest.fixture(scope="module")
def after_threads():
    """Work of PyTorch and of the kernels, all of it done once on two threads."""
    torch.manual_seed(0)
    leaves, call = CALLS["dot attention"](random_graph(60, 60, 40_000))
    large, net = torch.ones(1_000_000, requires_grad=True), torch.nn.Linear(800, 800)
    work = {
        "a matrix product": lambda: torch.ones(800, 800) @ torch.ones(800, 800),
        "arithmetic": lambda: large + 1,
        "attend": lambda: call(leaves, "native"),
        "a backward pass": lambda: torch.autograd.grad(large.square().sum(), [large])[0],
        "a training step": lambda: _steps(net),
    }
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    for compute in work.values():
        compute()
    yield work
    torch.set_num_threads(before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.processes
@pytest.mark.parametrize("name", ["a matrix product", "arithmetic", "attend", "a backward pass", "a training step"])
def test_a_forked_process_never_waits_for_threads_of_its_parent(name, after_threads):
    total, threads = in_a_fork(
        lambda queue: queue.put((float(after_threads[name]().detach().sum()), torch.get_num_threads())), 20
    )
    assert math.isfinite(total) and threads == 1
    assert torch.get_num_threads() == 2, "the parent goes on with its own"


class Rows(Dataset):
    """Results of a kernel, as a data set computes them."""

    def __init__(self):
        self.leaves, self.call = CALLS["weighted sum"](random_graph(40, 40, 40_000))

    def __len__(self):
        return 4

    def __getitem__(self, n):
        return self.call(self.leaves, "native")[n]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.usefixtures("keeps_threads")
def test_the_workers_of_a_data_loader_compute_the_same():
    torch.set_num_threads(2)
    rows = Rows()
    expected = torch.stack([rows[n] for n in range(4)])
    loader = DataLoader(rows, num_workers=2, multiprocessing_context="fork", timeout=60)
    assert torch.equal(torch.cat(list(loader)), expected)


def test_four_threads_of_python_at_once_compute_the_same():
    graph = random_graph(200, 200, 40_000)
    calls = [CALLS[name](graph) for name in ("gated attention", "dot attention", "weighted sum", "weighted max")]
    expected = [results(call, leaves, "native") for leaves, call in calls]

    def repeated(n):
        leaves, call = calls[n % 4]
        return [results(call, leaves, "native") for _ in range(5)]

    with ThreadPoolExecutor(4) as pool:
        for n, found in enumerate(pool.map(repeated, range(8))):
            for one in found:
                same(one, expected[n % 4], 0.0)


@pytest.fixture
def keeps_instruction_set():
    before = library.instruction_set()
    yield
    library.use_instruction_set(before)


@pytest.mark.usefixtures("keeps_instruction_set")
@pytest.mark.parametrize("name", CALLS)
def test_every_instruction_set_of_the_machine_agrees(name):
    graph = random_graph(40, 30, 900)
    leaves, call = CALLS[name](graph)
    found = {}
    for build in library.instruction_sets():
        library.use_instruction_set(build)
        assert library.instruction_set() == build
        for dtype in (torch.float64, torch.float32):
            torch.manual_seed(0)
            found[build, dtype] = results(call, leaves, "native", dtype)
    for (build, dtype), one in found.items():
        best = found[library.instruction_sets()[-1], dtype]
        same(one, {key: x.double() for key, x in best.items()}, 1e-12 if dtype == torch.float64 else 1e-5, build)


@pytest.mark.processes
def test_the_best_instruction_set_runs_unless_another_is_chosen():
    code = "from edgewise.native import library; assert library.instruction_set() == library.instruction_sets()[-1]"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_runs_was_built_and_a_wheel_is_built_for_all():
    assert set(library.instruction_sets()) <= set(library.built_for())
    if os.environ.get("CIBUILDWHEEL") and platform.machine() in ("x86_64", "AMD64"):
        assert library.built_for() == ["v2", "v3", "v4"]


def test_an_instruction_set_that_the_machine_lacks_is_refused():
    with pytest.raises(ValueError, match="does not have that instruction set"):
        library.use_instruction_set("v9")


ELSEWHERE = """
import importlib.abc, sys
class Elsewhere(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "edgewise.native._native":
            raise ImportError("they were built for x86-64-v4, which this processor is not")
sys.meta_path.insert(0, Elsewhere())
import torch
from edgewise import causal, plan
from edgewise.native import library, say_if_missing
assert library is None
print(next(line for line in str(plan(causal(4))).splitlines() if "native" in line))
say_if_missing()
"""


@pytest.mark.processes
def test_kernels_built_for_another_processor_are_refused_with_the_reason_and_what_helps():
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, check=True)
    reason = "edgewise cannot load its C++ kernels (they were built for x86-64-v4, which this processor is not)"
    assert reason in done.stdout
    assert f"RuntimeWarning: {reason}: sparse graphs run on plain PyTorch" in done.stderr
    assert "reinstall edgewise on this machine" in done.stderr
