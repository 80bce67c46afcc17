"""The documentation's equations: plain text becomes MathML, and nothing of it is lost."""

import re
import sys
import unicodedata
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest

from edgewise.apps.systems import SYSTEMS

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
try:
    from equations import display, typeset
finally:
    sys.path.pop(0)

SPACES = re.compile(r' (?:lspace|rspace|stretchy|movablelimits|displaystyle|class|accent|width)="[^"]*"')


def plain(text: str) -> str:
    """MathML without its spacing."""
    return SPACES.sub("", typeset(text)).replace("<math>", "").replace("</math>", "").replace("<wbr>", "")


@pytest.mark.parametrize(
    ("text", "markup"),
    [
        ("x_ij", "<msub><mi>x</mi><mrow><mi>i</mi><mi>j</mi></mrow></msub>"),
        ("d_model", "<msub><mi>d</mi><mrow><mi>model</mi></mrow></msub>"),
        ("W₁", "<msub><mi>W</mi><mrow><mn>1</mn></mrow></msub>"),
        ("x_i²", "<msubsup><mi>x</mi><mrow><mi>i</mi></mrow><mrow><mn>2</mn></mrow></msubsup>"),
        ("h_i'", "<msubsup><mi>h</mi><mrow><mi>i</mi></mrow><mrow><mo>′</mo></mrow></msubsup>"),
        ("A^-½", "<msup><mi>A</mi><mrow><mo>−</mo><mn>½</mn></mrow></msup>"),
        ("ŷ", "<mover><mi>y</mi><mo>^</mo></mover>"),
        ("ε* = 2", "<msup><mi>ε</mi><mrow><mo>∗</mo></mrow></msup><mo>=</mo><mn>2</mn>"),
        ("√(a + b)", "<msqrt><mi>a</mi><mo>+</mo><mi>b</mi></msqrt>"),
        ("√d", "<msqrt><mi>d</mi></msqrt>"),
        ("QKᵀ", "<mi>Q</mi><msup><mi>K</mi><mrow><mi>T</mi></mrow></msup>"),
        ("softmax_j(a)", "<msub><mi>softmax</mi><mrow><mi>j</mi></mrow></msub><mo>(</mo><mi>a</mi><mo>)</mo>"),
        ("k-means, i's own", "k-means, <mi>i</mi>'s own"),
        ("`rounds` times", "<code>rounds</code> times"),
    ],
)
def test_plain_text_is_typeset(text: str, markup: str) -> None:
    assert unescape(plain(text)).replace("<mspace/>", "") == markup


def test_a_sum_runs_over_what_stands_below_it() -> None:
    markup = plain("Σ_{j ∈ N(i)} x_j").replace("<mspace/>", "")
    assert markup.startswith(
        "<munder><mo>∑</mo><mrow><mi>j</mi><mo>∈</mo><mi>N</mi><mo>(</mo><mi>i</mi><mo>)</mo></mrow>"
    )
    assert plain("Σ_k⁻¹").startswith("<msubsup><mi>Σ</mi>")  # a covariance


def test_numbers_of_equations_stand_at_the_right_and_prose_goes_on() -> None:
    html = display(
        [
            "y = A x    (4.10)",
            "",
            "where a line that is so long that it was broken before its end goes on " + "x" * 20,
            "in the next",
        ]
    )
    assert '<span class="number">(4.10)</span>' in html
    assert html.count('class="row"') == 2
    assert "x in the next" in html


def docstrings() -> list[str]:
    pattern = re.compile(r"^( *)(?:Equation|Symbols) +(.*(?:\n\1 {5,}.*)*)", re.MULTILINE)
    files = sorted((ROOT / "src" / "edgewise").rglob("*.py"))
    return [
        line for file in files for found in pattern.finditer(file.read_text("utf-8")) for line in found[2].split("\n")
    ]


def test_every_equation_of_the_package_is_well_formed_and_loses_no_letter() -> None:
    lines = docstrings() + [row.equation for row in SYSTEMS]
    assert len(lines) > 500
    for line in lines:
        html = typeset(line)
        ElementTree.fromstring(f"<p>{html.replace('<wbr>', '').replace('&emsp;', ' ')}</p>")  # noqa: S314 (our own)
        shown = unescape(re.sub(r"<[^>]+>", "", html)).replace("∑", "Σ").replace("∏", "Π")
        letters = re.compile(r"[^A-Za-zΑ-Ωα-ω0-9]")
        written = unicodedata.normalize("NFKD", line).replace("½", "1⁄2")
        assert sorted(letters.sub("", unicodedata.normalize("NFKD", shown))) == sorted(letters.sub("", written)), line
