"""The process of the `edgewise` command, and of `python -m edgewise`."""

import gc
import os
import signal
import sys
import time

from edgewise.apps.command.main import main
from edgewise.memory import keep_freed

# Objects made between two searches for unreachable cycles. With Python's 700, 0.3 of the 1.5 s up to the first step of
# `cora-gcn` are spent on them, on an AMD EPYC. Training steps leave no cycles.
OBJECTS = 10_000
# Seconds in which one Ctrl-C may come several times: a launcher passes on what the terminal has sent to all.
ECHO = 1.0


def command() -> int:
    """Run one command in a process of its own, which starts and ends in the least time."""
    gc.set_threshold(OBJECTS)
    keep_freed()
    open_closed()
    pressed = once_interrupted()
    try:
        return main()
    except Exception:
        if not pressed:
            raise
        print("edgewise: interrupted", file=sys.stderr)  # in the middle of an import, which makes an ImportError of it
        return 130
    finally:
        gc.freeze()  # else what the system frees at once is searched once more at the end (0.4 s)


def open_closed() -> None:
    """Give the streams that the shell has closed (`<&-`, `>&-`) a place that takes all: a file that is opened later
    would have their numbers, and what a library prints would be written into it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - until the process ends


def once_interrupted() -> list[float]:
    """Let the first Ctrl-C end the command by its own way, and one that comes after a while at once; their times."""
    pressed: list[float] = []

    def interrupt(*_: object) -> None:
        pressed.append(time.monotonic())
        if len(pressed) == 1:
            raise KeyboardInterrupt
        if pressed[-1] - pressed[0] > ECHO:
            os._exit(130)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is to be ignored, as under nohup
        signal.signal(signal.SIGINT, interrupt)
    return pressed


if __name__ == "__main__":
    sys.exit(command())
