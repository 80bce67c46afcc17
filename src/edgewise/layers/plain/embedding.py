"""Embeddings that say which number has no row."""

import torch
from torch import Tensor, nn

from edgewise.errors import ShapeError
from edgewise.graphs.checks import shown
from edgewise.graphs.tracing import is_real


class Embedding(nn.Embedding):
    """PyTorch's, which names a number without a row where it lies on the CPU: cards read their numbers too late.

    Equation    y_i = E_(x_i)
    Symbols     weight = E [rows, width]; of = what is numbered, as an error names it
    Shapes      x [*] int64 -> [*, width]
    Errors      ShapeError for no tensor, numbers that are no integers, or below 0, or above the last row
    Cost        that of PyTorch's: numbers are looked at where it fails

    Example
        >>> Embedding(3, 2)(torch.tensor([0, 3]))
        Traceback (most recent call last):
        edgewise.errors.ShapeError: tokens must be from 0 to 2, but number 1 of them is 3
    """

    def __init__(self, rows: int, width: int, of: str = "tokens") -> None:
        super().__init__(rows, width)
        self.of = of

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return super().forward(x)
        try:
            return super().forward(x)
        except TypeError:
            raise ShapeError(f"{self.of} must be a tensor of int64, not {shown(x)}") from None
        except (IndexError, RuntimeError):
            if is_real(x) and x.device.type == "cpu":
                self._check(x)
            raise

    def _check(self, x: Tensor) -> None:
        if x.dtype not in (torch.int32, torch.int64):
            raise ShapeError(f"{self.of} must be int64, not {str(x.dtype).removeprefix('torch.')}") from None
        wrong = ((x < 0) | (x >= self.num_embeddings)).flatten()
        if bool(wrong.any()):
            first = int(wrong.int().argmax())
            what = f"number {first} of them is {int(x.flatten()[first])}"
            raise ShapeError(f"{self.of} must be from 0 to {self.num_embeddings - 1}, but {what}") from None
