"""Processes that the tests start beside themselves."""

import os
import subprocess
import sys


def environment(script):
    """That of processes which run a script beside the tests."""
    path = os.pathsep.join([str(script.parent.parent), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def launch(size, script, folder, *options):
    """A script under `torchrun`."""
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}", *options]
    return subprocess.Popen(
        [*run, str(script), str(folder)], env=environment(script), stderr=subprocess.PIPE, text=True
    )
