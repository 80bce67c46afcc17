"""Rows of an array on disk: those that are wanted are read by many threads at once, those that recur stay in memory."""

from typing import Any

import torch
from torch import Tensor

from edgewise import native
from edgewise.errors import DataError
from edgewise.graphs.checks import index_tensor
from edgewise.graphs.layout import Stored

READERS = 16  # threads that wait for pages at once: the queue that a disk works on


class StoredRows:
    """An array [N, ...] on disk, of which `rows[numbers]` reads some rows.

    Symbols     cache = bytes of rows that stay in memory: those that were read again since they were last considered
                (second chance: a clock); hits, reads = rows that were there, and that were read; row_bytes of each
    Shapes      numbers [M] integers -> [M, ...], float32 where the store has fewer bits
    Errors      DataError for a number that is out of range
    Edge cases  the same bits whatever the cache; several threads may read at once
    Cost        memory of the cache; besides it, some 60 bytes for each row in it

    Example
        >>> import tempfile
        >>> from pathlib import Path
        >>> from edgewise.data import build_store
        >>> from edgewise.graphs import Store
        >>> place = Path(tempfile.mkdtemp()) / "three"
        >>> manifest = build_store(place, [], [{"x": torch.tensor([[1.0], [2.0], [3.0]])}])
        >>> rows = StoredRows(Store.open(place).x, cache=1000)
        >>> rows[torch.tensor([2, 0])].tolist(), rows[torch.tensor([0])].tolist()
        ([[3.0], [1.0]], [[1.0]])
        >>> rows.hits, rows.reads
        (1, 2)
    """

    def __init__(self, stored: Stored, cache: int = 0) -> None:
        self.stored, self.mapped, self.hits, self.reads = stored, stored.mapped(), 0, 0
        self._before = 0, 0
        self.shape, self.row_bytes = torch.Size(stored.shape), stored.row_bytes
        self.rows: Any = None
        if native.library is not None and self.row_bytes:
            at = self.mapped.data_ptr(), self.shape[0], self.row_bytes
            self.rows = native.library.RowCache(*at, cache // self.row_bytes)

    @property
    def device(self) -> torch.device:
        return self.mapped.device

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, numbers: Tensor) -> Tensor:
        found = self.read(numbers)
        return found if found.dtype.itemsize >= 4 else found.float()

    def read(self, numbers: Tensor) -> Tensor:
        """The rows in the type that is stored."""
        numbers = index_tensor(numbers, "numbers", axes=1).cpu().contiguous()
        if self.rows is None:
            outside = ((numbers < 0) | (numbers >= len(self))).nonzero()
            hits = -1 - int(outside[0]) if len(outside) else 0
            found = self.mapped[numbers.new_empty(0) if hits else numbers]
        else:
            found = torch.empty((len(numbers), *self.shape[1:]), dtype=self.stored.dtype)
            hits = self.rows.gather(READERS, numbers.data_ptr(), len(numbers), found.data_ptr())
        if hits < 0:
            raise DataError(f"{self.stored.path}: there is no row {int(numbers[-1 - hits])} of {len(self):,}")
        self.hits, self.reads = self.hits + hits, self.reads + len(numbers) - hits
        return found

    def measured(self) -> dict[str, float]:
        """Since the last call: the share of rows that were in the cache, and the bytes that were read."""
        hits, reads = self.hits - self._before[0], self.reads - self._before[1]
        self._before = self.hits, self.reads
        return {"cache_hits": hits / max(1, hits + reads), "bytes_read": reads * self.row_bytes}
