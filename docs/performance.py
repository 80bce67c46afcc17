"""Writes docs/performance.md from what `python -m benchmarks all --out FOLDER` measured on either device.

PYTHONPATH=. python docs/performance.py FOLDER/results.json         all but the section on GPUs, which stays as it is
PYTHONPATH=. python docs/performance.py --gpu FOLDER/table.md       the section on GPUs alone
"""

import json
import sys
from pathlib import Path

from benchmarks.page import on_a_gpu, page, section_on_gpus

if __name__ == "__main__":
    path = Path(__file__).parent / "performance.md"
    before = path.read_text(encoding="utf-8")
    gpu = section_on_gpus(before)
    match sys.argv[1:]:
        case ["--gpu", table]:
            text = before.removesuffix(gpu).rstrip() + "\n\n" + on_a_gpu(Path(table).read_text(encoding="utf-8"))
        case [results]:
            text = page(json.loads(Path(results).read_text(encoding="utf-8"))) + "\n" + gpu
        case _:
            sys.exit(__doc__)
    path.write_text(text, encoding="utf-8")
