"""HTML pages that stand alone: no script, no request, legible in light and dark, all text escaped by construction."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import edgewise
from edgewise.files import write_file
from edgewise.markup import Markup as Markup
from edgewise.markup import element as element
from edgewise.markup import join as join
from edgewise.markup import table as table
from edgewise.markup import wide as wide

# The page may draw what it carries and nothing else.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

# Figures use the same variables, so that one SVG is legible on light and on dark paper.
LIGHT = {
    "paper": "#fdfdfb",
    "ink": "#1c1d21",
    "muted": "#6a6d75",
    "rule": "#dcdcd6",
    "accent": "#2f6fde",
    "warm": "#d9601f",
}
DARK = {
    "paper": "#15171b",
    "ink": "#e9e8e3",
    "muted": "#9a9da6",
    "rule": "#33363d",
    "accent": "#6ea2ff",
    "warm": "#ff9c5b",
}


def variables(colours: dict[str, str]) -> str:
    """The colours as CSS declarations."""
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


STYLE = f"""
:root{{color-scheme:light dark;{variables(LIGHT)}}}
@media (prefers-color-scheme:dark){{:root{{{variables(DARK)}}}}}
*{{box-sizing:border-box}}
body{{margin:0;background:var(--paper);color:var(--ink);
font:17px/1.6 Charter,"Bitstream Charter","Iowan Old Style","Palatino Linotype",Georgia,serif;
font-variant-numeric:oldstyle-nums;text-rendering:optimizeLegibility}}
main{{max-width:50rem;margin:0 auto;padding:4.5rem 1.5rem 6rem}}
h1,h2,h3{{font-weight:500;line-height:1.2;margin:0;text-wrap:balance}}
h1{{font-size:2.5rem;letter-spacing:-.015em}}
h2{{font-size:1.45rem;margin:4rem 0 1rem;padding-top:1rem;border-top:1px solid var(--rule)}}
h3{{font-size:1.1rem;margin:2.2rem 0 .5rem}}
p{{margin:.6rem 0;max-width:42rem;text-wrap:pretty}}
.eyebrow,th,dt,figcaption,footer{{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}}
.eyebrow{{font-size:.75rem;letter-spacing:.12em;text-transform:uppercase;color:var(--muted);margin:0 0 .8rem}}
sub,sup{{font-size:.7em;line-height:0}}
.lead{{font-size:1.2rem;color:var(--muted);margin:.8rem 0 0}}
.equation{{font-size:1.15rem;font-style:italic;margin:1.4rem 0}}
dl.headline{{display:flex;flex-wrap:wrap;gap:1.2rem 3.2rem;margin:2.4rem 0 0;padding:1.3rem 0;
border-top:2px solid var(--ink);border-bottom:1px solid var(--rule)}}
.headline dt{{font-size:.75rem;color:var(--muted);letter-spacing:.02em}}
.headline dd{{margin:0;font-size:1.75rem;line-height:1.25;font-variant-numeric:lining-nums tabular-nums}}
table{{border-collapse:collapse;width:100%;margin:1rem 0;font-size:.95rem;
font-variant-numeric:lining-nums tabular-nums}}
th{{text-align:left;font-weight:500;font-size:.75rem;
color:var(--muted);letter-spacing:.02em}}
td,th{{padding:.42rem 1.2rem .42rem 0;border-bottom:1px solid var(--rule);vertical-align:baseline;
overflow-wrap:break-word;max-width:24rem}}
tbody th+td{{max-width:36rem}}
tr>*:last-child{{padding-right:0}}
.wide{{overflow-x:auto}}
.number{{text-align:right;white-space:nowrap;overflow-wrap:normal}}
tbody th{{width:11rem}}
figure{{margin:1.6rem 0 2.2rem}}
figure svg{{display:block;width:100%;height:auto}}
figcaption{{font-size:.82rem;
line-height:1.5;color:var(--muted);margin-top:.7rem;max-width:42rem}}
pre,code{{font-family:ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.83rem}}
pre{{line-height:1.5;overflow-x:auto;margin:1rem 0;padding:.9rem 1.1rem;
border-left:2px solid var(--rule);white-space:pre-wrap;
overflow-wrap:anywhere}}
pre b{{color:var(--warm);font-weight:500}}
details{{margin:1rem 0}}summary{{cursor:pointer;color:var(--muted);font-size:.95rem}}
a{{color:inherit;text-decoration-color:var(--accent);text-underline-offset:.15em}}
.problem{{border-left:2px solid var(--warm);padding-left:1rem;color:var(--warm)}}
footer{{margin-top:5rem;font-size:.78rem;color:var(--muted)}}
@media (max-width:40rem){{figure{{overflow-x:auto}}figure svg:has(text){{min-width:34rem}}
table{{width:max-content;min-width:100%}}td,th,tbody th+td{{max-width:14rem}}tbody th{{width:auto;max-width:7rem}}}}
@media print{{body{{font-size:10pt}}main{{padding:0;max-width:none}}figure,table{{break-inside:avoid}}}}
"""


def equation(text: str) -> Markup:
    """An equation in plain text with its subscripts and superscripts set: `h_i`, `Σ_{j∈N(i)}`, `x_<t`, `D^−½`.

    Example:
        >>> equation("A^−½ h_i")
        'A<sup>−½</sup> h<sub>i</sub>'
    """
    parts = re.split(r"([_^])(\{[^}]*\}|[<−]?[\w½])", text)
    made = list(parts[:1])
    for mark, small, after in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        made += [element("sub" if mark == "_" else "sup", small.strip("{}")), after]
    return join(made)


def figure(svg: Markup, caption: str) -> Markup:
    """A drawing, with its caption."""
    return element("figure", svg, element("figcaption", caption))


def headline(numbers: Mapping[str, str]) -> Markup:
    """The few numbers that the page is about."""
    pairs = (element("div", element("dt", name), element("dd", value)) for name, value in numbers.items())
    return element("dl", *pairs, class_="headline")


def properties(rows: Iterable[tuple[str, str]]) -> Markup:
    """A table of names and values."""
    return wide(element("tbody", *(element("tr", element("th", k), element("td", v)) for k, v in rows)))


def page(title: str, *body: str) -> Markup:
    """A whole document."""
    head = join(
        (
            Markup('<meta charset="utf-8">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
            Markup('<meta name="viewport" content="width=device-width,initial-scale=1">'),
            element("title", title),
            element("style", Markup(STYLE)),
        )
    )
    return Markup(
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body><main>{join(body)}</main></body></html>\n'
    )


def write(path: Path, title: str, kind: str, heading: str, *body: str) -> None:
    """Write a page: what kind it is, its heading, its body, and what made it."""
    made = f"Made by Edgewise {edgewise.__version__}."
    opening = element("p", f"Edgewise {kind}", class_="eyebrow"), element("h1", heading)
    content = page(f"{title} · Edgewise", *opening, *body, element("footer", made))
    write_file(path, content.encode(errors="replace"))
