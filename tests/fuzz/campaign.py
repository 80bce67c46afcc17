"""Fuzz the readers of files and the public operators: python tests/fuzz/campaign.py [--seconds 60] [reader ...]

Each reader runs in a process of its own, from its corpus, in at most 1 GB and 20 seconds for each input. An input that
breaks one is written to build/fuzz/NAME; once the reader is mended, it belongs to tests/fuzz/corpus/NAME.
Needs atheris.
"""

import argparse
import resource
import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
MEMORY, TIME, LENGTH = 1000, 20, 1 << 16  # MB, seconds, bytes
PARSERS = [
    "edgewise.files",
    "edgewise.kernels",
    "edgewise.tasks",
    "edgewise.models.hub",
    "edgewise.configuration",
    "yaml",
    "zipfile",
]


def fuzz(name: str, seconds: int) -> None:
    """Fuzz one reader in this process, which ends with it."""
    import atheris
    import scipy.io  # noqa: F401 (not instrumented, nor what it imports)
    import torch  # noqa: F401

    with atheris.instrument_imports(include=PARSERS):
        from edgewise.errors import EdgewiseError
        from fuzz.harnesses import HARNESSES, corpus

    place = ROOT / "build" / "fuzz" / name
    place.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(corpus(name)):
        (place / f"seed-{number}").write_bytes(content)
    warnings.simplefilter("ignore")
    harness = HARNESSES[name]

    def run(content: bytes) -> None:
        with suppress(EdgewiseError):
            harness(content)

    options = [f"-max_total_time={seconds}", f"-rss_limit_mb={MEMORY}", f"-timeout={TIME}", f"-max_len={LENGTH}"]
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={place}/broken-", "-verbosity=1", str(place)], run)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("readers", nargs="*")
    parser.add_argument("--seconds", type=int, default=60, help="for each reader")
    parser.add_argument("--here", action="store_true", help="fuzz the reader in this process")
    options = parser.parse_args()
    if options.here:
        fuzz(options.readers[0], options.seconds)
    from fuzz.harnesses import HARNESSES

    broken = []
    for name in options.readers or HARNESSES:
        command = [sys.executable, __file__, "--here", "--seconds", str(options.seconds), name]
        print(f"{name}:", flush=True)
        if subprocess.run(command, check=False, cwd=ROOT).returncode:
            broken.append(name)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    minutes = (used.ru_utime + used.ru_stime) / 60
    fuzzed = f"{len(options.readers or HARNESSES)} readers in {minutes:.1f} CPU-minutes"
    print(f"{fuzzed}; broken: {', '.join(broken) or 'none'}")
    return len(broken)


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]
    sys.exit(main())
