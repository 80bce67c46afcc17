"""`edgewise export RUN`: the file, what is beside it, and the script, in processes that cannot import Edgewise."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import edgewise
from edgewise.apps.command.main import main


def script(file: Path) -> str:
    """What the script beside a file prints, where the package cannot be imported."""
    command = [sys.executable, f"{file.name}.py"]
    return subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=True, env={}).stdout


@pytest.mark.compiled
@pytest.mark.parametrize("to", ["onnx"])
def test_a_run_is_exported_with_its_classes(to: str, trained, capsys, tmp_path: Path) -> None:
    file = tmp_path / f"karate.{to}"
    assert main(["export", str(trained("gnn")), "--to", to, "--out", str(file), "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["inputs"] == {"x": "[N, 34]", "edge_index": "[2, E]"} and said["outputs"] == ["y"]
    assert "'classes': [" in script(file)


@pytest.mark.compiled
def test_an_image_is_read_as_pixels(trained, tmp_path: Path) -> None:
    import onnxruntime

    file = tmp_path / "digits.onnx"
    assert main(["export", str(trained("digits")), "--out", str(file)]) == 0
    loaded = edgewise.load(trained("digits"))
    pixels = np.stack([loaded.task.read(f"test:{number}")[0].numpy() for number in range(7)]).astype("float32")
    (y,) = onnxruntime.InferenceSession(file).run(None, {"pixels": pixels})
    expected = loaded.predict([f"test:{number}" for number in range(7)])
    probabilities = torch.from_numpy(y).softmax(-1)
    for row, prediction in zip(probabilities, expected, strict=True):
        named = dict(zip(loaded.task.classes, row.tolist(), strict=True))
        assert named == pytest.approx(prediction["probabilities"], abs=1e-5)


@pytest.mark.compiled
def test_a_text_model_has_its_vocabulary_and_lies_in_the_run_by_default(own) -> None:
    run = own("text")
    assert main(["export", str(run), "--to", "pt2"]) == 0
    assert "'vocabulary': " in script(run / "model.pt2")


@pytest.mark.compiled
def test_a_text_models_decoding_step_comes_with_a_script_that_continues_a_text(own, tmp_path: Path) -> None:
    run, file = own("text"), tmp_path / "step.onnx"
    assert main(["export", str(run), "--cache", "--out", str(file)]) == 0
    tokens = np.load(tmp_path / "step.onnx.npz")["tokens"]
    loaded = edgewise.load(run)
    expected = loaded.model.generate(
        torch.from_numpy(tokens), 16, partial(loaded.task.graph, loaded.pattern), temperature=0.0
    )
    assert json.loads(script(file)) == expected.tolist()
