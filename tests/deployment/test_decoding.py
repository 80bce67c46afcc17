"""A decoding step with a cache continues texts as `generate` does, in processes that cannot import Edgewise."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from deployment.families import FAMILIES, TOKENS, text, transformer
from deployment.test_exporting import OTHERS, RUN, compared, save_call
from edgewise.deployment import export
from edgewise.errors import ExportError
from edgewise.graphs import causal, complete, strided, window

STEPS = 40  # more than two lengths: the older half is dropped several times
ALONE = RUN[: RUN.index("import numpy")] + "import runpy; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0])"


def decoder(positions: str, **options):
    torch.manual_seed(0)
    model = transformer(TOKENS, positions=positions, **options).eval()
    for weight in model.parameters():  # so that logits differ, but not so far that float32 fails
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.5)
    return model


def continued(script: Path, prompt: torch.Tensor) -> list[list[int]]:
    np.savez(script.with_name("prompt.npz"), tokens=prompt.numpy())
    command = [sys.executable, "-c", ALONE, script.name, str(STEPS), "prompt.npz"]
    made = subprocess.run(command, cwd=script.parent, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[-3000:]
    return json.loads(made.stdout.splitlines()[-1])


def same_as_generate(folder: Path, to: str, pattern, model) -> None:
    file = folder / f"step.{to}"
    made = export(model, text(0, pattern=pattern), to, file, cache=True)
    for number in OTHERS:
        save_call(folder / f"step.call{number}.npz", made, text(number, pattern=pattern))
    worst = compared(folder, [file])
    assert len(worst) == 1 and max(worst.values()) <= 1e-5, worst
    different: set[int] = set()
    for prompt in (torch.tensor([[3]]), torch.randint(30, (2, 7)), torch.randint(30, (1, 20))):
        right = model.generate(prompt, STEPS, pattern, temperature=0.0)
        different |= set(right[:, -STEPS:].flatten().tolist())
        assert continued(file.with_name(f"{file.name}.py"), prompt) == right.tolist()
    assert len(different) > 4


@pytest.mark.compiled
@pytest.mark.timeout(600)
def test_a_decoding_step_continues_texts_as_generate_does(tmp_path: Path) -> None:
    same_as_generate(tmp_path, "onnx", causal, decoder("learned"))


@pytest.mark.exports
@pytest.mark.timeout(600)
@pytest.mark.parametrize("to", ["onnx", "pt2"])
@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi", "none", "sinusoidal"])
def test_every_kind_of_positions_has_a_decoding_step(positions: str, to: str, tmp_path: Path) -> None:
    same_as_generate(tmp_path, to, causal, decoder(positions))


@pytest.mark.exports
@pytest.mark.timeout(600)
@pytest.mark.parametrize("to", ["onnx", "pt2"])
@pytest.mark.parametrize("pattern", ["window", "strided"])
def test_a_rule_that_looks_back_a_part_of_the_way_has_a_decoding_step(pattern: str, to: str, tmp_path: Path) -> None:
    def make(n: int):
        return window(n, 3, sides="past") if pattern == "window" else strided(n, 4)

    same_as_generate(tmp_path, to, make, decoder("rotary"))


def test_the_step_reads_and_returns_each_blocks_keys_and_values(tmp_path: Path) -> None:
    made = export(decoder("learned"), text(0, pattern=causal), "pt2", tmp_path / "step.pt2", cache=True)
    past = {f"past_{kind}_{block}": ["B", 2, "P", 4] for block in range(2) for kind in ("keys", "values")}
    assert made.inputs == {"tokens": ["B", "N"], **past}
    assert made.outputs == ("y", "keys_0", "values_0", "keys_1", "values_1")
    assert (made.about["length"], made.about["dtype"]) == (16, "float32")
    page = (tmp_path / "step.pt2.md").read_text()
    assert "| `past_keys_1` | float32 | [B, 2, P, 4] |" in page and "P tokens of the past, 0 at first" in page


@pytest.mark.parametrize(
    ("model", "pattern", "to", "why"),
    [
        (FAMILIES["bert"].model, complete, "onnx", "a BERT has no cache"),
        (lambda: decoder("learned"), complete, "onnx", "no position attends to a later one"),
        (lambda: decoder("learned"), causal, "aoti", "not written as aoti: choose one of onnx, pt2"),
        (lambda: transformer(TOKENS, attention="linear"), causal, "pt2", "is not keys and values"),
    ],
)
def test_what_has_no_decoding_step_is_refused_with_the_reason(model, pattern, to: str, why: str) -> None:
    with pytest.raises(ExportError, match=why):
        export(model(), text(0, pattern=pattern), to, cache=True)
