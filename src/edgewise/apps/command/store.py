"""`edgewise store`: graphs on disk. PyTorch loads when the command runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewise.errors import ConfigError, counted
from edgewise.memory import in_words, parse_size

if TYPE_CHECKING:
    from edgewise.graphs.layout import Manifest


def store(
    what: str,
    store: str | None,
    edges: Sequence[str],
    nodes: Sequence[str],
    out: str | None,
    memory: str | None,
    undirected: bool,
    ends: str | None,
    features: str | None,
) -> dict[str, Any]:
    """Carry out `store build`, `store info` or `store check`."""
    import torch

    from edgewise.data.building import build_store
    from edgewise.graphs.layout import Manifest, check_store

    if what == "build":
        if store or not edges or not out:
            raise ConfigError("store build needs --edges FILE ... and --out STORE")
        columns = [name.strip() for name in ends.split(",")] if ends else []
        dtype = None if features is None else getattr(torch, features)
        began, size = time.perf_counter(), parse_size("2GB" if memory is None else memory)
        manifest = build_store(Path(out), edges, nodes, size, undirected, dtype, columns)
        seconds = time.perf_counter() - began
        print(f"{out}: {manifest.edges / max(seconds, 1e-9):,.0f} edges a second")
        return show(Path(out), manifest) | {"seconds": seconds}
    if not store or any((edges, nodes, out, undirected, ends, features)) or memory is not None:
        raise ConfigError(f"store {what} takes the folder of a store, and no option of build")
    summary = show(Path(store), check_store(Path(store)) if what == "check" else Manifest.read(Path(store)))
    if what == "check":
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
