import ast
import subprocess
import sys
from pathlib import Path

import pytest

import edgewise


def test_every_public_name_loads() -> None:
    for name, home in edgewise._HOME.items():
        assert getattr(edgewise, name) is getattr(sys.modules[home], name)


def test_the_type_checker_sees_the_same_names() -> None:
    tree = ast.parse(Path(edgewise.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.asname: node.module for node in block.body for alias in node.names}
    assert seen == edgewise._HOME


def test_dir_lists_the_public_names() -> None:
    assert {"Graph", "attend", "__version__"} <= set(dir(edgewise))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'atend'"):
        edgewise.atend  # noqa: B018


def test_importing_edgewise_imports_no_torch() -> None:
    code = "import edgewise, edgewise.apps.command_line, sys; assert 'torch' not in sys.modules, 'torch'"
    subprocess.run([sys.executable, "-c", code], check=True)
