"""Writes docs/performance.md from what `python -m benchmarks all --out FOLDER` measured on either device.

PYTHONPATH=. python docs/performance.py FOLDER/results.json         all but the section on GPUs, which stays as it is
PYTHONPATH=. python docs/performance.py --gpu FOLDER/table.md       the section on GPUs alone
"""

import json
import sys
from pathlib import Path

from benchmarks.page import around_gpus, on_a_gpu, page

if __name__ == "__main__":
    path = Path(__file__).parent / "performance.md"
    before, gpu, after = around_gpus(path.read_text(encoding="utf-8"))
    match sys.argv[1:]:
        case ["--gpu", table]:
            text = before + on_a_gpu(Path(table).read_text(encoding="utf-8")) + after
        case [results]:
            text = page(json.loads(Path(results).read_text(encoding="utf-8"))) + "\n" + gpu + after
        case _:
            sys.exit(__doc__)
    path.write_text(text, encoding="utf-8")
