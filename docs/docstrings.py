"""Sphinx reads our docstrings: a part (Equation, Shapes, Cost, ...) becomes a field, and indices are set as such."""

import ast
import re
from collections.abc import Iterator
from html import escape
from textwrap import dedent
from typing import Any

PART = re.compile(r"([A-Z][a-z]+(?: [a-z]+)?)(?: {2,}(\S.*)|:?$)")
CODE = re.compile(r"`+(.+?)`+")
LETTER = r"A-Za-z0-9Α-Ωα-ω"
INDEX = re.compile(
    rf"(?<=[{LETTER}\u0300-\u036f)\]}}'⊕∪∩‖])([_^])"
    rf"(?:\{{([^}}]*)\}}|\(([^)]*)\)|((?:&lt;)?[-−+]?[{LETTER}]+(?:,[{LETTER}]+)*[½*]?|[-−]?½|∞))"
)


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", lambda app, what, name, obj, options, lines: rewrite(lines))
    return {"parallel_read_safe": True}


def rewrite(lines: list[str]) -> None:
    """Turn a docstring's lines into reStructuredText, in place."""
    lines[:] = [line for block in blocks(lines) for line in (*render(block), "")]


def blocks(lines: list[str]) -> Iterator[list[str]]:
    """Cut where a part begins, at empty lines, and where indentation ends."""
    block: list[str] = []
    for line in lines:
        inside = bool(block) and PART.match(block[0]) is not None
        indented = line.startswith(" ") or (inside and not line)
        if block and (PART.match(line) or (not indented and (not line or inside or block[0].startswith(" ")))):
            yield block
            block = []
        if line or (block and inside):
            block.append(line)
    if block:
        yield block


def render(block: list[str]) -> list[str]:
    part = PART.match(block[0])
    if part:
        name, rest = part[1], dedent("\n".join(block[1:])).strip("\n")
        text = "\n".join(filter(None, (part[2], rest)))
        if name == "Equation":
            return field(name, raw("".join(f"<div>{indexed(line)}</div>" for line in text.split("\n") if line)))
        if name == "Symbols":
            entries = re.split(r";\s+(?![^()]*\))", text)
            return field(name, raw("".join(f"<div>{indexed(entry)}</div>" for entry in entries)))
        if name == "Args":
            entries = re.split(r"\n(?=\S)", text)
            return [":param " + prose(" ".join(entry.split())) for entry in entries]
        return field(name, literal(text) if name in ("Shapes", "Example", "Examples") else prose(text))
    text = dedent("\n".join(block))
    return literal(text) if block[0].startswith((" ", ">>>")) else prose(text).split("\n")


def field(name: str, body: str | list[str]) -> list[str]:
    lines = body.split("\n") if isinstance(body, str) else body
    return [f":{name}:", *(f"    {line}" if line else "" for line in lines)]


def literal(text: str) -> list[str]:
    try:
        language = "pycon" if text.lstrip().startswith(">>>") else "python" if ast.parse(text) else "text"
    except SyntaxError:
        language = "text"
    return [f".. code-block:: {language}", "", *(f"    {line}" if line else "" for line in text.split("\n"))]


def raw(html: str) -> list[str]:
    return [".. raw:: html", "", f'    <div class="equation">{html}</div>']


def prose(text: str) -> str:
    """`code` as code; nothing else means anything to reStructuredText."""
    parts = CODE.split("\n".join(line.strip() for line in text.split("\n")))
    parts[::2] = [re.sub(r"([\\*_|`])", r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [f"``{code}``\\ " for code in parts[1::2]]
    return re.sub(r"\\ (?=[\s.,;:)]|$)", "", "".join(parts))


def indexed(text: str) -> str:
    """A line with an equation as HTML: x_ij and 2^k with their indices and powers below and above the line."""

    def set_index(found: re.Match[str]) -> str:
        base = re.search(rf"[{LETTER}]*$", found.string[: found.start()])
        index = f"({found[3]})" if found[3] else found[2] or found[4] or ""
        if base and len(base[0]) > 2 and len(index) > 2 and found[4] and found[1] == "_":
            return found[0]  # a name such as num_nodes
        tag = "sub" if found[1] == "_" else "sup"
        return f"<{tag}>{index}</{tag}>"

    parts = CODE.split(escape(text.strip(), quote=False))
    parts[::2] = [INDEX.sub(set_index, re.sub(r" {2,}", "&emsp;", part)) for part in parts[::2]]
    parts[1::2] = [f"<code>{code}</code>" for code in parts[1::2]]
    return "".join(parts)
