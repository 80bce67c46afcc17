"""Writes docs/performance.md from what `edgewise bench all --out FOLDER` measured.

python docs/performance.py FOLDER/results.json
"""

import json
import sys
from pathlib import Path

from edgewise.apps.bench.page import page

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    results = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    (Path(__file__).parent / "performance.md").write_text(page(results), encoding="utf-8")
