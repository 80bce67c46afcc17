import os
import subprocess
import sys

import pytest

from edgewise import ConfigError, GraphError, causal, complete, memory, plan, window


def test_the_memory_of_the_machine_is_known_and_a_container_may_have_less(monkeypatch, tmp_path):
    known = memory.machine.__wrapped__()
    assert known is None or known > 2**27
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "LIMITS", (str(limit),))
    for text, expected in (("12345\n", 12345), ("max\n", memory.machine.__wrapped__())):
        limit.write_text(text)
        assert memory.machine.__wrapped__() == expected


def test_what_is_too_large_is_said_with_both_sizes(monkeypatch):
    monkeypatch.setattr(memory, "machine", lambda: 10**9)
    memory.check_fits(5 * 10**8, "a table")
    with pytest.raises(
        ConfigError, match=r"^a table takes 2\.0 TB, and there are 1\.0 GB of memory, of which one value may take 50%$"
    ):
        memory.check_fits(2 * 10**12, "a table", error=ConfigError)
    monkeypatch.setattr(memory, "machine", lambda: None)
    memory.check_fits(10**30, "a table")


def test_sizes_are_written_as_a_person_does():
    assert [memory.in_words(size) for size in (0, 999, 1000, 1.75e12, 3e18)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "1.8 TB",
        "3,000.0 PB",
    ]


def test_what_would_not_fit_in_memory_is_refused_before_it_is_allocated():
    for read in (
        lambda: causal(10**7).senders,
        lambda: causal(10**7).dense_mask(),
        lambda: complete(10**7).edge_index(),
        lambda: causal(10**7).transpose()[0].senders,
        lambda: window(10**11, 3).ranges(),
    ):
        with pytest.raises(
            GraphError, match=r"takes [\d,.]+ [TPG]B, and there are .* of memory, of which one value may take 50%"
        ):
            read()
    assert plan(causal(10**6)).choice == "tiled"


STEPS = """
import resource, sys
from edgewise.memory import keep_freed
if sys.argv[1] == "keep":
    keep_freed()
for step in range(10):
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [bytearray(1 << 24) for _ in range(12)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults)
"""

LARGE = """
from pathlib import Path
import torch
from edgewise.memory import keep_freed
keep_freed()
numbers = torch.ones(1 << 24)
print("hg" in Path("/proc/self/smaps").read_text().split())
"""


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_memory_is_kept_for_the_next_step_unless_the_user_has_said_otherwise():
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    own = {**plain, "MALLOC_TRIM_THRESHOLD_": "131072"}

    def run(environment: dict[str, str], *command: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", *command], env=environment, check=True, capture_output=True, text=True
        ).stdout

    fresh, kept, chosen = (
        int(run(*of)) for of in ((plain, STEPS, "plain"), (plain, STEPS, "keep"), (own, STEPS, "keep"))
    )
    assert kept < 0.1 * min(fresh, chosen)
    assert [run(environment, LARGE).strip() for environment in (plain, own)] == ["True", "False"]  # large pages


def test_no_allocator_but_glibcs_is_touched(monkeypatch):
    calls: list[tuple[int, int]] = []

    class Glibc:
        @staticmethod
        def mallopt(option: int, value: int) -> None:
            calls.append((option, value))

    monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", "0")
    for name in [name for name in os.environ if name.startswith("MALLOC_") or name == "GLIBC_TUNABLES"]:
        monkeypatch.delenv(name)
    for platform, library, asked in (("darwin", Glibc, False), ("linux", object, False), ("linux", Glibc, True)):
        monkeypatch.setattr(memory.sys, "platform", platform)
        monkeypatch.setattr(memory.ctypes, "CDLL", lambda _, library=library: library)
        memory.keep_freed()
        assert bool(calls) is asked
    assert calls == [(-1, memory.KEPT), (-3, memory.LARGEST)]
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=1")
    memory.keep_freed()
    assert len(calls) == 2
