"""How large the tiles of a kernel on edges are: a few candidates, the fastest of which is measured once.

Once for each card, driver, PyTorch, Triton and version of these sources.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from edgewise.kernels.backends.cuda import programs as gpu
from edgewise.kernels.backends.cuda.programs import INTERPRETED

LANE, ROW = 16, 2048  # bytes that a thread can read at once, and those of a row that a program holds
WORTH = 1 << 26  # bytes of rows that are gathered in a call that is long enough to be timed

Result = TypeVar("Result")


@dataclass(frozen=True)
class Tile:
    """Edges of a row that are read at once, and warps of a program."""

    edges: int
    warps: int


@dataclass(frozen=True)
class Heads:
    """How a row of heads and channels is laid out over a program: what the kernels are compiled for."""

    heads: int  # of a program, a power of two
    groups: int  # of heads, each of them a program's
    bytes: int  # of a program's row
    lane: int  # bytes of it that a thread reads at once

    @classmethod
    def of(cls, heads: int, channels: int, size: int) -> Heads:
        """For numbers of `size` bytes.

        >>> Heads.of(3, 48, 2), Heads.of(16, 128, 4)
        (Heads(heads=4, groups=1, bytes=512, lane=16), Heads(heads=4, groups=4, bytes=2048, lane=16))
        """
        width = power_of_two(channels) * size
        held = max(1, min(power_of_two(heads), ROW // width))
        return cls(held, -(-heads // held), held * width, max(4, vector(channels, size) * size))

    def rows(self, tile: Tile) -> int:
        """Rows side by side, so that every lane has its part of one."""
        return 64 if INTERPRETED else max(1, 32 * tile.warps * self.lane // self.bytes)

    def candidates(self, size: int) -> list[Tile]:
        """The default first: 8 KiB in flight for each warp. More warps than a row needs are fewer programs to start."""
        if INTERPRETED:
            return [Tile(16, 1)]
        least, usual = min(8, max(1, self.bytes // (32 * self.lane))), 2 * size
        warps = {least, min(8, 4 * least)}
        return [Tile(edges, n) for n in sorted(warps) for edges in (usual, 12 - usual)]


def power_of_two(n: int) -> int:
    """The smallest one that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def vector(channels: int, size: int) -> int:
    """Numbers that can be read at once from rows of so many channels."""
    return math.gcd(channels, LANE // size)


_fastest: dict[int, dict[str, Any]] = {}  # of each card, by kernel and kind of call: a tile's edges and warps


def run(key: str, candidates: list[Tile], moved: int, device: torch.device, launch: Callable[[Tile], Result]) -> Result:
    """Launch with the fastest of the candidates, the first of which is the default.

    It is measured by the first call of that key that moves enough bytes and is not being captured, and cached for later
    processes. A tile sets the order of sums: under `torch.use_deterministic_algorithms` it is always the default.
    """
    if len(candidates) == 1 or device.type != "cuda" or torch.are_deterministic_algorithms_enabled():
        return launch(candidates[0])
    index = torch.cuda.current_device() if device.index is None else device.index
    if (measured := _fastest.get(index)) is None:
        measured = _fastest[index] = gpu.remembered("tiles", index)
    tile = next((one for one in candidates if [one.edges, one.warps] == measured.get(key)), None)
    if tile is None and moved >= WORTH and not torch.cuda.is_current_stream_capturing():
        tile = min(candidates, key=lambda tile: _milliseconds(lambda: launch(tile)))
        measured[key] = [tile.edges, tile.warps]
        gpu.remember("tiles", index, key, measured[key])
    return launch(tile or candidates[0])


def _milliseconds(work: Callable[[], object], times: int = 5) -> float:
    """The fastest of a few runs after two first ones."""
    measured = []
    for n in range(times + 2):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        if n >= 2:
            measured.append(start.elapsed_time(end))
    return min(measured)
