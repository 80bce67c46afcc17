"""Text that is HTML: all of it is escaped by construction, and nothing in it is fetched from elsewhere."""

from collections.abc import Iterable, Sequence
from html import escape


class Markup(str):
    """Text that is HTML already; any other `str` is escaped on its way into an element."""


def element(name: str, *children: str, **attributes: str) -> Markup:
    """`<name attribute="…">children</name>`. An attribute that is a Python word ends in an underscore: `class_`.

    Example:
        >>> element("p", "1 < 2", class_="lead")
        '<p class="lead">1 &lt; 2</p>'
    """
    given = "".join(f' {key.rstrip("_")}="{escape(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{given}>{join(children)}</{name}>")


def join(children: Iterable[str]) -> Markup:
    """The children one after the other, escaped unless they are `Markup`."""
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[str] = ()) -> Markup:
    """A table with a heading row; the columns named in `numbers` are set flush right."""

    def cells(kind: str, row: Sequence[str]) -> Markup:
        made = (
            element(kind, cell, class_="number") if name in numbers else element(kind, cell)
            for name, cell in zip(head, row, strict=True)
        )
        return element("tr", *made)

    body = element("tbody", *(cells("td", row) for row in rows))
    return wide(element("thead", cells("th", [breakable(name) for name in head])), body)


def wide(*parts: str) -> Markup:
    """A table that may be wider than the page, on which it then moves sideways."""
    return element("div", element("table", *parts), class_="wide")


def breakable(name: str) -> Markup:
    """A column's name, which may be broken behind underscores and nowhere else.

    Example:
        >>> breakable("learning_rate")
        'learning_<wbr>rate'
    """
    return Markup(escape(name).replace("_", "_<wbr>"))


def note(title: str, *body: str) -> str:
    """What a notebook shows of an object: a title, and below it tables and lines."""
    return str(element("div", element("p", element("b", title)), *body))


def folded(texts: Sequence[str]) -> Markup:
    """Lines, which are folded; of none, nothing."""
    listed = element("ul", *(element("li", text) for text in texts))
    return element("details", element("summary", f"{len(texts)} lines about the data"), listed) if texts else Markup()
