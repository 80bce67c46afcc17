"""Sphinx reads our docstrings: a part (Equation, Shapes, ...) becomes a field, and equations are typeset."""

import ast
import re
from collections.abc import Iterator
from textwrap import dedent
from typing import Any

from equations import display, typeset

PARTS = (
    "Equation",
    "Symbols",
    "Shapes",
    "Returns",
    "Scores",
    "Errors",
    "Edge cases",
    "Cost",
    "Differs",
    "Reference",
)
AS_TYPED = ("Shapes",)
PART = re.compile(rf"({'|'.join(PARTS)}):?(?: +(.*)|$)")
HEADING = re.compile(r"(Args|Example):?$")


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", lambda app, what, name, obj, options, lines: rewrite(lines))
    return {"parallel_read_safe": True}


def rewrite(lines: list[str]) -> None:
    """Turn a docstring's lines into reStructuredText, in place."""
    lines[:] = [line for block in blocks(lines) for line in (*render(block), "")]


def blocks(lines: list[str]) -> Iterator[list[str]]:
    """Cut where a part, a heading or an empty line begins something new."""
    block: list[str] = []
    for line in lines:
        begins = PART.match(line) or HEADING.match(line)
        indented = line.startswith(" ")
        goes_on = indented and block and (PART.match(block[0]) or HEADING.match(block[0]))
        if block and (begins or (not line.strip() and not goes_on) or (not indented and block[0].startswith(" "))):
            yield block
            block = []
        if line.strip():
            block.append(line)
    if block:
        yield block


def render(block: list[str]) -> list[str]:
    part, first = PART.match(block[0]), block[0].strip()
    if part:
        name, text = part[1], part[2] or ""
        width = max((len(line) - len(line.lstrip()) for line in block[1:2]), default=0)
        rest = [line[width:] if line[:width].isspace() else line.strip() for line in block[1:]]
        body = [text, *rest] if text else rest
        if name == "Equation":
            return field(name, raw(display(body)))
        if name == "Symbols":
            return field(name, raw(symbols(body)))
        return field(name, literal("text", body) if name in AS_TYPED else escaped(body))
    if first.startswith("Args"):
        return [line for entry in arguments(block[1:]) for line in entry]
    if first.startswith("Example"):
        return field("Example", literal("pycon", dedent("\n".join(block[1:])).split("\n")))
    if first.startswith(">>>"):
        return literal("pycon", dedent("\n".join(block)).split("\n"))
    if block[0].startswith(" "):
        text = dedent("\n".join(block))
        return literal("python" if is_python(text) else "text", text.split("\n"))
    return escaped(block)


def arguments(lines: list[str]) -> Iterator[list[str]]:
    """Entries `name: meaning`, which may go on, further indented."""
    for entry in re.split(r"\n(?=\S)", dedent("\n".join(lines))):
        name, _, meaning = entry.partition(":")
        yield [f":param {name}: {' '.join(escaped([meaning.replace(chr(10), ' ')]))}".replace("  ", " ")]


def field(name: str, body: list[str]) -> list[str]:
    return [f":{name}:", *(f"    {line}" if line else "" for line in body)]


def symbols(lines: list[str]) -> str:
    """What each letter is, an entry to a line: they are separated by semicolons."""
    text = " ".join(line.strip() for line in lines)
    entries = [entry for entry in re.split(r";\s+(?![^()]*\))", text) if entry.strip()]
    return f'<ul class="symbols">{"".join(f"<li>{typeset(entry)}</li>" for entry in entries)}</ul>'


def raw(html: str) -> list[str]:
    return [".. raw:: html", "", f"    {html}"]


def literal(language: str, lines: list[str]) -> list[str]:
    return [f".. code-block:: {language}", "", *(f"    {line}" for line in lines)]


def is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def escaped(lines: list[str]) -> list[str]:
    """Prose: `code` as code, and nothing else means anything to reStructuredText."""
    pieces = re.split(r"(`+)(.+?)\1", "\n".join(line.strip() for line in lines))
    prose = (re.sub(r"([\\*_|`])", r"\\\1", piece) for piece in pieces[::3])
    code = (f"``{piece}``" for piece in pieces[2::3])
    out = next(prose)
    for mark, text in zip(code, prose, strict=True):
        out += mark + (text if not text[:1].isalnum() else "\\ " + text)
    return out.split("\n")
