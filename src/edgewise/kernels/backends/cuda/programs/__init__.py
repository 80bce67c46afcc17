"""The Triton kernels, one file for each family. Nothing imports those files before a call runs on a GPU.

With TRITON_INTERPRET=1 in the environment Triton's interpreter runs the same kernels on the CPU, slowly: for tests.
"""

import importlib.util
import os

import torch

from edgewise.errors import installing
from edgewise.kernels.backend import Need

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
INSTALLED = importlib.util.find_spec("triton") is not None
INTERPRETED_ON = ("cpu",) if INTERPRETED else ()  # where Triton's interpreter runs a backend that is named
TRITON = Need(lambda: INSTALLED, f"Triton is not installed: {installing('gpu')}")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)  # those that the kernels compute in
