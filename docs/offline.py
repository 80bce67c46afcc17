"""Built pages need nothing but themselves: links and pictures are files beside them, and no page asks a server.

`make docs` fails where this finds something: `check` is the last step of the build.
"""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = dict.fromkeys(("img", "script", "iframe", "source", "video", "audio", "embed"), "src")
SHEETS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest"}
FETCHED = re.compile(r"@import\s+(?:url\()?[\"']?(?P<sheet>[^\"')]+)|url\(\s*[\"']?(?P<url>[^\"')]+)")


class Page(HTMLParser):
    """What a page has, by its ids; what it links to; and what it loads to be shown."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        have = {name: value or "" for name, value in attrs}
        self.ids |= {have[name] for name in ("id", "name") if name in have}
        if tag == "a" and "href" in have:
            self.links.append(have["href"])
        if tag == "link" and SHEETS & set(have.get("rel", "").split()):
            self.loads.append(have.get("href", ""))
        if LOADED.get(tag) in have:
            self.loads.append(have[LOADED[tag]])
        self.loads += [found["url"] for found in FETCHED.finditer(have.get("style", "")) if found["url"]]


def check(folder: Path) -> list[str]:
    """What is wrong with the built pages, a line for each: links that lead nowhere, and what would be fetched."""
    folder = folder.resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    problems = []
    for path, page in pages.items():
        where = path.relative_to(folder)
        problems += [f"{where} loads {address}" for address in page.loads if outside(address)]
        inside = [address for address in dict.fromkeys(page.loads + page.links) if not urlsplit(address).scheme]
        inside = [address for address in inside if not outside(address) and not leads(path, address, pages)]
        problems += [f"{where}: {address} leads nowhere" for address in inside]
    for path in sorted(folder.rglob("*.css")):
        text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        problems += [f"{path.relative_to(folder)} loads {address}" for address in fetched(text) if outside(address)]
    return problems


def fetched(sheet: str) -> Iterator[str]:
    return (found["sheet"] or found["url"] for found in FETCHED.finditer(sheet))


def outside(address: str) -> bool:
    """Whether an address is another machine's."""
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme in ("http", "https", "ftp")


def leads(page: Path, address: str, pages: dict[Path, Page]) -> bool:
    """Whether a link within the documentation leads to a file and, if it names a place on a page, to that."""
    parts = urlsplit(address)
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target.is_dir():
        target = target / "index.html"
    if not target.is_file():
        return False
    return not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].ids
