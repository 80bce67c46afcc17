"""How kernels read tensors: the batch as one axis in front, the numbers of a row side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from weakref import ref

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from edgewise.errors import ShapeError
from edgewise.kernels.call import Attend
from edgewise.kernels.operator.operator import DTYPES


def batched(x: Tensor | None, call: Attend, last: int) -> Tensor | None:
    """Tensors of edges, [E, ...] or [*, E, ...], with the batch as one axis in front of the `last` ones."""
    if x is None:
        return None
    return flat(x if x.ndim == last else x.expand(*call.v.shape[:-3], *x.shape[-last:]), last)


def flat(x: Tensor, last: int) -> Tensor:
    """The leading batch as one axis in front of the `last` ones."""
    leading = x.ndim - last
    return x if leading == 1 else x.unsqueeze(0) if leading == 0 else x.flatten(0, leading - 1)


def unflat(y: Tensor, call: Attend) -> Tensor:
    """A result [B, I, H, D] with the call's own batch."""
    v = call.v
    return y.squeeze(0) if v.ndim == 3 else y.unflatten(0, v.shape[:-3]) if v.ndim > 4 else y


def heads_first(x: Tensor) -> Tensor:
    """[*, N, H, C] -> [B, H, N, C], as PyTorch's attention reads it."""
    return flat(x, 3).transpose(1, 2)


def rows_contiguous(x: Tensor) -> Tensor:
    """The same numbers, where needed copied so that those of a row follow each other."""
    return x if x.ndim == 4 and x.stride(3) == 1 and (x.stride(2) == x.shape[3] or x.shape[2] == 1) else x.contiguous()


def side_by_side(x: Tensor, members: int, axis: int) -> Tensor:
    """[B, N, H, C] with m members of the batch in one row: [B / m, N, m H, C] for axis 2, [B / m, N, H, m C] for 3."""
    return x if members == 1 else x.unflatten(0, (-1, members)).movedim(1, axis).flatten(axis, axis + 1)


def apart(y: Tensor, members: int, axis: int) -> Tensor:
    """The batch again of what `side_by_side` made of it."""
    return y if members == 1 else y.unflatten(axis, (members, -1)).movedim(axis, 1).flatten(0, 1).contiguous()


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the CPU kernels' sums."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def widened(x: Tensor) -> Tensor:
    """Half precisions in float32, where sums neither overflow nor stall; other numbers as they are."""
    return x.float() if x.is_floating_point() and x.dtype.itemsize < 4 else x


def check_rows(
    name: str, x: Tensor | None, shape: tuple[int | None, ...], dtype: torch.dtype, *, strided: bool = False
) -> None:
    """Raise ShapeError unless a tensor has that shape, None for any size, and dtype.

    Symbols     strided = whether its kernel copies rows whose numbers do not lie side by side
    """
    if x is None:
        raise ShapeError(f"{name} is missing")
    fits = x.ndim == len(shape) and all(size in (None, own) for size, own in zip(shape, x.shape, strict=True))
    if not fits or not (strided or (rows_contiguous(x) if x.ndim == 4 else x.contiguous()) is x):
        right = ", ".join("*" if size is None else str(size) for size in shape)
        raise ShapeError(
            f"{name} is {list(x.shape)} with strides {list(x.stride())}, but must be [{right}], row by row"
        )
    if x.dtype != dtype or x.device.type != "cpu":
        raise ShapeError(f"{name} is {x.dtype} on {x.device}, but must be {dtype} on the CPU")


def expect(right: bool, wanted: str) -> None:
    """Raise ShapeError, with what would be right, where something is not."""
    if not right:
        raise ShapeError(wanted)


def dtype_of(name: str, x: Tensor) -> torch.dtype:
    """ShapeError for a dtype that the CPU kernels do not read, and for no numbers, which they never see."""
    expect(x is not None and x.numel() > 0, f"{name} is missing or empty")  # PyTorch lets a None pass as a Tensor
    expect(x.dtype in DTYPES, f"{name} is {x.dtype}, but must be one of {', '.join(map(str, DTYPES))}")
    return x.dtype


