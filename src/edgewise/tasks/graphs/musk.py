"""Musk1: which molecules smell of musk? Each is a bag of shapes that it can take, and one that binds is enough."""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise.data.splits import FOLDS, Splits, dealt
from edgewise.errors import ConfigError, DataError
from edgewise.files import read_bytes, reading
from edgewise.graphs import complete
from edgewise.tasks.core.source import Remote, find_folder
from edgewise.tasks.core.task import Pattern
from edgewise.tasks.graphs.prediction import GraphClassification, Graphs, Member

FILE = Remote(
    name="musk1.mat",
    url="https://raw.githubusercontent.com/yanyongluan/MINNs/c2aed96d95442fe6cd949ab64cf817de2ae18da5/dataset/musk1.mat",
    sha256="70df92db207795ce7d3a8212d8f945a6b4b2d29eff2a5be1cfa11e8e36d02e9e",
    max_bytes=1 << 20,
)
MAX_UNPACKED = 1 << 22  # bytes; a cell of 8 can become an object of 100
COMPRESSED = 15  # a variable's type, where it is packed


@dataclass(frozen=True)
class Bags:
    """Examples that are sets of instances: features x of each bag [n, C], its class in labels [B], and the names."""

    x: tuple[Tensor, ...]
    labels: Tensor
    names: tuple[str, ...]
    classes: tuple[str, ...]


class BagClassification(GraphClassification):
    """Classification of bags: each is a complete graph of its instances.

    The bags of one fold test; the others train, and validate too, because no bag can be spared: the best weights are
    then those that fit the training bags best. Each fold has its share of every class.

    Errors      a fold that there is none of is a `ConfigError`.
    """

    unit = "bags"

    def __init__(self, name: str, bags: Bags, fold: int, seed: int) -> None:
        if not 0 <= fold < FOLDS or not 0 <= seed < 1 << 32:
            raise ConfigError(f"fold must be 0 to {FOLDS - 1} and seed 0 to 2**32 - 1, not {fold} and {seed}")
        folds = dealt(bags.labels, seed)
        train = torch.cat([part for number, part in enumerate(folds) if number != fold])
        seen = torch.cat([bags.x[bag] for bag in train.tolist()])
        self.scale = seen.mean(0), seen.std(0).clamp(min=1e-6)
        x = (torch.cat(bags.x) - self.scale[0]) / self.scale[1]
        members = tuple(complete(len(instances)) for instances in bags.x)
        splits: Splits = {"train": train, "valid": train, "test": folds[fold]}
        super().__init__(name, Graphs(members, x, bags.labels, splits, bags.classes, bags.names))
        self.contents = f"{len(members)} bags of instances"

    @property
    def typical(self) -> str:
        return self.graphs.names[0]

    def member(self, request: str, pattern: Pattern) -> Member:
        """The bag of that name, for instance MUSK-188."""
        name, names = request.strip(), self.graphs.names
        if name not in names:
            raise DataError(f"no bag {name[:80]!r} in {self.name}: they are {', '.join(names)}")
        bag = names.index(name)
        split = next(split for split, part in self.graphs.splits.items() if bag in part.tolist())
        known = {"bag": name, "instances": self.graphs.members[bag].num_receivers, "split": split}
        return self.numbered(bag, pattern)._replace(known=known)

    def preprocessing(self) -> dict[str, Any]:
        mean, deviation = (part.tolist() for part in self.scale)
        return super().preprocessing() | {"x": "(x - mean) / deviation", "mean": mean, "deviation": deviation}


def musk(fold: int = 0, seed: int = 0, folder: str | None = None, download: bool = False) -> BagClassification:
    """Distinguish musks from other molecules by the shapes that they can take: 92 bags of 476 shapes with 166 features.

    One tenth of the bags tests, with its share of musks; the others train, and validate. The features are standardised
    by the training bags. The accuracy to report is the mean over all ten folds.

    Reference   Dietterich, Lathrop and Lozano-Pérez 1997. Licence: CC BY 4.0 (UCI)

    Args:
        fold: Which tenth of the bags tests, 0 to 9.
        seed: Chooses the folds.
        folder: Where musk1.mat lies (default: musk1 in $EDGEWISE_DATA, then the cache).
        download: Fetch it if it is missing, over TLS and verified by its hash.

    Errors      a file that is missing, damaged or of another content is a `DataError` that names it.
    """
    return BagClassification("musk1", read_bags(find_folder("musk1", [FILE], folder, download) / FILE.name), fold, seed)


def check_unpacked(content: bytes) -> None:
    """Refuse a MATLAB file whose packed variables are larger than `MAX_UNPACKED`, before any of it is read."""
    place, left = 128, MAX_UNPACKED
    while place + 8 <= len(content):
        kind, size = struct.unpack_from("<II" if content[126:128] == b"IM" else ">II", content, place)
        if kind == COMPRESSED:
            unpacked = zlib.decompressobj().decompress(content[place + 8 : place + 8 + size], left + 1)
            left -= len(unpacked)
            if left < 0:
                raise ValueError(f"unpacks to more than {MAX_UNPACKED:,} bytes")
        place += 8 + size


def read_bags(path: Path) -> Bags:
    """A multiple-instance data set in the MATLAB format of PRTools: data, nlab and ident.milbag.

    Errors      a file that is no such data set is a `DataError` that names it.
    """
    content = read_bytes(path, FILE.max_bytes)
    from scipy.io import loadmat

    with reading(path, "a multiple-instance data set of PRTools"):
        check_unpacked(content)
        file: Any = io.BytesIO(content)
        fields = loadmat(file)["x"][0, 0]
        x = torch.from_numpy(fields["data"].astype("float32"))
        labels = fields["nlab"].astype("int64").ravel() - 1
        classes = tuple(str(name).strip() for name in fields["lablist"][0, 0])
        owners = [str(name).strip() for name in fields["ident"][0, 0]["milbag"]]
    if not len(x) == len(labels) == len(owners) or not len(x) or not bool(x.isfinite().all()):
        raise DataError(f"{path}: {len(x)} instances, {len(labels)} labels and {len(owners)} bags do not fit, or NaN")
    if labels.min() < 0 or labels.max() >= len(classes):
        raise DataError(f"{path}: labels {labels.min() + 1} to {labels.max() + 1}, but {len(classes)} classes")
    names = tuple(dict.fromkeys(owners))
    bags: dict[str, list[int]] = {name: [] for name in names}
    for row, owner in enumerate(owners):
        bags[owner].append(row)
    members = [*bags.values()]
    # A bag is positive where one of its instances is.
    of_bags = torch.tensor([int(labels[rows].max()) for rows in members])
    return Bags(tuple(x[rows] for rows in members), of_bags, names, classes)
