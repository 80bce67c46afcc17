"""`edgewise store`: what it prints, and what it refuses."""

import json
from pathlib import Path

import numpy as np
import pytest

from edgewise.apps.command.main import main


def test_build_info_and_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "edges.npy", np.array([[0, 1, 2], [1, 2, 0]]))
    out = str(tmp_path / "ring")
    assert main(["store", "build", "--edges", str(tmp_path / "edges.npy"), "--out", out, "--undirected"]) == 0
    assert "3 nodes, 6 edges" in capsys.readouterr().out
    assert main(["store", "info", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["arrays"] == {"offsets": [4], "senders": [6]}
    assert main(["store", "check", out]) == 0
    assert "every byte is what its hash says" in capsys.readouterr().out


def test_the_ends_of_edges_may_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "edges.csv").write_text("von,nach\n0,1\n2,1\n")
    build = ["store", "build", "--edges", str(tmp_path / "edges.csv"), "--out", str(tmp_path / "store")]
    assert main(build) == 2
    assert "give --ends FROM,TO" in capsys.readouterr().err
    assert main([*build, "--ends", "von, nach"]) == 0
    assert "3 nodes, 2 edges" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["build"], "store build needs --edges FILE ... and --out STORE"),
        (["info"], "store info takes the folder of a store"),
        (["info", "s", "--memory", "2GB"], "store info takes the folder of a store, and no option of build"),
        (["check", "s", "--undirected"], "store check takes the folder of a store, and no option of build"),
        (["info", "s", "--features", "int8"], "store info takes the folder of a store, and no option of build"),
        (["check", "nowhere"], "nowhere is no store"),
        (["build", "--edges", "e.npy", "--out", "x", "--memory", "much"], "'much' is no size"),
        (["mend"], "'mend' is unknown; known are build, info, check"),
    ],
)
def test_what_is_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", *words]) == 2
    assert message in capsys.readouterr().err
