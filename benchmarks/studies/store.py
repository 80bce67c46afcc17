"""Training on a graph on disk: `python -m benchmarks.studies.store FOLDER --scale 0.1`.

A generated graph of the shape of papers100M (111 million nodes, 1.6 billion edges, 128 features in float16) times
`scale` is built within `--memory`. Three-layer GraphSAGE trains on it, with 1,024 seeds and fan-outs of 10, from cold
files, with each size of cache; beside computing alone (the same samples in memory), reading alone (the pages that a
step touches, at the disk's random rate with as many readers) and `--plain` steps of the plain way: numba and
numpy.memmap. `--kills 20` kills as many builds at random moments instead, and checks what they leave; `--threads` times
the sampler on one thread and on two. `--hollow` trains on a store of the same shape that is made in a minute: its
degrees are regular and its features a hole in a file, so that memory is that of the real one, and reading is not.
`--tables` draws samples of that store and reads them through each cache: memory and time; graphs of up to `--dense`
nodes have tables of all nodes.
"""

import argparse
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.contenders.sparse import numba_sampling
from benchmarks.inputs import Sampling
from edgewise.data import build_store
from edgewise.graphs import Graph, Sample, Store, StoredRows, sample_neighbors
from edgewise.graphs.make import sampling
from edgewise.graphs.store import rows as caches
from edgewise.graphs.store.layout import Manifest, Stored, Writer, check_store
from edgewise.memory import in_words, parse_size
from edgewise.models import GNN, Features, GNNSettings
from edgewise.tasks import node_store
from edgewise.training.prefetch import Prefetch

NODES, EDGES, CHANNELS, CLASSES = 111_059_956, 1_615_685_872, 128, 172
SEEDS, FANOUTS, BLOCK = 1024, (10, 10, 10), 1 << 22


def edges(nodes: int, count: int) -> Iterator[tuple[Any, Any, None]]:
    """Receivers evenly, senders by a power law: a few nodes have many who listen to them."""
    draw = np.random.default_rng(0)
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        senders = (draw.random(size) ** 2 * nodes).astype(np.int64)
        yield senders * 2_654_435_761 % nodes, draw.integers(0, nodes, size), None


