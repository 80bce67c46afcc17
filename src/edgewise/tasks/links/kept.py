"""What a run keeps of the links of one's own graph: the part of each, and the pairs without a link, by their names."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from edgewise.errors import DataError, counted
from edgewise.files import reading
from edgewise.graphs import Graph
from edgewise.graphs.make.links import LinkCut, links_of
from edgewise.tasks.nodes.own.given import Given
from edgewise.tasks.own import record
from edgewise.tasks.own.record import Fitted

PARTS = ("train", "valid", "valid_none", "test", "test_none")  # as a `LinkCut` calls them


def write_cut(run: Path, given: Given, cut: LinkCut, fitted: Fitted) -> None:
    """Write the parts, what was fitted to the nodes, and the sizes and hashes of the files."""

    def rows() -> Iterator[tuple[str, str, str]]:
        for part in PARTS:
            for i, j in getattr(cut, part).T.tolist():
                yield record.name(given, i), record.name(given, j), part

    record.write_parts(run, given, fitted, ("node", "node", "part"), rows())


def read_cut(run: Path, given: Given, graph: Graph) -> tuple[LinkCut, list[str]]:
    """The run's cut among the links that there are now, and what has changed in the data since, in sentences.

    Symbols     graph = all links of today
    Errors      DataError: files that are no such record, or no link of a part that is still there
    Edge cases  a link that is no longer there leaves its part, a pair that has become linked too; new links are in no
                part, and in no graph that the model reads
    """
    changes, rows_of, nodes = record.changes_of(run, given), given.number_of, len(given)
    ends: dict[str, list[tuple[int, int]]] = {part: [] for part in PARTS}
    lacking: set[str] = set()
    with reading(run / record.SPLIT, "the cut of a run's links"):
        for i, j, part in record.read_parts(run):
            if i in rows_of and j in rows_of:
                ends[part].append((rows_of[i], rows_of[j]))
            else:
                lacking.update({i, j} - rows_of.keys())
    if lacking:
        changes.append(f"no longer there, of the run's split: {record.listed(sorted(lacking))}")
    pairs = {part: torch.tensor(some, dtype=torch.int64).reshape(-1, 2).sort(1).values.T for part, some in ends.items()}
    if changes:
        now = _codes(links_of(graph), nodes)
        for part, those in pairs.items():
            linked = torch.isin(_codes(those, nodes), now)
            pairs[part] = those[:, ~linked if part.endswith("_none") else linked]
            if gone := those.shape[1] - pairs[part].shape[1]:
                what, now_are = ("pair", "linked now") if part.endswith("_none") else ("link", "no longer there")
                changes.append(f"left out of {part.removesuffix('_none')}: {counted(gone, what)}, {now_are}")
        own = torch.cat([_codes(pairs[part], nodes) for part in ("train", "valid", "test")])
        if new := int((~torch.isin(now, own)).sum()):
            changes.append(f"{counted(new, 'link')} in no part of the run's split, read by no model")
    if empty := [part for part in PARTS if not pairs[part].shape[1]]:
        raise DataError(_nothing_left(run, given, empty[0]))
    train = pairs["train"]
    seen = Graph.from_edge_index(torch.cat([train, train.flip(0)], 1), nodes)
    return LinkCut(seen, *(pairs[part] for part in PARTS)), changes


def _codes(pairs: Tensor, nodes: int) -> Tensor:
    """A number for each pair of a low and a high one."""
    return pairs[0] * nodes + pairs[1]


def _nothing_left(run: Path, given: Given, part: str) -> str:
    what = "pairs without a link" if part.endswith("_none") else "links"
    return f"{given.place}: of the {what} of {run}, none of the {part.removesuffix('_none')} split is there"
