"""The process of the `edgewise` command, and of `python -m edgewise`."""

import gc
import sys

from edgewise.apps.command.main import main
from edgewise.memory import keep_freed

# Objects made between two searches for unreachable cycles. With Python's 700, 0.3 of the 1.5 s up to the first step of
# `cora-gcn` are spent on them, on an AMD EPYC. Training steps leave no cycles.
OBJECTS = 10_000


def command() -> int:
    """Run one command in a process of its own, which starts and ends in the least time."""
    gc.set_threshold(OBJECTS)
    keep_freed()
    try:
        return main()
    finally:
        gc.freeze()  # else what the system frees at once is searched once more at the end (0.4 s)


if __name__ == "__main__":
    sys.exit(command())
