"""What the compiler makes of the kernels for an H100: tensor cores, registers, wide loads, and few variants."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.compiled
def test_kernels_do_not_spill_and_use_tensor_cores(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(Path(__file__).with_name("compile_kernels.py"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert len({name.split(",")[0] for name in found}) == 9, found.keys()
    for name, built in found.items():
        tiled = name.startswith(("attend_kernel", "_forward", "_backward"))
        if name != "attend_kernel, torch.float32":  # whose gradient was not made for whole registers
            assert built["STACK"] == built["LOCAL"] == 0, f"{name} spills"
        assert built["products"] > 0 if tiled else built["REG"] <= 168 and built["wide"] > 0, name