def check_structure(name: str, structure: Sequence[Tensor], rows: int, lengths: tuple[int, ...]) -> tuple[int, int]:
    """The receivers and edges of a structure of so many tensors; ShapeError unless kernels stay within `rows` rows."""
    right = " or ".join(map(str, lengths))
    expect(len(structure) in lengths, f"{name} has {len(structure)} tensors, but must have {right}")
    check_edges(rows, *structure[:3])
    expect(structure[0].shape[0] > 1, f"{name} has no receivers")
    return structure[0].shape[0] - 1, structure[1].shape[0]


def check_reverse(reverse: Sequence[Tensor], rows: int, right: tuple[int, int], lengths: tuple[int, ...]) -> None:
    """Raise ShapeError unless a structure has the receivers and edges of another one's transpose."""
    found = check_structure("reverse", reverse, rows, lengths)
    wanted = "a transpose of {} receivers and {} edges, not {} and {}"
    expect(found == right, "reverse must be " + wanted.format(*right, *found))


def check_transpose(reverse: Sequence[Tensor], rows: int, right: tuple[int, int], lengths: tuple[int, ...]) -> None:
    """The same for a transpose whose kernels read the number of each of its edges."""
    check_reverse(reverse, rows, right, lengths)
    check_rows("the edges' numbers", reverse[2], (right[1],), torch.int32)


def check_edges(rows: int, offsets: Tensor, index: Tensor, number: Tensor | None = None) -> None:
    """Raise ShapeError unless kernels that walk these edges stay within `rows` rows and their own numbers.

    Cost        O(I + E) for edges that were not checked before, or were written since
    """
    edges = [x for x in (offsets, index, number) if x is not None]
    if (known := _checked.get(index)) is not None and known.holds(rows, edges):
        return
    for name, x, dtype in (
        ("offsets", offsets, torch.int64),
        ("index", index, torch.int32),
        ("edge", number, torch.int32),
    ):
        if x is not None:
            check_rows(name, x, (None,), dtype)
    count = index.shape[0]
    if not offsets.shape[0] or int(offsets[-1]) != count or not _ascend(offsets):
        raise ShapeError(f"offsets must ascend from 0 to the number of edges, {count}")
    for name, x, bound in (("index", index, rows), ("edge", number, count)):
        if x is not None and x.numel() and not 0 <= int(x.min()) <= int(x.max()) < bound:
            raise ShapeError(
                f"{name} must lie in 0, ..., {bound - 1}: it reaches from {int(x.min())} to {int(x.max())}"
            )
    if number is not None and number.shape[0] not in (0, count):
        raise ShapeError(f"edge has {number.shape[0]} numbers for {count} edges")
    remember_edges(rows, *edges)


def remember_edges(rows: int, *edges: Tensor) -> None:
    """These offsets, senders and any numbers of edges are right: `check_edges` need not look again.

    Edge cases  tensors of inference mode, which count no writes, are looked at again
    """
    if any(x.is_inference() for x in edges):
        return
    _checked[edges[1]] = _Checked(rows, [ref(x) for x in edges], [(x.shape, x._version) for x in edges])


def _ascend(offsets: Tensor) -> bool:
    return int(offsets[0]) == 0 and not bool((offsets.diff() < 0).any())


def check_offsets(offsets: Tensor) -> int:
    """The number of receivers of some offsets; ShapeError where they are not such."""
    check_rows("offsets", offsets, (None,), torch.int64)
    expect(offsets.shape[0] > 1 and _ascend(offsets), "offsets must ascend from 0, and have a receiver")
    return offsets.shape[0] - 1


class _Checked(NamedTuple):
    """Edges that were right: the tensors themselves, for a new one may lie where an old one lay, and their versions."""

    rows: int
    edges: list[ref[Tensor]]
    versions: list[tuple[torch.Size, int]]

    def holds(self, rows: int, edges: list[Tensor]) -> bool:
        return (
            self.rows == rows
            and len(self.edges) == len(edges)
            and all(known() is x for known, x in zip(self.edges, edges, strict=True))
            and self.versions == [(x.shape, x._version) for x in edges]
        )


_checked: WeakIdKeyDictionary = WeakIdKeyDictionary()  # index -> _Checked


def empty_like(x: Tensor) -> Tensor:
    """As many numbers, not filled in, one after the other whatever the strides of x."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)
