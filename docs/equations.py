"""Equations as docstrings have them, in plain text, typeset as MathML: no script, no request, nothing to install.

`typeset` takes `y_i = Σ_{j ∈ N(i)} p_ij v_j` as it stands in a docstring. Letters become variables, `_` and `^` begin
indices, words stay words. A line is cut before its relations, so that a narrow page can wrap it.
"""

import re
import unicodedata
from html import escape
from typing import NamedTuple

BIG = "ΣΠ∏∫⋃∩∪⊕⊙‖"  # with an index of their own and nothing before them: over that index
RELATIONS = ["=", "≈", "≠", "≤", "≥", "<", ">", "←", "→", "↦", "⇔", "∈", "~", "∝", ":=", "⊂"]
SUMS = ["+", "−", "±", "∪", "∩"]
PRODUCTS = ["·", "∘", "⊙", "⊕", "×", "∗", "‖", "|"]
ASCII = {"<=>": "⇔", "<=": "≤", ">=": "≥", "->": "→", "-": "−", "*": "∗", "...": "…"}
UNDER = {"max", "min", "argmax", "argmin", "lim", "mean", "top"}
FUNCTIONS = UNDER | {
    *("softmax", "exp", "log", "sin", "cos", "cosh", "sinh", "tanh", "relu", "elu", "silu", "sigmoid", "sqrt", "sgn"),
    *("hash", "readout", "diag", "tr", "deg", "sign", "clip", "mod", "rank", "round", "floor", "sort", "mask", "noise"),
    *("concat", "embed", "encode", "aggregate", "attend", "collect", "norm", "sinkhorn"),
}
LETTERS = {"QK", "BB", "Wh", "Wx", "SK", "SV", "AD", "Jm", "dL", "dW", "db", "dt", "dx", "ab", "uv", "ΔE", "ΔF", "BA"}
NAMES = {"rf", "cf", "lr", "max", "min", "pre", "th", "all", "in", "out", "own", "up"}  # indices that are words
ACCENTS = {"̂": "^", "̃": "~", "̄": "¯"}
SCRIPTS = {
    **{c: ("sub", sign) for c, sign in zip("₀₁₂₃₄₅₆₇₈₉₊₋", "0123456789+−", strict=True)},
    **{c: ("sup", sign) for c, sign in zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ᵀ", "0123456789+−T", strict=True)},
}
LETTER = r"A-Za-zΑ-Ωα-ω"
TOKEN = re.compile(
    rf"""(?P<space>\s+) | (?P<hyphen>[A-Za-z]+(?:-[a-z]{{2,}})+|'s\b)
    | (?P<big>[ΣΠ](?=[_^])(?!_\w(?:⁻|\s+diagonal))) | (?P<code>`[^`]+`) | (?P<quote>"[^"]*")
    | (?P<number>\d+(?:,\d{{3}})*(?:\.\d+)?(?:e-?\d+)?|[½¼¾])
    | (?P<word>[A-Za-z][A-Za-z]+(?!\u0302|\u0303|\u0304)) | (?P<letter>[{LETTER}ℓ∂∇∞∅][\u0302\u0303\u0304]?)
    | (?P<operator><=>|<=|>=|->|:=|\.\.\.|.)""",
    re.VERBOSE | re.DOTALL,
)
INDEX = re.compile(
    rf"[-−+]?(?:\d+|[½∞])(?![{LETTER}])"
    rf"|<?[{LETTER}0-9∞]+(?:'(?=[{LETTER}]))?[{LETTER}0-9]*(?:,[{LETTER}0-9]+)*"
    rf"|[-−+]?[{LETTER}0-9½∞]+?|[*†⋆]"
)
STAR = re.compile(r"\*(?=$|\s*[=←≈]|[^\s\w(])")  # as in ε* = …; elsewhere a product
TAG = re.compile(r"^(.*?\S)\s{2,}(\(\d[\d.]*\w?\)(?:(?:,| to| and|–)? ?\(\d[\d.]*\w?\))*)\.?$")


class Piece(NamedTuple):
    """A typeset token: its kind (atom, text, open, close, relation, sum, other), its markup, its plain text."""

    kind: str
    markup: str
    plain: str


def typeset(text: str) -> str:
    """A line of prose and equations as HTML: the equations as MathML, the words as they are."""
    return _html(_pieces(unicodedata.normalize("NFD", text.strip())))


def display(lines: list[str]) -> str:
    """The lines of an equation, each in a row, with its number at the right where it has one."""
    rows = []
    for line in _joined(lines):
        body, tag = TAG.match(line).groups() if TAG.match(line) else (line, "")
        number = f'<span class="number">{escape(tag)}</span>' if tag else ""
        rows.append(f'<div class="row"><span class="line">{typeset(body)}</span>{number}</div>')
    return f'<div class="equation">{"".join(rows)}</div>'


def _joined(lines: list[str]) -> list[str]:
    """Prose that was only broken because its line was full goes on in the same row."""
    out: list[str] = []
    for line in (line for line in lines if line.strip()):
        word = re.match(r"\s*([a-z]{2,})\b(?![_(])", line)
        if out and len(out[-1]) > 85 and word and word[1] not in FUNCTIONS and not TAG.match(out[-1]):
            out[-1] += " " + line.strip()
        else:
            out.append(line.rstrip())
    return out


def _pieces(text: str, depth: int = 0) -> list[Piece]:
    out: list[Piece] = []
    at = 0
    while at < len(text):
        piece, at = _piece(text, at, out, depth)
        if piece:
            out.append(piece)
            depth += (piece.kind == "open") - (piece.kind == "close")
            depth = max(depth, 0)
    return out


def _piece(text: str, at: int, before: list[Piece], depth: int) -> tuple[Piece | None, int]:
    found = TOKEN.match(text, at)
    assert found
    kind, token, after = found.lastgroup or "", found[0], found.end()
    if kind == "space":
        return (Piece("wide" if len(token) > 1 else "space", "", token) if before else None), after
    if kind == "code":
        return Piece("text", f"<code>{escape(token[1:-1])}</code>", token), after
    if kind in ("quote", "hyphen"):
        return Piece("text", escape(token), token), after
    if kind == "word":
        name = re.match(r"[A-Za-z]+(?:_[a-z]{3,})+", text[at:])
        if name and token not in FUNCTIONS and token.islower():
            return Piece("text", f"<code>{name[0]}</code>", name[0]), at + name.end()
        if token in LETTERS:
            token, after = token[0], at + 1
            base = f"<mi>{token}</mi>"
        elif _is_prose(token, text[after : after + 1]):
            return Piece("text", token, token), after
        else:
            base = f"<mi>{token}</mi>"
        return _scripted(text, after, base, token, "under" if token in UNDER else "atom")
    if kind == "letter":
        if (
            token in ("a", "A", "I")
            and re.match(r" [a-z]{3,}\b(?![_(])", text[after:])
            and text[at - 1 : at] in ("", " ")
        ):
            return Piece("text", token, token), after
        return _scripted(text, after, _letter(token), token, "atom")
    if kind == "number":
        return _scripted(text, after, f"<mn>{token}</mn>", token, "atom")
    return _operator(text, at, after, token, before, depth)


def _is_prose(word: str, following: str) -> bool:
    """A word that is neither a function nor the name of one: it is followed by nothing, and is no abbreviation."""
    if word in FUNCTIONS or following in ("_", "^", "(", "²", "ᵀ"):
        return False
    return not word.isupper() and not any(c.isupper() for c in word[1:])


def _letter(token: str) -> str:
    base = f"<mi>{token[0]}</mi>"
    if token[1:]:
        return f'<mover accent="true">{base}<mo stretchy="false">{ACCENTS[token[1]]}</mo></mover>'
    return base


SUMMED = {"Σ": "∑", "Π": "∏"}


def _operator(text: str, at: int, after: int, token: str, before: list[Piece], depth: int) -> tuple[Piece | None, int]:
    sign = ASCII.get(token, token)
    tight = at == 0 or not text[at - 1].isspace()
    if sign == "√":
        return _root(text, after)
    if sign in BIG and text[after : after + 1] in ("_", "^") and (sign in "ΣΠ∏∫⋃" or not tight or at == 0):
        return _scripted(text, after, _mo(SUMMED.get(sign, sign), 0, 0.1, "big"), sign, "under")
    if sign in "∏∫⋃":
        return Piece("atom", _mo(sign, 0, 0.1, "big"), sign), after
    if sign in "([{⌊⟨":
        if sign == "(" and depth == 0 and _parenthesis(text, at):
            return Piece("text", "(", "("), after
        return Piece("open", _mo(sign), sign), after
    if sign in ")]}⌋⟩":
        if depth == 0:
            return Piece("text", sign, sign), after
        piece, after = _scripted(text, after, _mo(sign), sign, "atom")
        return Piece("close", piece.markup, sign), after
    if sign in "‖|" and (tight or not text[after : after + 1].isspace()):
        return _scripted(text, after, _mo(sign), sign, "atom")
    if sign in RELATIONS:
        return Piece("relation", _mo(sign, 0.28, 0.28), sign), after
    if sign in SUMS:
        first = not before or before[-1].kind in ("open", "relation", "sum", "product", "wide", "comma")
        first = first or (before[-1].kind == "space" and len(before) > 1 and before[-2].kind in _UNARY)
        return Piece("prefix" if first else "sum", _mo(sign) if first else _mo(sign, 0.22, 0.22), sign), after
    if sign == "∗" and tight and not re.match(r"[\w(]", text[after : after + 1]):
        return Piece("atom", _mo(sign), sign), after
    if sign in PRODUCTS:
        return Piece("product", _mo(sign, 0.2, 0.2), sign), after
    if sign in ",;:":
        return Piece("comma", _mo(sign, 0, 0.2), sign), after
    if sign in "./…!%":
        return Piece("atom" if sign != "." else "comma", _mo(sign), sign), after
    return Piece("text", escape(sign), sign), after


_UNARY = ("open", "relation", "sum", "product", "comma", "text")


def _parenthesis(text: str, at: int) -> bool:
    """Whether what a parenthesis holds is mostly words."""
    depth = 0
    for end in range(at, len(text)):
        depth += (text[end] == "(") - (text[end] == ")")
        if depth == 0:
            break
    inner = text[at + 1 : end]
    words = [word for word in re.findall(r"(?<![_\w])[a-z]{2,}\b(?![_(])", inner) if word not in FUNCTIONS]
    return len(words) > 1 and text[at - 1 : at].isspace()


def _mo(sign: str, left: float = 0, right: float = 0, kind: str = "") -> str:
    big = ' class="big" movablelimits="false"' if kind else ""
    return f'<mo stretchy="false" lspace="{left:g}em" rspace="{right:g}em"{big}>{escape(sign)}</mo>'


def _root(text: str, at: int) -> tuple[Piece, int]:
    if text[at : at + 1] == "(":
        end = _closing(text, at)
        inner = _row(_pieces(text[at + 1 : end], 1))
        return Piece("atom", f"<msqrt>{inner}</msqrt>", text[at:end]), end + 1
    piece, end = _piece(text, at, [], 1)
    return Piece("atom", f"<msqrt>{piece.markup if piece else ''}</msqrt>", text[at:end]), end


def _closing(text: str, at: int) -> int:
    pairs = {"(": ")", "{": "}", "[": "]"}
    depth = 0
    for end in range(at, len(text)):
        depth += (text[end] == text[at]) - (text[end] == pairs[text[at]])
        if depth == 0:
            return end
    return len(text)


def _scripted(text: str, at: int, base: str, plain: str, kind: str) -> tuple[Piece, int]:
    """A base with all the indices and powers that follow it."""
    sub, sup, start = "", "", at
    while at < len(text):
        mark = text[at]
        if mark in SCRIPTS:
            place, value = SCRIPTS[mark]
            markup = f"<mn>{value}</mn>" if value.isdigit() else _row(_pieces(value, 1))
            sub, sup = (sub + markup, sup) if place == "sub" else (sub, sup + markup)
            at += 1
        elif mark == "'" and not re.match(r"'s\b", text[at:]):
            sup, at = sup + "<mo>′</mo>", at + 1
        elif mark == "*" and plain.isalpha() and STAR.match(text, at):
            sup, at = sup + "<mo>∗</mo>", at + 1
        elif mark in "_^" and at + 1 < len(text):
            markup, at = _script(text, at + 1, plain, mark == "^")
            if not markup:
                break
            sub, sup = (sub + markup, sup) if mark == "_" else (sub, sup + markup)
        else:
            break
    plain += text[start:at]
    tag = {"atom": ("msub", "msup", "msubsup"), "under": ("munder", "mover", "munderover")}[kind]
    if sub and sup:
        markup = f"<{tag[2]}>{base}<mrow>{sub}</mrow><mrow>{sup}</mrow></{tag[2]}>"
    elif sub or sup:
        name = tag[0] if sub else tag[1]
        markup = f"<{name}>{base}<mrow>{sub or sup}</mrow></{name}>"
    else:
        markup = base
    return Piece("atom", markup, plain), at


def _script(text: str, at: int, base: str, power: bool) -> tuple[str, int]:
    """The index or power that begins at `at`, as markup; empty where there is none."""
    if text[at] in "{(":
        end = _closing(text, at)
        inner = _row(_pieces(text[at + 1 : end], 1))
        if text[at] == "(" and not (power and base in ("e", "2")):
            inner = _mo("(") + inner + _mo(")")
        return inner, end + 1
    found = INDEX.match(text, at)
    if not found:
        return "", at
    if base in BIG and text[found.end() : found.end() + 1] == "'":
        return _row(_pieces(found[0] + "'", 1)), found.end() + 1
    parts = re.findall(rf"[A-Za-z]+|\d+|[^\s\w]|[{LETTER}]|\S", found[0])
    return "".join(_index(part) for part in parts), found.end()


def _index(part: str) -> str:
    if part.isdigit() or part == "½":
        return f"<mn>{part}</mn>"
    if not part.isalpha():
        return _mo({**ASCII, "'": "′"}.get(part, part), 0, 0.1 if part == "," else 0)
    if part in NAMES or len(part) > 3 or (part.isupper() and len(part) > 1):
        return f"<mi>{part}</mi>"
    return "".join(f"<mi>{letter}</mi>" for letter in part)


def _row(pieces: list[Piece]) -> str:
    """Pieces inside one formula: spaces between factors, words as text."""
    out = []
    for k, piece in enumerate(pieces):
        if piece.kind in ("space", "wide"):
            near = {pieces[k - 1].kind if k else "open", pieces[k + 1].kind if k + 1 < len(pieces) else "close"}
            if near <= {"atom", "text", "close", "open", "prefix"}:
                out.append(f'<mspace width="{"0.25em" if "text" in near else "0.17em"}"/>')
        elif piece.kind == "text":
            out.append(f"<mtext>{piece.markup}</mtext>")
        else:
            out.append(piece.markup)
    return "".join(out)


def _html(pieces: list[Piece]) -> str:
    """Words as HTML, formulas as MathML, cut where a line may be broken."""
    out: list[str] = []
    formula: list[Piece] = []
    depth = 0

    def close(breakable: bool = False) -> None:
        while formula and formula[-1].kind in ("space", "wide"):
            formula.pop()
        if formula:
            row = _row(formula)
            out.append(f'<math displaystyle="true">{row}</math>' + ("<wbr>" if breakable else ""))
            formula.clear()

    for k, piece in enumerate(pieces):
        depth = max(0, depth + (piece.kind == "open") - (piece.kind == "close"))
        if depth or piece.kind == "close":
            formula.append(piece)
        elif piece.kind == "text":
            close()
            out.append(piece.markup)
        elif piece.kind == "comma":
            close()
            out.append(escape(piece.plain))
        elif piece.kind == "wide":
            close()
            out.append("&emsp;")
        elif piece.kind == "space":
            around = [pieces[j].kind for j in (k - 1, k + 1) if 0 <= j < len(pieces)]
            if "text" in around or "comma" in around[:1]:
                close()
                out.append(" ")
            else:
                formula.append(piece)
        else:
            size = sum(len(other.plain) for other in formula)
            if (piece.kind == "relation" and size > 3) or (piece.kind == "sum" and size > 9):
                close(breakable=True)
            formula.append(piece)
    close()
    return "".join(out)
