import pytest

from apps.markup import Page
from edgewise.apps.report import pages
from edgewise.apps.report.pages import Markup, element


def test_text_and_attributes_are_escaped_and_markup_is_not() -> None:
    made = element("p", "a < b & ", Markup("<b>c</b>"), title='say "no"')
    assert made == '<p title="say &quot;no&quot;">a &lt; b &amp; <b>c</b></p>'


def test_elements_nest_without_being_escaped_twice() -> None:
    assert element("div", element("p", "<")) == "<div><p>&lt;</p></div>"


@pytest.mark.parametrize(
    ("text", "set_"),
    [
        ("h_i", "h<sub>i</sub>"),
        ("⊕_{j∈N(i)} φ(h_i, h_j)", "⊕<sub>j∈N(i)</sub> φ(h<sub>i</sub>, h<sub>j</sub>)"),
        ("p(x_t | x_<t)", "p(x<sub>t</sub> | x<sub>&lt;t</sub>)"),
        ("D̃^−½ Ã", "D̃<sup>−½</sup> Ã"),
        ("a < b", "a &lt; b"),
        ("", ""),
    ],
)
def test_an_equation_is_set_with_its_indices(text: str, set_: str) -> None:
    assert pages.equation(text) == set_


def test_a_table_sets_numbers_flush_right() -> None:
    made = pages.table(["name", "value"], [["<x>", "1"]], numbers=("value",))
    assert '<td>&lt;x&gt;</td><td class="number">1</td>' in made
    assert '<th>name</th><th class="number">value</th>' in made


def test_a_table_that_is_wider_than_the_page_moves_sideways_and_its_heads_break_at_underscores() -> None:
    made = pages.table(["learning_rate", "<x>"], [["1", "2"]])
    assert made.startswith('<div class="wide"><table><thead><tr><th>learning_<wbr>rate</th><th>&lt;x&gt;</th>')
    assert pages.properties([("a_b", "c_d")]).endswith("<th>a_b</th><td>c_d</td></tr></tbody></table></div>")


def test_a_page_is_one_well_formed_document_that_may_request_nothing() -> None:
    document = pages.page("<title>", element("h1", "& so on"))
    assert document.startswith("<!DOCTYPE html>")
    assert "<title>&lt;title&gt;</title>" in document
    policy = Page(document).policy
    assert "default-src 'none'" in policy
    assert "script" not in policy
