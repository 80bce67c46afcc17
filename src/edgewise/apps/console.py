"""What commands print: numbers and columns for people, and how they end: by a code, and lines on a standard error that
may be closed."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from edgewise.errors import counted

if TYPE_CHECKING:
    from edgewise.training.runs import Result
    from edgewise.training.simple import Simple

UNREAD = 141  # what a shell says of a program that SIGPIPE has ended
PATIENCE = 30.0  # seconds that a process which does not speak leaves to the one that does


def succeeded() -> int:
    """Whatever standard error has not taken is let go: it is no part of the result."""
    _tell()
    return 0


def complained(*problems: str) -> int:
    """Each problem in a line of its own, whatever is in it."""
    start = "edgewise: error: "
    if _speaks("\n".join(problems)):
        for number, problem in enumerate(problems):
            text = " ".join(problem.split())
            line = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
            _tell(f"{' ' * len(start) if number else start}{line}")
    elif "TORCHELASTIC_ERROR_FILE" in os.environ:
        time.sleep(PATIENCE)  # `torchrun` stops all others once one has ended: the first may not have spoken yet
    return 2


def interrupted(*advice: str) -> int:
    """One line, with how to go on where there is a way."""
    line = "; ".join(["edgewise: interrupted", *advice])
    if _speaks(line):
        _tell(line)
    return 130


def unread(*advice: str) -> int:
    """The reader went away (`edgewise list | head`): a line says how to go on with what is unfinished."""
    _discard(sys.stdout)
    _tell(*(f"edgewise: nobody reads standard output any more; {one}" for one in advice))
    return UNREAD


def _speaks(problem: str) -> bool:
    """Whether this process says what ends it: of several that train together the first. `torchrun`, which repeats in
    its last lines what ended a rank, reads it in a file."""
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        known = {"py_callstack": problem, "timestamp": str(int(time.time()))}
        with suppress(OSError):
            Path(file).write_text(json.dumps({"message": {"message": problem, "extraInfo": known}}))
    return os.environ.get("RANK", "0") == "0"


def _tell(*lines: str) -> None:
    """Lines on standard error; where it takes none, as a closed pipe or a full disk, the code alone says it."""
    try:
        for line in lines:
            print(line, file=sys.stderr)
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    """Let go of what a stream still holds, and of all that comes: Python writes it once more at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def columns(rows: Sequence[dict[str, str]], heads: bool = False) -> str:
    """Rows of text in columns as wide as their widest cell, indented by two; `heads`: their keys stand above them."""
    if not rows:
        return "  (none)"
    lines = [[*rows[0]], *(list(row.values()) for row in rows)][not heads :]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  " + "  ".join(f"{cell:<{w}}" for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def shown(metric: str, value: float) -> str:
    """A metric's value: a share in percent, BLEU as it is, a loss with four decimals, four digits if small.

    Example:
        >>> shown("accuracy", 0.8154), shown("accuracy toxic", 0.5), shown("loss", 1.87654), shown("bleu", 34.56)
        ('81.5 %', '50.0 %', '1.8765', '34.6')
        >>> shown("rmse", 3.21e-6), shown("loss", 0.0)
        ('3.21e-06', '0.0000')
    """
    if metric == "bleu":
        return f"{value:.1f}"
    if metric.split(" ")[0] == "accuracy":
        return f"{100 * value:.1f} %"
    return f"{value:.4g}" if 0 < abs(value) < 1e-3 else f"{value:.4f}"


def compared(simple: Simple, result: Result) -> str:
    """What a simple method reaches beside a model, in a line that says which of them is better."""
    mine, other = (simple.value, result.value) if simple.maximise else (-simple.value, -result.value)
    verdict = "a simple method is better" if mine > other else "no simple method is better"
    figures = f"{result.measure} {shown(simple.metric, simple.value)} (valid {shown(simple.metric, simple.valid)}"
    how = f"best of {counted(len(simple.tried), 'method')} by validation, {simple.seconds:.1f} s"
    return f"{verdict}: {simple.name}: {figures}; {'; '.join(filter(None, (how, simple.left)))})"
