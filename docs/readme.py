"""Writes the table of systems into README.md: run it where `edgewise list` has changed."""

import re
from pathlib import Path

from edgewise.apps.systems import systems_table

README = Path(__file__).parent.parent / "README.md"
TABLE = re.compile(r"(<!-- systems: .*? -->\n).*?(<!-- end of systems -->)", re.DOTALL)

if __name__ == "__main__":
    text = README.read_text(encoding="utf-8")
    README.write_text(TABLE.sub(lambda found: f"{found[1]}{systems_table()}\n{found[2]}", text), encoding="utf-8")
