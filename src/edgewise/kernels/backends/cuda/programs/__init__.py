"""The Triton kernels, one file for each family. Nothing imports those files before a call runs on a GPU.

With TRITON_INTERPRET=1 in the environment Triton's interpreter runs the same kernels on the CPU, slowly: for tests.
"""

from __future__ import annotations

import importlib.util
import os

import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
INSTALLED = importlib.util.find_spec("triton") is not None


def refusal(device: torch.device) -> str | None:
    """Why no Triton kernel can run on tensors of this device, or None if it can."""
    if device.type != "cuda" and not (INTERPRETED and device.type == "cpu"):
        return f"its kernels run on NVIDIA GPUs, not on {device.type}"
    return None if INSTALLED else "Triton is not installed: pip install edgewise[gpu]"
