"""`edgewise serve` under parallel clients: errors, wrong predictions, memory, and how long a request takes.

    python -m benchmarks.whole.serving RUN [--clients 50] [--seconds 60] [--rows ROW ...]

Each client sends one row at a time over its own connection, as fast as the responses come; every prediction is compared
with `edgewise.load(RUN).predict`. The service's memory is read from /proc once a second (Linux).
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.deployment import load

WARM = 10.0  # seconds, after which memory is to be flat


def alike(a: Any, b: Any) -> bool:
    """Whether two predictions are the same but for rounding."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[name], b[name]) for name in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(alike, a, b))
    return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6) if isinstance(a, float) else bool(a == b)


def resident(process: int) -> float:
    """Megabytes of a process in memory."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) / 1000


def client(
    port: int, number: int, expected: dict[str, Any], until: float, times: list[float], wrong: list[str]
) -> None:
    """Send rows until a time, starting at another row than the other clients."""
    rows, connection = list(expected), http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while time.monotonic() < until:
        row = rows[(number := number + 1) % len(rows)]
        started = time.monotonic()
        try:
            connection.request("POST", "/predict", json.dumps({"rows": [row]}), {"content-type": "application/json"})
            response = connection.getresponse()
            content = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            wrong.append(repr(error))
            connection.close()
            continue
        times.append(time.monotonic() - started)
        if response.status != 200 or not alike(content["predictions"], [expected[row]]):
            wrong.append(f"{row}: {response.status} {content}")
    connection.close()


def main() -> int:
    """Print the figures; 1 where a response was wrong or missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rows", nargs="+", default=[str(number) for number in range(30)])
    args = parser.parse_args()
    expected = {row: load(args.run).predict([row])[0] for row in args.rows}
    command = [sys.executable, "-m", "edgewise", "serve", args.run, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:  # noqa: S603 - this interpreter
        assert service.stdout is not None
        port = int(service.stdout.readline().split(" (")[0].rpartition(":")[2])
        started, times, wrong = time.monotonic(), list[float](), list[str]()
        shared = (expected, started + args.seconds, times, wrong)
        threads = [threading.Thread(target=client, args=(port, n, *shared)) for n in range(args.clients)]
        for thread in threads:
            thread.start()
        memory = []
        while any(thread.is_alive() for thread in threads):
            memory.append((time.monotonic() - started, resident(service.pid)))
            time.sleep(1)
        service.send_signal(signal.SIGTERM)
        print(service.stdout.read().strip())
    warm = [megabytes for seconds, megabytes in memory if seconds >= min(WARM, args.seconds / 2)]
    p50, p99, longest = (1000 * float(np.quantile(times, part)) for part in (0.5, 0.99, 1.0))
    print(f"{len(times):,} requests by {args.clients} clients in {args.seconds:g} s, {len(wrong)} errors")
    print(f"p50 {p50:.0f} ms, p99 {p99:.0f} ms, longest {longest:.0f} ms")
    print(f"memory {warm[0]:.0f} MB once warm, {warm[-1]:.0f} MB at the end")
    for line in wrong[:5]:
        print(line)
    return int(bool(wrong) or service.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
