"""How ranks end by a mistake: `torchrun` repeats it in its last lines, and of ranks that end alike one says it."""

import json
import os
import time
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

from torch.distributed.rendezvous import rendezvous

PATIENCE = timedelta(seconds=5)  # with a launcher that may be ending, too


def first_to_end(problem: str) -> bool:
    """Tell `torchrun` what ends this rank; whether no rank before has ended by the same.

    Edge cases  a launcher that keeps no store, or has gone: each rank is the first
    """
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        known = {"py_callstack": problem, "timestamp": str(int(time.time()))}
        with suppress(OSError):
            Path(file).write_text(json.dumps({"message": {"message": problem, "extraInfo": known}}))
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return True
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    try:
        store = next(rendezvous("env://", timeout=PATIENCE))[0]
        return bool(store.add(f"ended {attempt} {sha256(problem.encode(errors='replace')).hexdigest()}", 1) == 1)
    except (OSError, RuntimeError, ValueError):
        return True
