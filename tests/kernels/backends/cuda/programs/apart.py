"""Runs a script of this folder where Triton compiles instead of interpreting: in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def run(script: str, cache: Path) -> Any:
    """What the script prints as JSON; its compiled kernels go to a folder that is thrown away."""
    here = Path(__file__).parent
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(cache), "PYTHONPATH": os.pathsep.join([str(here.parent), *sys.path])}
    command = [sys.executable, str(here / script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
