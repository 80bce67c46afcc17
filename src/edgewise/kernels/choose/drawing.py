"""Attention as text and as a picture: how much each receiver attends to each sender."""

from collections.abc import Sequence

from torch import Tensor

from edgewise.errors import ShapeError
from edgewise.graphs.checks import several, shown, whole_number
from edgewise.kernels.choose.dispatch import Recorded

SHADES = " .:-=+*#%@"


def draw_attention(recorded: Recorded, labels: Sequence[str] | None = None, head: int | None = None) -> str:
    """The attention weights of a call as text: row = receiver, column = sender, the darker the more.

    Symbols     recorded = one call, from `record()`; labels = a name for each receiver, in front of its row; head =
                which of the heads, None: their mean, as over a leading batch
    Errors      ShapeError for another number of labels, or a head that there is not
    Edge cases  where there is no edge stands a blank; each tenth of a weight has its shade, from blank to @

    Example
        >>> import torch
        >>> from edgewise import attend, causal, record
        >>> q = torch.zeros(3, 1, 4)
        >>> with record() as seen:
        ...     y = attend(causal(3), q, q, q)
        >>> print(draw_attention(seen[0], ["the", "cat", "sat"]))
        the @
        cat ++
        sat ---
    """
    if not isinstance(recorded, Recorded):
        raise ShapeError(f"what is drawn is a call that edgewise.record() has recorded, not {shown(recorded)}")
    weights = mean_weights(recorded, None if head is None else whole_number(head, "head"))
    rows = weights.clamp(0, 1).mul(len(SHADES)).long().clamp(max=len(SHADES) - 1).tolist()
    labels = None if labels is None else [str(label) for label in several(labels, "labels must be a list of texts")]
    if labels is not None and len(labels) != len(rows):
        raise ShapeError(f"there are {len(labels)} labels, but {len(rows)} receivers")
    width = max(map(len, labels), default=0) if labels else 0
    names = [f"{label:<{width}} " for label in labels] if labels is not None else [""] * len(rows)
    return "\n".join((name + "".join(SHADES[n] for n in row)).rstrip() for name, row in zip(names, rows, strict=True))


def mean_weights(recorded: Recorded, head: int | None) -> Tensor:
    """[I, J] of one head, or of all on the average."""
    matrix = recorded.matrix()
    if head is not None and not 0 <= head < matrix.shape[-3]:
        raise ShapeError(f"there is no head {head}: the call has {matrix.shape[-3]}, from 0 on")
    chosen = matrix if head is None else matrix[..., head : head + 1, :, :]
    return chosen.reshape(-1, *matrix.shape[-2:]).mean(0)