def columns(nodes: int) -> Iterator[dict[str, Tensor]]:
    """Features around the centre of each class; one node in a hundred trains."""
    draw = torch.Generator().manual_seed(0)
    centres = torch.randn(CLASSES, CHANNELS, generator=draw)
    for start in range(0, nodes, BLOCK // 32):
        numbers = torch.arange(start, min(start + BLOCK // 32, nodes))
        labels = numbers * 7919 % CLASSES
        x = (0.5 * centres[labels] + torch.randn(len(numbers), CHANNELS, generator=draw)).half()
        masks = {part: numbers % 1000 == n for n, part in enumerate(("valid", "test"))}
        yield {"x": x, "labels": labels, "train": numbers % 100 == 7, **masks}


class Timed:
    """What an iterator gives, and the seconds that it took to make that."""

    def __init__(self, made: Iterator[Any]) -> None:
        self.made, self.seconds = made, 0.0

    def __iter__(self) -> Iterator[Any]:
        began = time.perf_counter()
        for part in self.made:
            self.seconds += time.perf_counter() - began
            yield part
            began = time.perf_counter()


class Anonymous:
    """The most memory of this process, while it is open, that is no file's."""

    def __init__(self) -> None:
        self.most, self.over = 0, threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        while not self.over.wait(0.05):
            lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
            self.most = max(self.most, *(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon")))

    def close(self) -> None:
        self.over.set()
        self.thread.join()


def forget(store: Path) -> None:
    """Let the system drop what it has of a store's files."""
    for path in store.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def seconds_of_pages(path: Path, pages: int) -> float:
    """To read so many pages of a file at random, by as many readers as training has; 20,000 of them are timed."""
    file = Stored(path, torch.uint8, (path.stat().st_size // mmap.PAGESIZE, mmap.PAGESIZE), start=0)
    places = torch.randint(file.shape[0], (min(20_000, pages),), generator=torch.Generator().manual_seed(1))
    rows = StoredRows(file)
    forget(path.parent)
    began = time.perf_counter()
    rows.read(places)
    return (time.perf_counter() - began) * pages / len(places)


def pages_of(sample: Sample, row_bytes: int) -> int:
    """The pages of features, offsets and senders that a sample touches."""
    features = (sample.nodes * row_bytes // mmap.PAGESIZE).unique()
    senders = (torch.cat(sample.edges) * 4 // mmap.PAGESIZE).unique()
    receivers = sample.nodes[: sample.graphs[0].num_receivers]
    return len(features) + len(senders) + len((receivers * 8 // mmap.PAGESIZE).unique())


def train(store: Path, cache: str, steps: int) -> tuple[list[float], list[float], Any, Any]:
    """Seconds and losses of some steps from cold files; the last batch with what computing takes, and the task."""
    forget(store)
    task = node_store(str(store), FANOUTS, cache)
    torch.manual_seed(0)
    model = GNN(GNNSettings("sage-mean", 64, 3, dropout=0.0), Features(CHANNELS, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), 0.003)

    def make(step: int) -> Any:
        return task.train_batch(SEEDS, torch.Generator().manual_seed(step))

    def update(batch: Any) -> float:
        loss = task.loss(model(*batch.inputs), batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    times: list[float] = []
    losses: list[float] = []
    with closing(Prefetch(make, steps, task.workers)) as ahead:
        for step in range(1, steps + 1):
            began = time.perf_counter()
            batch = ahead(step)
            losses.append(update(batch))
            times.append(time.perf_counter() - began)
    computing = []
    for _ in range(3):
        began = time.perf_counter()
        update(batch)
        computing.append(time.perf_counter() - began)
    return times, losses, (batch, statistics.median(computing)), task


def plainly(store: Path, steps: int) -> list[float]:
    """Seconds of drawing and reading in numba and numpy.memmap, on one thread, from cold files; the first compiles."""
    forget(store)
    opened = Store.open(store)
    offsets, senders = opened.graph._compact
    graph = Graph._of(opened.manifest.nodes, opened.manifest.nodes, offsets=offsets, senders=senders)
    with (store / "x.safetensors").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    mapped.madvise(mmap.MADV_RANDOM)  # as the store's own maps are: 128 kB are not read for each row
    x = np.frombuffer(mapped, np.float16, opened.manifest.nodes * CHANNELS, 256).reshape(-1, CHANNELS)
    train = opened.nodes_of("train")
    assert train is not None
    seeds = train[torch.randint(len(train), (SEEDS,), generator=torch.Generator().manual_seed(0))].unique()
    sample, times = numba_sampling.prepare(Sampling(graph, seeds, FANOUTS)), list[float]()
    for _ in range(steps):
        began = time.perf_counter()
        nodes, _ = sample()
        torch.from_numpy(x[nodes.numpy()]).float()
        times.append(time.perf_counter() - began)
    return times


def kill_builds(store: Path, command: list[str], times: int, seed: int) -> None:
    """Kill builds at random moments, those that have ended not counted: each leaves no store or a whole one."""
    began = time.perf_counter()
    subprocess.run(command, check=True)  # noqa: S603 (this program itself)
    seconds, draw, killed, whole = time.perf_counter() - began, np.random.default_rng(seed), 0, 0
    while killed < times:
        shutil.rmtree(store, ignore_errors=True)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:  # noqa: S603
            time.sleep(moment := draw.uniform(0, seconds))
            if process.poll() is not None:  # faster than the first
                seconds = moment
                continue
            process.kill()
        killed, whole = killed + 1, whole + store.exists()
        left = f"the whole store, {check_store(store).edges:,} edges" if store.exists() else "no store"
        print(f"kill {killed}: after {moment:.1f} of {seconds:.1f} s, {left}", flush=True)
    print(f"{times} builds killed: {whole} left the whole store, {times - whole} none")


def on_threads() -> None:
    """Sampling from a graph in memory, 1 million nodes and 10 million edges, on one thread and on two in turn."""
    draw = torch.Generator().manual_seed(0)
    graph = Graph.from_edge_index(torch.randint(10**6, (2, 10**7), generator=draw), 10**6)
    for count, fanouts in ((1024, (10, 10)), (4096, (15, 10)), (1024, (10, 10, 10))):
        seeds = torch.randperm(10**6, generator=draw)[:count]
        times: dict[int, list[float]] = {1: [], 2: []}
        for turn in range(30):
            for threads, own in times.items():
                torch.set_num_threads(threads)
                began = time.perf_counter()
                sample_neighbors(graph, seeds, fanouts, torch.Generator().manual_seed(turn))
                own.append(time.perf_counter() - began)
        one, two = (1000 * statistics.median(own[2:]) for own in times.values())
        print(f"{count} seeds, fan-outs {fanouts}: {one:.2f} ms on one thread, {two:.2f} ms on two: {one / two:.2f}")


def hollow(store: Path, nodes: int, degree: int) -> None:
    """A store of random senders whose features are all 0 and take no room on the disk."""
    store.mkdir(parents=True)
    draw = np.random.default_rng(0)
    offsets, senders = Writer(store, "offsets", torch.int64), Writer(store, "senders", torch.int32)
    for start in range(0, nodes, BLOCK):
        size = min(BLOCK, nodes - start)
        offsets.write(torch.arange(start, start + size) * degree)
        senders.write(torch.from_numpy(np.sort(draw.integers(0, nodes, (size, degree), np.int32)).reshape(-1)))
    offsets.write(torch.tensor([nodes * degree]))
    labels, train = Writer(store, "labels", torch.int16), Writer(store, "train", torch.int64)
    for start in range(0, nodes, BLOCK):
        numbers = torch.arange(start, min(start + BLOCK, nodes))
        labels.write((numbers * 7919 % CLASSES).short())
        train.write(numbers[numbers % 100 == 7])
    valid, test = Writer(store, "valid", torch.int64), Writer(store, "test", torch.int64)
    for n, part in enumerate((valid, test)):
        part.write(torch.arange(n, nodes, 1000))
    x = Stored(store / "x.safetensors", torch.float16, (nodes, CHANNELS))
    with x.path.open("wb") as file:
        file.write(x.header("x"))
        file.truncate(x.start + x.nbytes)
    arrays = {"offsets": offsets.finish(), "senders": senders.finish(), "x": x, "labels": labels.finish()}
    arrays |= {"train": train.finish(), "valid": valid.finish(), "test": test.finish()}
    classes = tuple(map(str, range(CLASSES)))
    (store / "manifest.json").write_text(Manifest(nodes, nodes * degree, arrays, classes).to_json())


def tables(store: Path, cache: str, steps: int) -> None:
    """Draw samples and read their features; print what that takes in memory and time."""
    opened = Store.open(store)
    assert opened.x is not None
    nodes, draw = opened.manifest.nodes, torch.Generator().manual_seed(0)
    rows = StoredRows(opened.x, parse_size(cache))
    drawing, reading = list[float](), list[float]()
    with closing(Anonymous()) as memory:
        time.sleep(0.1)
        before = memory.most
        for _ in range(steps):
            seeds = torch.randint(nodes, (SEEDS,), generator=draw).unique()
            began = time.perf_counter()
            sample = sample_neighbors(opened.graph, seeds, FANOUTS, draw)
            drawn = time.perf_counter()
            rows.read(sample.nodes)
            reading.append(time.perf_counter() - drawn)
            drawing.append(drawn - began)
        time.sleep(0.1)
    later = steps // 2
    print(
        f"{nodes:,} nodes, cache {cache}: {memory.most / 1e6:,.0f} MB anonymous, {before / 1e6:,.0f} of it before the "
        f"first step; drawing {1000 * statistics.median(drawing[later:]):.0f} ms (least {1000 * min(drawing):.0f}), "
        f"reading {1000 * statistics.median(reading[later:]):.0f} ms (least {1000 * min(reading):.0f}); "
        f"{rows.hits:,} hits, {len(sample.nodes):,} nodes in the last sample",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--caches", nargs="*", default=["0", "2GB", "8GB"])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--plain", type=int, default=3)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0, help="of the moments at which builds are killed")
    parser.add_argument("--threads", action="store_true")
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--hollow", action="store_true")
    parser.add_argument("--dense", type=int, default=caches.DENSE)
    args = parser.parse_args()
    store, nodes, count = args.folder / "papers", int(NODES * args.scale), int(EDGES * args.scale)
    if args.threads:
        on_threads()
        return
    if args.tables:
        caches.DENSE = sampling.DENSE = args.dense
    if args.tables or args.hollow:
        store = args.folder / "hollow"
        if not store.exists():
            hollow(store, nodes, EDGES // NODES)
    if args.tables:
        for cache in args.caches:
            tables(store, cache, args.steps)
        return
    if args.kills:
        how = [str(args.folder), "--scale", str(args.scale), "--memory", args.memory, "--caches", "--plain", "0"]
        kill_builds(store, [sys.executable, "-m", "benchmarks.studies.store", *how], args.kills, args.seed)
        return
    if not store.exists():
        with closing(Anonymous()) as memory:
            began, given = time.perf_counter(), (Timed(edges(nodes, count)), Timed(columns(nodes)))
            build_store(store, *given, parse_size(args.memory), features=torch.float16)
            seconds, making = time.perf_counter() - began, sum(part.seconds for part in given)
        print(
            f"built {nodes:,} nodes, {count:,} edges: {seconds:.0f} s, of which {making:.0f} s to generate them; "
            f"{in_words(memory.most)} anonymous",
            flush=True,
        )
    for cache in args.caches:
        with closing(Anonymous()) as memory:
            times, losses, (batch, computing), task = train(store, cache, args.steps)
        later = times[len(times) // 2 :]
        touched = pages_of(batch.graph, task.rows.row_bytes)
        reading = seconds_of_pages(store / "x.safetensors", touched)
        rate = task.rows.hits / max(1, task.rows.hits + task.rows.reads)
        print(
            f"cache {cache}: step {1000 * statistics.median(later):.0f} ms (first {1000 * times[0]:.0f}); computing "
            f"{1000 * computing:.0f} ms, reading {touched:,.0f} pages {1000 * reading:.0f} ms; hits {rate:.1%}, "
            f"{in_words(task.rows.reads * task.rows.row_bytes)} read; {in_words(memory.most)} anonymous; "
            f"loss {losses[0]:.3f} -> {statistics.mean(losses[-5:]):.3f}",
            flush=True,
        )
        del batch, task  # not to be counted as the next one's
    if args.plain:
        times = plainly(store, args.plain)
        print(f"numba and numpy.memmap, drawing and reading alone: {1000 * statistics.median(times[1:]):.0f} ms a step")


if __name__ == "__main__":
    main()
