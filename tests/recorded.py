"""Made data and first outputs that must not change unnoticed, in tests/recorded/NAME.txt.

Where a change is meant, RECORD=1 writes the file anew (RECORD=1 pytest tests/apps/test_data_on_record.py); the
difference then shows in the commit.
"""

import dataclasses
import os
import re
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewise import Graph
from edgewise.layers import SparseFeatures

NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]\d+)?|-?\d+e[+-]\d+")
FOLDER = Path(__file__).parent / "recorded"


def check_recorded(name: str, lines: Iterable[str]) -> None:
    """The lines are those on record."""
    path, found = FOLDER / f"{name}.txt", [line for text in lines for line in text.splitlines()]
    if os.environ.get("RECORD"):
        path.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
    recorded = path.read_text(encoding="utf-8").splitlines()
    pairs = zip_longest(found, recorded, fillvalue="")
    unlike = [f"{line!r} instead of {wanted!r}" for line, wanted in pairs if not same(line, wanted)]
    assert unlike == [], f"unlike {path}; if that is meant, RECORD=1 writes it anew"


def same(line: str, wanted: str) -> bool:
    """Equal but for the rounding of numbers that have a decimal point."""
    pairs = zip(NUMBER.findall(line), NUMBER.findall(wanted), strict=False)
    near = all(float(one) == pytest.approx(float(other), rel=3e-4, abs=1e-6) for one, other in pairs)
    return near and NUMBER.sub("#", line) == NUMBER.sub("#", wanted)


def summary(value: Any) -> str:
    """A value in a line: of an array its shape, its mean and a mean in which each number has another weight."""
    if isinstance(value, Graph):
        return f"Graph({value.num_receivers}, {value.num_senders}) {summary([value.receivers, value.senders])}"
    if isinstance(value, SparseFeatures):
        return f"sparse {summary(value.to_dense())}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(summary, value))}]"
    if dataclasses.is_dataclass(value):
        parts = (getattr(value, part.name) for part in dataclasses.fields(value))
        return f"{type(value).__name__} {summary([part for part in parts if part is not None])}"
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        flat = value.astype(np.float64).ravel()
        weighted = flat @ np.cos(np.arange(flat.size)) / max(flat.size, 1)
        return f"{list(value.shape)} {value.dtype} {shown(flat.mean() if flat.size else 0)} {shown(weighted)}"
    return shown(value)


def shown(value: Any) -> str:
    """Numbers to six digits, always with a point."""
    if isinstance(value, float | np.floating):
        return f"{0.0 if abs(value) < 1e-7 else value:#.6g}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(shown, value))}]"
    return str(value)
