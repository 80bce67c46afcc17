"""What every test shares: a fixed seed, and the folder of real data where there is one."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def data() -> Callable[[str], Path]:
    """`data("planetoid")` is that folder of $EDGEWISE_DATA; without it a test fails in CI and is skipped elsewhere."""

    def folder(name: str) -> Path:
        root = os.environ.get("EDGEWISE_DATA")
        path = Path(root) / name if root else None
        if path is not None and path.is_dir():
            return path
        reason = f"no data: {path} is not a folder" if path else f"no data: EDGEWISE_DATA is not set, {name} needs it"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)

    return folder
