"""The table of systems in Markdown. Run as a script, it writes the table into README.md, after a row has changed."""

import re
from pathlib import Path

from edgewise.apps.systems import SYSTEMS

README = Path(__file__).parent.parent / "README.md"
TABLE = re.compile(r"(<!-- systems: .*? -->\n).*?(<!-- end of systems -->)", re.DOTALL)


def systems_table(root: str = "src/edgewise") -> str:
    """The rows as a Markdown table; files are linked below `root`, as seen from the document that shows the table."""
    lines = ["| | system | equation | file | recipe |", "|---|---|---|---|---|"]
    for row in SYSTEMS:
        file = f"[`{row.file}`]({root}/{row.file})"
        recipe = f"[`{row.recipe}`]({root}/recipes/{row.recipe}.yaml)"
        lines.append(f"| {row.id} | {row.name} | {row.equation.replace('|', chr(92) + '|')} | {file} | {recipe} |")
    return "\n".join(lines)


if __name__ == "__main__":
    text = README.read_text(encoding="utf-8")
    README.write_text(TABLE.sub(lambda found: f"{found[1]}{systems_table()}\n{found[2]}", text), encoding="utf-8")
