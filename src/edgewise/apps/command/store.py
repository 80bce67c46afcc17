"""`edgewise store`: graphs on disk. PyTorch loads when the command runs."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewise.errors import ConfigError, counted
from edgewise.memory import in_words, parse_size

if TYPE_CHECKING:
    from edgewise.graphs.store.layout import Manifest

STORE = """Build a graph on disk that may be larger than memory, show what one holds, or check it by its hashes.

    edgewise store build --edges edges-1.parquet edges-2.parquet --nodes nodes.csv --out papers --memory 4GB
    edgewise store info papers
    edgewise store check papers

Files are CSV, Parquet, .npy or safetensors. Edges: columns `sender` and `receiver` (or `source` and `target`, `from`
and `to`, ..., or what --ends says) and attributes, an array [2, E] or [E, 2], or `edge_index` and `edge_attr`. Nodes:
columns `node` or `id` (a name), `label`, `split` and features, an array [N, C], or `x`, `labels`, `train`, `valid` and
`test`."""
FEATURES = ("float32", "float16", "bfloat16", "int8")


def add_options(command: argparse.ArgumentParser) -> None:
    """What `edgewise store` takes."""
    command.add_argument("what", metavar="WHAT", choices=("build", "info", "check"), help="build, info or check")
    command.add_argument("store", nargs="?", metavar="STORE", help="of info and check: the store's folder")
    command.add_argument("--edges", nargs="+", default=[], metavar="FILE", help="of build: who listens to whom")
    command.add_argument("--nodes", nargs="+", default=[], metavar="FILE", help="of build: what is known of the nodes")
    command.add_argument("--out", metavar="STORE", help="of build: the folder to write")
    command.add_argument("--memory", metavar="SIZE", help="of build: what it may take (default: 2GB)")
    command.add_argument("--undirected", action="store_true", help="of build: each edge both ways, and once")
    command.add_argument("--ends", metavar="FROM,TO", help="of build: the edges' columns of senders and receivers")
    command.add_argument("--features", choices=FEATURES, help="of build: their type (default: the files' own)")


def store(args: argparse.Namespace) -> dict[str, Any]:
    """Carry out `store build`, `store info` or `store check`."""
    import torch

    from edgewise.data.building import build_store
    from edgewise.graphs.store.layout import Manifest, check_store

    if args.what == "build":
        if args.store or not args.edges or not args.out:
            raise ConfigError("store build needs --edges FILE ... and --out STORE")
        ends = [name.strip() for name in args.ends.split(",")] if args.ends else []
        features = None if args.features is None else getattr(torch, args.features)
        began, out = time.perf_counter(), Path(args.out)
        memory = parse_size("2GB" if args.memory is None else args.memory)
        manifest = build_store(out, args.edges, args.nodes, memory, args.undirected, features, ends)
        seconds = time.perf_counter() - began
        print(f"{out}: {manifest.edges / max(seconds, 1e-9):,.0f} edges a second")
        return show(out, manifest) | {"seconds": seconds}
    of_build = ("edges", "nodes", "out", "memory", "undirected", "ends", "features")
    if not args.store or any(getattr(args, name) not in (None, False, []) for name in of_build):
        raise ConfigError(f"store {args.what} takes the folder of a store, and no option of build")
    out = Path(args.store)
    summary = show(out, check_store(out) if args.what == "check" else Manifest.read(out))
    if args.what == "check":
        print("every byte is what its hash says")
    return summary


def show(store: Path, manifest: Manifest) -> dict[str, Any]:
    """Print what a store holds."""
    sizes = {name: stored.nbytes for name, stored in manifest.arrays.items()}
    total = sum(sizes.values())
    print(f"{store}: {counted(manifest.nodes, 'node')}, {counted(manifest.edges, 'edge')}, {in_words(total)}")
    for name, stored in manifest.arrays.items():
        kind = str(stored.dtype).removeprefix("torch.")
        print(f"  {name:10} {kind:9} {' x '.join(f'{size:,}' for size in stored.shape):24} {in_words(sizes[name])}")
    if manifest.classes:
        print(f"  classes: {', '.join(manifest.classes[:10])}{', ...' if len(manifest.classes) > 10 else ''}")
    arrays = {name: list(stored.shape) for name, stored in manifest.arrays.items()}
    return {"store": str(store), "nodes": manifest.nodes, "edges": manifest.edges, "bytes": total, "arrays": arrays}
