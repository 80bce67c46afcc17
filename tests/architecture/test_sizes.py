"""Forwards and constructors stay small, and names are the field's. Every offender is named."""

import ast
import re

from architecture.package import SOURCES, name_of, tree_of


def test_no_forward_is_longer_than_25_lines() -> None:
    forwards = [
        (f"{name_of(path)}:{node.lineno}", (node.end_lineno or 0) - node.lineno + 1)
        for path in SOURCES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef) and node.name == "forward"
    ]
    assert [(where, lines) for where, lines in forwards if lines > 25] == []


def test_no_constructor_takes_more_than_six_arguments() -> None:
    constructors = [
        (f"{name_of(path)}:{node.lineno}", len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs) - 1)
        for path in SOURCES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    assert [(where, count) for where, count in constructors if count > 6] == []


def test_names_are_the_fields_own() -> None:
    modules = [name_of(path) for path in SOURCES if re.search("util|helper|misc|common", path.stem)]
    bases = [
        f"{name_of(path)}: {node.name}"
        for path in SOURCES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef) and node.name.lstrip("_").startswith("Base")
    ]
    assert (modules, bases) == ([], [])
