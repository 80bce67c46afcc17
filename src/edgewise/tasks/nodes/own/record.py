"""What a run keeps of one's own data: the part of each node by its name, and all that was fitted to them."""

import csv
import hashlib
import json
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import DataError
from edgewise.files import read_bytes, read_json, reading, write_file
from edgewise.tables.encoding import Encoding, from_plain, to_plain
from edgewise.tables.features import Kind as ColumnKind
from edgewise.tables.lines import lines_of
from edgewise.tasks.core.splits import SPLITS, Split, Splits
from edgewise.tasks.nodes.own.given import Given
from edgewise.tasks.nodes.own.target import Kind, Target

SPLIT, DATA = "split.csv", "data.json"
MAX_BYTES = 1 << 28
LISTED = 5  # nodes or levels in a sentence


@dataclass(frozen=True)
class Fitted:
    """What was fitted to the data that trained a run: it is applied as it is to all later ones.

    Args:
        target: What the labels are.
        columns: The encodings of the nodes' columns; of an array there are none.
        edges: Those of the edges' columns.
        widths: The number of features of nodes and of edges.
        scale: The mean and the deviation of the values that train, where the target is a number.
    """

    target: Target
    columns: tuple[Encoding, ...]
    edges: tuple[Encoding, ...]
    widths: tuple[int, int]
    scale: tuple[float, float] = (0.0, 1.0)

    @property
    def kinds(self) -> tuple[dict[str, ColumnKind], dict[str, ColumnKind]]:
        """The kinds of the columns of nodes and of edges, by name."""
        return {one.name: one.kind for one in self.columns}, {one.name: one.kind for one in self.edges}

    def known(self, given: Given) -> Tensor:
        """Which nodes have a label, [N]."""
        labels = self.target.values(given.labels)
        return labels >= 0 if self.target.kind == "class" else ~labels.isnan()

    def to_plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        target = {"kind": self.target.kind, "classes": list(self.target.classes), "why": self.target.why}
        scale = dict(zip(("mean", "deviation"), self.scale, strict=True)) if self.target.kind == "number" else {}
        columns = {"columns": to_plain(self.columns), "edge_columns": to_plain(self.edges)}
        return {"target": target | scale, **columns, "features": list(self.widths)}

    @classmethod
    def from_plain(cls, content: dict[str, Any]) -> Self:
        """What `to_plain` wrote."""
        target = content["target"]
        made = Target(target["kind"], tuple(map(str, target["classes"])), str(target["why"]))
        scale = float(target.get("mean", 0.0)), float(target.get("deviation", 1.0))
        if (
            made.kind not in get_args(Kind)
            or (made.kind == "class") != bool(made.classes)
            or not all(map(isfinite, scale))
        ):
            raise ValueError(f"the target {made}")
        nodes, edges = map(int, content["features"])
        return cls(made, from_plain(content["columns"]), from_plain(content["edge_columns"]), (nodes, edges), scale)


def write(run: Path, given: Given, splits: Splits, fitted: Fitted) -> None:
    """Write both files into a run folder."""
    with (run / SPLIT).open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["node", "part"])
        rows.writerows((given.name(node), split) for split in SPLITS for node in splits[split].tolist())
    content = {"nodes": len(given), "edges": given.edges.shape[1], "named": given.names is not None}
    content |= {"files": {file.name: about(file) for file in given.files}} | fitted.to_plain()
    write_file(run / DATA, json.dumps(content, indent=1, ensure_ascii=False).encode())


def about(file: Path) -> dict[str, Any]:
    """A file's size in bytes, and its sha256."""
    with file.open("rb") as content:
        return {"bytes": file.stat().st_size, "sha256": hashlib.file_digest(content, "sha256").hexdigest()}


def read(run: Path) -> Fitted:
    """What a run folder keeps, but for the split."""
    content = read_json(run / DATA, "what a run keeps of its data")
    with reading(run / DATA, "what a run keeps of its data"):
        return Fitted.from_plain(content)


def parts(run: Path, given: Given, fitted: Fitted) -> tuple[Splits, list[str]]:
    """The run's split among the nodes that are given now, and what has changed in the data since, in sentences.

    Errors      DataError: a file that is no such record; data without a node of one of the parts
    """
    content = read_json(run / DATA, "what a run keeps of its data")
    with reading(run / DATA, "what a run keeps of its data"):
        before = {str(name): (int(one["bytes"]), str(one["sha256"])) for name, one in content["files"].items()}
        named, count = bool(content["named"]), int(content["nodes"])
    now = {file.name: about(file) for file in given.files}
    changes = [
        f"{name} has changed since the run was trained ({before[name][0]:,} bytes then, {now[name]['bytes']:,} now)"
        for name in before
        if name in now and now[name]["sha256"] != before[name][1]
    ]
    changes += [f"{name} was read when the run was trained, and is not now" for name in before if name not in now]
    if named != (given.names is not None):
        raise DataError(f"{given.place}: the run's nodes were {'known by name' if named else 'rows without a name'}")
    splits, lacking = _splits(run, given)
    if not changes:
        return splits, []
    if not named and len(given) != count:
        changes.append(f"nodes are known by their rows, which must not have moved: {len(given):,} now, {count:,} then")
    if lacking:
        changes.append(f"{listed(lacking)} of the run's split are no longer there")
    known, inside = fitted.known(given), np.zeros(len(given), dtype=bool)
    for split, rows in splits.items():
        inside[rows.numpy()] = True
        if blank := [given.name(node) for node in rows[~known[rows]].tolist()]:
            changes.append(f"{listed(blank)} of the {split} split have no label now")
            splits[split] = rows[known[rows]]
    if new := int((known.numpy() & ~inside).sum()):
        changes.append(f"{new:,} nodes with a label are in no part of the run's split: nothing is measured by them")
    if strange := fitted.target.strangers(given.labels):
        changes.append(f"the labels {listed(strange)} are none of the run's: nodes with one count as unlabelled")
    return splits, changes


def _splits(run: Path, given: Given) -> tuple[Splits, list[str]]:
    """The nodes of each part, and the names of those that are no longer there."""
    rows_of, lacking = given.numbers(), list[str]()
    parts: dict[Split, list[int]] = {split: [] for split in SPLITS}
    content = read_bytes(run / SPLIT, MAX_BYTES)
    with reading(run / SPLIT, "the split of a run"):
        rows = csv.reader(lines_of(run / SPLIT, content), strict=True)
        next(rows)
        for name, part in rows:
            if name in rows_of:
                parts[part].append(rows_of[name])  # type: ignore[index]
            else:
                lacking.append(name)
    return {split: torch.tensor(nodes, dtype=torch.int64) for split, nodes in parts.items()}, lacking


def listed(names: list[str]) -> str:
    """Some names, the first ones in full."""
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    return ", ".join(name[:40] for name in names[:LISTED]) + more
