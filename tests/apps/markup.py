"""What a browser would see of a page."""

from collections import defaultdict
from html.parser import HTMLParser

VOID = ("meta", "br", "img", "hr", "link", "input", "base")


class Page(HTMLParser):
    """A page's elements with their attributes, and the texts in each kind of element; what opens must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: defaultdict[str, list[str]] = defaultdict(list)
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []
        self.tags = {tag for tag, _ in self.elements}
        self.attributes = {name for _, attributes in self.elements for name in attributes}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self.texts[tag].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.texts[tag][-1] += data

    def values(self, *names: str) -> list[str]:
        """What the attributes of these names hold, in all elements."""
        return [given[name] or "" for _, given in self.elements for name in names if name in given]

    @property
    def policy(self) -> str:
        """What the page may load and run."""
        (found,) = (given for _, given in self.elements if given.get("http-equiv") == "Content-Security-Policy")
        return found["content"] or ""
