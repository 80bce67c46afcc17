"""The process of the `edgewise` command, and of `python -m edgewise`."""

import gc
import os
import signal
import sys
import time
from _thread import interrupt_main
from threading import Timer
from typing import Any

from edgewise.apps.command.main import main
from edgewise.memory import keep_freed

# Objects made between two searches for unreachable cycles. With Python's 700, 0.3 of the 1.5 s up to the first step of
# `cora-gcn` are spent on them, on an AMD EPYC. Training steps leave no cycles.
OBJECTS = 10_000
# Seconds in which one Ctrl-C may come several times: a launcher passes on what the terminal has sent to all.
ECHO = 1.0
AGAIN = 0.02  # seconds after which an interruption that Python has lost comes once more


def command() -> int:
    """Run one command in a process of its own, which starts and ends in the least time."""
    gc.set_threshold(OBJECTS)
    keep_freed()
    open_closed()
    stops = once_interrupted()
    try:
        code = main()
        return 128 + stops[0] if stops and code == 130 else code
    except Exception:
        if not stops:
            raise
        print("edgewise: interrupted", file=sys.stderr)  # in the middle of an import, which makes an ImportError of it
        return 128 + stops[0]
    finally:
        gc.freeze()  # else what the system frees at once is searched once more at the end (0.4 s)


def open_closed() -> None:
    """Give the streams that the shell has closed (`<&-`, `>&-`) a place that takes all: a file that is opened later
    would have their numbers, and what a library prints would be written into it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - until the process ends


def once_interrupted() -> list[int]:
    """Let the first Ctrl-C, or SIGTERM of a launcher or scheduler, end the command by its own way, and one that comes
    after a while at once; their numbers."""
    stops: list[int] = []
    begun, own, usual_hook = 0.0, os.getpid(), sys.unraisablehook

    def interrupt(number: int, _: object) -> None:
        nonlocal begun
        if number == signal.SIGTERM and os.getpid() != own:  # a worker, which has nothing to say
            os._exit(128 + number)
        stops.append(number)
        if len(stops) == 1:
            begun = time.monotonic()
            raise KeyboardInterrupt
        if time.monotonic() - begun > ECHO:
            os._exit(128 + number)

    def again(lost: Any) -> None:  # Python drops what a destructor, or a callback of a weak reference, raises
        if lost.exc_type is KeyboardInterrupt and stops:
            number = stops[0]
            stops.clear()
            Timer(AGAIN, interrupt_main, [number]).start()
        else:
            usual_hook(lost)

    sys.unraisablehook = again
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is usual:  # else it is to be ignored, as SIGINT under nohup
            signal.signal(number, interrupt)
    return stops


if __name__ == "__main__":
    sys.exit(command())
