"""What a user can get wrong: each is one line on standard error and exit code 2, and nothing is left behind."""

import hashlib
import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from edgewise.apps import recipes
from edgewise.apps.command.main import main

COMMANDS = {
    # command line: a part of the complaint
    "trian karate": "did you mean 'train'",
    "lst": "did you mean 'list'",
    "frobnicate": "'frobnicate' is unknown",
    "--frobnicate": "unknown option '--frobnicate'",
    "--versoin": "did you mean '--version'",
    "list --jsn": "did you mean '--json'",
    "list sistems": "did you mean 'systems'",
    "list systems recipes": "unexpected argument 'recipes'",
    "demo --rnu x": "did you mean '--run'",
    "demo --run": "expected one argument",
    "demo extra": "unexpected argument 'extra'",
    "train": "train needs a RECIPE",
    "train cora-gnc": "did you mean 'cora-gcn'",
    "train zebra": "`edgewise list recipes` names them all",
    "train ''": "unknown recipe ''",
    "train ../karate": "cannot read '../karate'",
    "train missing.yaml": "cannot read 'missing.yaml'",
    "train ./missing": "cannot read 'missing'",
    "train .": "unknown recipe '.'",
    "train ./": "cannot read '.': Is a directory",
    "train karate extra": "unexpected argument 'extra'",
    "train karate --seeds": "expected one argument",
    "train demo-karate --model.width 10000000": "1,200,000,520,000,002 weights, which takes 4.8 PB",
    "train karate --seeds 0": "not a whole number from 1",
    "train karate --seeds -3": "not a whole number from 1",
    "train karate --seeds 1.5": "not a whole number from 1",
    "train karate --seeds ten": "not a whole number from 1",
    "train karate --seeds 99999999999999999999": "not a whole number from 1",
    "train karate --sedes 3": "did you mean '--seeds'",
    "train karate --run": "expected one argument",
    "train karate -x": "unknown option '-x'",
    "train karate --train.steps": "--train.steps needs a value",
    "train karate --train.steps --train.batch 3": "--train.steps needs a value",
    "resume": "the following arguments are required: RUN",
    "resume nowhere": "nowhere is not a run folder",
    "resume a b": "unexpected argument 'b'",
    "evaluate nowhere": "nowhere is not a run folder",
    "evaluate": "the following arguments are required: RUN",
    "predict nowhere 3": "nowhere is not a run folder",
    "predict nowhere": "the following arguments are required: INPUT",
    "generate nowhere": "nowhere is not a run folder",
    "generate nowhere --steps 0": "not a whole number from 1",
    "generate nowhere --steps -1": "not a whole number from 1",
    "generate nowhere --temperature hot": "'hot' is not a number >= 0",
    "generate nowhere --temperature -1": "'-1' is not a number >= 0",
    "generate nowhere --temperature nan": "'nan' is not a number >= 0",
    "generate nowhere --temperature inf": "'inf' is not a number >= 0",
    "generate nowhere --top-k 0": "not a whole number from 1",
    "generate nowhere --topk 5": "did you mean '--top-k'",
    "generate nowhere --seed -1": "not a whole number from 0",
    "generate nowhere --no-cach": "did you mean '--no-cache'",
    "plan": "name a pattern, such as",
    "plan windw n=4": "did you mean 'window'",
    "plan window": "window.n and window.radius are missing",
    "plan window n=4": "window.radius is missing",
    "plan window n=4 radius=1 radius=2": "given twice",
    "plan window n=4 raduis=1": "did you mean 'radius'",
    "plan window 4 1": "write '4' as OPTION=VALUE",
    "plan window n=4 radius=-1": "radius must be at least 0",
    "plan window n=4 radius=1 sides=left": "window.sides must be one of both, past",
    "plan window n=4 radius=1 dilation=0": "dilation must be at least 1",
    "plan causal n=four": "causal.n must be an integer",
    "plan causal n=-1": "n must be at least 0",
    "plan causal n=1.5": "causal.n must be an integer",
    "plan causal n=": "causal.n must be an integer",
    "plan strided n=4 stride=0": "stride must be at least 1",
    "plan grid height=3 width=3 neighbors=5": "4 or 8",
    "plan causal n=4 --heads 0": "not a whole number from 1",
    "plan causal n=4 --channels x": "not a whole number from 1",
    "plan causal n=4 --batch 0": "not a whole number from 1",
    "plan causal n=4 --dtype float8": "'float8' is unknown",
    "plan causal n=4 --score Dott": "did you mean 'Dot'",
    "plan causal n=4 --heds 2": "did you mean '--heads'",
}

OPTIONS = {
    # options of `edgewise train karate`: a part of the complaint
    "--train.stps 4": "did you mean 'steps'",
    "--trian.steps 4": "did you mean 'train'",
    "--steps.train 4": "the configuration takes no option 'steps'; it takes task, model",
    "--.steps 4": "the configuration takes no option ''; it takes task",
    "--train. 4": "train takes no option ''; it takes steps",
    "--train.steps.more 4": "train.steps.more: steps is one value",
    "--train.steps 4.5": "train.steps",
    "--train.steps many": "train.steps",
    "--train.steps -1": "train.steps must be at least 1",
    "--train.steps 0": "train.steps must be at least 1",
    "--train.steps [4]": "train.steps",
    "--train.steps null": "train.steps",
    "--train.batch 0": "train.batch must be at least 1",
    "--train.accumulate 0": "train.accumulate must be at least 1",
    "--train.clip -1": "train.clip must be at least 0",
    "--train.clip .inf": "train.clip",
    "--machine.precision float8": "machine.precision",
    "--evaluation.every 0": "evaluation.every must be at least 1",
    "--train.checkpoints.every 0": "train.checkpoints.every must be at least 1",
    "--evaluation.patience -1": "evaluation.patience must be at least 0",
    "--train.checkpoints.keep 0": "train.checkpoints.keep must be at least 1",
    "--train.seed -1": "train.seed must be at least 0",
    "--train.seed 1e400": "train.seed",
    "--machine.device gpu": "machine.device must be auto, cpu",
    "--machine.device cuda:99": "machine.device 'cuda:99'",
    "--machine.deterministic perhaps": "machine.deterministic",
    "--optimizer.name adm": "optimizer 'adm' is unknown; did you mean 'adam'",
    "--optimizer.learning_rate nan": "optimizer.learning_rate",
    "--optimizer.learning_rate .inf": "optimizer.learning_rate",
    "--optimizer.learning_rate 0": "optimizer.learning_rate must be above 0",
    "--optimizer.learning_rate fast": "optimizer.learning_rate",
    "--optimizer.learning_rate '!!python/object/apply:os.system [exit]'": "optimizer.learning_rate",
    "--optimizer.weight_decay -1": "optimizer.weight_decay must be at least 0",
    "--optimizer.betas [0.9]": "optimizer.betas",
    "--optimizer.betas 0.9": "optimizer.betas",
    "--optimizer.betas [0.9,2]": "optimizer.betas must be at least 0 and below 1",
    "--optimizer.decay_prefix zebra.": "optimizer.decay_prefix 'zebra.' starts no name",
    "--optimizer.class_path os.system": "optimizer 'adam' takes no option 'class_path'; it takes learning_rate",
    "--optimizer.init_args.name adam": "optimizer 'adam' takes no option 'init_args'",
    "--schedule.name cosin": "schedule 'cosin' is unknown; did you mean 'cosine'",
    "--schedule.warmup -1": "schedule.warmup must be at least 0",
    "--schedule.name cosine --schedule.minimum 2": "schedule.minimum must be at least 0 and at most 1, not 2.0",
    "--task.name karat": "did you mean 'karate'",
    "--task.name os.system": "task 'os.system' is unknown: choose one of",
    "--task.loops perhaps": "task.loops",
    "--task.folder x": "task 'karate' takes no option 'folder'; it takes loops",
    "--task.name text --task.context 0": "context must be at least 1",
    "--task.name text --task.file nowhere.txt": "nowhere.txt",
    "--task.name text --task.file .": "cannot be read",
    "--task.name text --task.source novels": "task.source",
    "--task.name text --model.positions sideways": "positions 'sideways' is unknown",
    "--task.name digits --task.patch 3 --model.readout mean": "patch=3 does not cut",
    "--task.name digits --model.readout middle": "readout 'middle' is unknown",
    "--task.name digits": "choose a readout",
    "--task.name citation --task.dataset coral": "task.dataset",
    "--task.name citation --task.folder nowhere": "no folder with all files",
    "--task.name mnist --task.folder nowhere --model.readout mean": "no folder with all files",
    "--graph.name windw": "did you mean 'window'",
    "--graph.name window": "graph.radius is missing",
    "--graph.name window --graph.radius many": "graph.radius",
    "--graph.name window --graph.radius -1": "radius must be at least 0",
    "--graph.name window --graph.raduis 1": "did you mean 'radius'",
    "--graph.name blocks --graph.size 0": "size must be at least 1",
    "--graph.name grid": "does not fit 34 positions",
    "--graph.radius 3": "graph 'given' takes no option 'radius'; it takes none",
    "--task.name text --graph.name complete": "see the next one",
    "--model.name gnm": "model 'gnm' is unknown; did you mean 'gnn'",
    "--model.name gnn --model.layer gcm": "layer 'gcm' is unknown",
    "--model.name gnn --model.layer gat --model.layer.heads 5": "5 heads do not divide",
    "--model.name gnn --model.norm layr": "norm 'layr' is unknown",
    "--model.name gnn --model.connection dense": "connection 'dense' is unknown",
    "--model.name gnn --model.activation swish": "activation 'swish' is unknown",
    "--model.name mlp --task.name text": "Perceptron reads features of nodes",
    "--model.name mlp --model.hidden 8": "model.hidden",
    "--model.name mlp --model.hidden [8,x]": "model.hidden",
    "--model.heads 3": "3 heads do not divide a width of 32",
    "--model.heads 0": "0 heads",
    "--model.width 0": "width",
    "--model.width -8": "width",
    "--model.width 99999999999999999999": "model.width must be an integer",
    "--model.depth -1": "depth",
    "--model.block sideways": "model.block 'sideways' is unknown",
    "--model.readout mean": "readout='mean' must be 'none'",
    "--model.dropout 2": "dropout",
    "--model.positions learned": "positions='learned' needs a task whose graphs have a largest length",
    "--model.attention.chunk 4": "model.attention 'softmax' takes no option 'chunk'; it takes key_value_heads",
    "--model.attention lsh --model.attention.chnk 4": "did you mean 'chunk'? it takes chunk, buckets, rounds",
    "--model.attention lsch": "model.attention 'lsch' is unknown; did you mean 'lsh'",
    "--model.attention.heads.more 4": "takes no option 'heads'",
    "--optimizer sgld --optimizer.betas [0.9,0.9]": "optimizer 'sgld' takes no option 'betas'; it takes learning_rate",
    "--schedule constant --schedule.minimum 0.1": "schedule 'constant' takes no option 'minimum'; it takes warmup",
    "--model gnn --model.layer gcn --model.layer.heads 2": "model.layer 'gcn' takes no option 'heads'; it takes none",
    "--model.tied true": "tied=True needs a task that reads and writes the same tokens",
    "--model.attention.key_value_heads 3": "key",
}

RECIPES = {
    # name of the case: the recipe's text, a part of the complaint
    "empty": ("", "must be a mapping"),
    "a list": ("[1, 2]", "must be a mapping"),
    "a word": ("karate", "must be a mapping"),
    "no YAML": ("task: [", "not valid YAML"),
    "tabs": ("task:\n\tname: karate", "not valid YAML"),
    "a null byte": ("task: {name: 'kar\0ate'}", "not valid YAML"),
    "an unknown section": ("tsk: {name: karate}", "did you mean 'task'"),
    "a number as a section": ("1: {name: karate}", "unknown section 1"),
    "a section that is a list": ("task: [karate]\nmodel: gnn", "task must be a name with options, not a list"),
    "a section that is a word": (
        "task: karate\nmodel: gnn\ntrain: long",
        "train must hold options by name, not 'long'",
    ),
    "an empty section": ("task:\nmodel: gnn", "task must be a name with options, not None"),
    "no task": ("model: {name: gnn}", "names no task"),
    "no model": ("task: {name: karate}", "names no model"),
    "an unknown task": ("task: {name: kareta}\nmodel: {name: gnn}", "did you mean 'karate'"),
    "a task that is a number": ("task: {name: 3}\nmodel: {name: gnn}", "task must be a name, not 3"),
    "a task that is a list": ("task: {name: [karate]}\nmodel: {name: gnn}", "task must be a name, not a list"),
    "an unknown model": ("task: {name: karate}\nmodel: {name: gnnn}", "did you mean 'gnn'"),
    "an unknown graph": ("task: {name: karate}\nmodel: {name: gnn}\ngraph: {name: casual}", "did you mean 'causal'"),
    "an unknown option": ("task: {name: karate, lops: true}\nmodel: {name: gnn}", "did you mean 'loops'"),
    "an option that is a number": (
        "task: {name: karate, 3: 4}\nmodel: {name: gnn}",
        "task has an option 3, which is not a name",
    ),
    "a mapping as a value": ("task: {name: karate, loops: {a: b}}\nmodel: {name: gnn}", "not a mapping"),
    "a nested list": ("task: {name: karate}\nmodel: {name: mlp, hidden: [[8]]}", "not a list"),
    "a text for a number": ("task: {name: karate}\nmodel: {name: gnn, width: wide}", "model.width"),
    "a fraction for a whole number": ("task: {name: karate}\nmodel: {name: gnn, width: 8.5}", "model.width"),
    "a truth value for a number": ("task: {name: karate}\nmodel: {name: gnn, width: true}", "model.width"),
    "nothing for a number": ("task: {name: karate}\nmodel: {name: gnn, width: }", "model.width"),
    "not a number": ("task: {name: karate}\nmodel: {name: gnn, dropout: .nan}", "must be a finite number"),
    "infinity": ("task: {name: karate}\nmodel: {name: gnn, dropout: -.inf}", "must be a finite number"),
    "a date": ("task: {name: karate}\nmodel: {name: gnn, width: 2020-01-01}", "not a date"),
    "an impossible date": ("task: {name: karate}\nmodel: {name: gnn, width: 2020-99-99}", "not valid YAML"),
    "an option given twice": ("task: {name: karate, name: text}\nmodel: {name: gnn}", "'name' is given twice"),
    "a section given twice": ("task: {name: karate}\ntask: {name: text}", "'task' is given twice"),
    "an alias": ("task: &a {name: karate}\nmodel: *a", "aliases (*name) are not allowed"),
    "a merge": ("task: &a {name: karate}\nmodel: {<<: *a}", "aliases (*name) are not allowed"),
    "a python tag": ("task: !!python/object/apply:os.system ['echo hi']", "not valid YAML"),
    "a python name": ("task: !!python/name:os.system", "not valid YAML"),
    "a binary value": ("task: {name: karate}\nmodel: {name: gnn, layer: !!binary aGk=}", "not a bytes"),
    "a set": ("task: {name: karate}\nmodel: {name: gnn, layer: !!set {a}}", "not a set"),
    "a class path": ("task: {name: karate}\noptimizer: {class_path: os.system}\nmodel: {name: gnn}", "class_path"),
    "a class path with arguments": (
        "task: {name: karate}\nmodel: {name: gnn}\noptimizer: {class_path: antigravity, init_args: {a: 1}}",
        "optimizer 'adamw' takes no option 'class_path'",
    ),
    "deep nesting": ("task: " + 20_000 * "[", "not valid YAML"),
    "two documents": ("task: {name: karate}\n---\nmodel: {name: gnn}", "not valid YAML"),
    "a description that is a list": ("description: [a]\ntask: {name: karate}\nmodel: {name: gnn}", "must be text"),
    "systems that are a word": ("system: B5\ntask: {name: karate}\nmodel: {name: gnn}", "a list of identifiers"),
    "too large": ("# " + 70_000 * "x", "is larger than 64 KiB"),
    "a huge number": (f"task: {{name: karate}}\nmodel: {{name: gnn, width: {10**30}}}", "model.width"),
    "a number of many digits": (f"task: {{name: karate}}\nmodel: {{width: {5000 * '9'}}}", "not valid YAML"),
}


def configuration(text: bytes) -> Callable[[Path], None]:
    """Replace a run's configuration."""
    return lambda run: (run / "config.yaml").write_bytes(text) and None


def checkpoints(name: str, content: bytes) -> Callable[[Path], None]:
    """Replace a file of all checkpoints."""

    def damage(run: Path) -> None:
        for checkpoint in (run / "checkpoints").iterdir():
            (checkpoint / name).write_bytes(content)

    return damage


def no_configuration(run: Path) -> None:
    (run / "config.yaml").unlink()


def another_model(run: Path) -> None:
    text = (run / "config.yaml").read_text(encoding="utf-8")
    (run / "config.yaml").write_text(text.replace("width: 8", "width: 16"), encoding="utf-8")


def no_checkpoints(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")


def one_byte_altered(run: Path) -> None:
    for checkpoint in (run / "checkpoints").iterdir():
        weights = checkpoint / "best.safetensors"
        content = weights.read_bytes()
        weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


DAMAGE = {
    # what happened to the run folder: how, and a part of the complaint
    "no configuration": (no_configuration, "it holds no config.yaml"),
    "an empty configuration": (configuration(b""), "the configuration must hold options"),
    "a configuration that is a list": (configuration(b"[1]"), "the configuration must hold options"),
    "a configuration that is no YAML": (configuration(b"{"), "not valid YAML"),
    "a python tag": (configuration(b"task: !!python/object/apply:os.system [echo]"), "not valid YAML"),
    "a configuration without a task": (configuration(b"{layout: 5, model: gnn}"), "task is missing"),
    "a configuration that is binary": (configuration(b"\xff\xfe\x00"), "is not UTF-8 text"),
    "an older layout": (
        configuration(b"task: karate"),
        "has layout 1, and this version reads layout 5: go on with the",
    ),
    "a newer layout": (configuration(b"{layout: 6, task: karate}"), "has layout 6, and this version reads layout 5"),
    "an unknown layout": (configuration(b"{layout: new}"), "has an unknown layout, and this version reads layout 5"),
    "another model's configuration": (another_model, "config.yaml was altered since step-00000004 was saved"),
    "no checkpoints": (no_checkpoints, "no checkpoint"),
    "truncated weights": (checkpoints("best.safetensors", b"\x08"), "is intact"),
    "one byte altered": (one_byte_altered, "is intact"),
    "an empty state": (checkpoints("state.json", b""), "is intact"),
    "a state that is no JSON": (checkpoints("state.json", b"{"), "is intact"),
    "a state that is a list": (checkpoints("state.json", b"[]"), "is intact"),
    "a state without hashes": (checkpoints("state.json", b'{"state": {}}'), "is intact"),
}

REQUESTS = {
    # run, command and input: a part of the complaint
    ("karate", "predict", "34"): "no node '34'",
    ("karate", "predict", "-1"): "no node '-1'",
    ("karate", "predict", "zebra"): "no node 'zebra'",
    ("karate", "predict", "1,,2"): "no node ''",
    ("karate", "predict", ""): "no node ''",
    ("karate", "predict", "99999999999999999999"): "no node",
    ("digits", "predict", "zebra"): "give a .npy or .png file",
    ("digits", "predict", "nowhere.npy"): "nowhere.npy",
    ("digits", "predict", "nowhere.png"): "nowhere.png",
    ("digits", "predict", "test:360"): "has 360 images in test",
    ("text", "predict", ""): "the prompt is empty",
    ("text", "predict", "\N{SNOWMAN}"): "character '☃' at position 0",
    ("text", "generate", ""): "the prompt is empty",
    ("text", "generate", "ab\N{SNOWMAN}"): "character '☃' at position 2",
    ("karate", "generate", "ab"): "karate generates nothing: only texts and graphs are written",
    ("digits", "generate", "ab"): "digits generates nothing: only texts and graphs are written",
}


def listing(folder: Path) -> dict[str, str]:
    """Everything in a folder, with the hash of each file."""
    paths = sorted(folder.rglob("*"))
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for path in paths}


def complaint(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must be refused, in the current folder, and return its one line on standard error."""
    capsys.readouterr()
    before = listing(Path())
    assert main(arguments) == 2
    assert listing(Path()) == before
    told = capsys.readouterr()
    last = told.err.strip().splitlines()[-1]
    assert last.startswith("edgewise: error: ")
    assert "Traceback" not in told.err
    assert len(last) < 1500
    return last


@pytest.mark.parametrize("line", COMMANDS)
def test_a_mistyped_command_is_refused(line: str, capsys) -> None:
    assert COMMANDS[line] in complaint(shlex.split(line), capsys)


@pytest.mark.parametrize("options", OPTIONS)
def test_an_option_that_cannot_be_is_refused(options: str, capsys, tmp_path) -> None:
    words = shlex.split(options)
    recipe = "karate"
    if "--task.name" in words and words[words.index("--task.name") + 1] in ("text", "digits", "mnist"):
        # A recipe takes tasks of its own kind alone: the same recipe for this one.
        task = words[words.index("--task.name") + 1]
        written = (recipes.FOLDER / "karate.yaml").read_text().replace("name: karate\n  loops: true", f"name: {task}")
        recipe = str(tmp_path / "mine.yaml")
        (tmp_path / "mine.yaml").write_text(written)
    assert OPTIONS[options] in complaint(["train", recipe, *words], capsys)


@pytest.mark.parametrize("case", RECIPES)
def test_a_malformed_recipe_is_refused(case: str, capsys) -> None:
    text, expected = RECIPES[case]
    Path("mine.yaml").write_text(text, encoding="utf-8")
    assert expected in complaint(["train", "mine.yaml"], capsys)


def test_a_recipe_that_is_not_text_is_refused(capsys) -> None:
    Path("mine.yaml").write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8 text" in complaint(["train", "mine.yaml"], capsys)


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_run_is_refused(case: str, own, capsys) -> None:
    run = own("karate")
    damage, expected = DAMAGE[case]
    damage(run)
    assert expected in complaint(["evaluate", str(run)], capsys)


@pytest.mark.parametrize("command", ["resume RUN", "evaluate RUN", "predict RUN 3", "generate RUN"])
def test_every_command_refuses_a_run_of_another_layout(command: str, own, capsys) -> None:
    run = own("karate")
    config = run / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("layout: 5", "layout: 1"), encoding="utf-8")
    expected = f"{run} has layout 1, and this version reads layout 5: go on with the version that wrote it, or train it"
    assert expected in complaint(command.replace("RUN", str(run)).split(), capsys)
    assert expected in complaint(["train", "karate", "--start.run", str(run)], capsys)


@pytest.mark.parametrize("command", ["resume RUN", "evaluate RUN", "predict RUN 3", "generate RUN"])
def test_every_command_refuses_an_altered_run_until_it_is_accepted(command: str, own, capsys) -> None:
    run = own("karate")
    words = command.replace("RUN", str(run)).split()
    config, history = run / "config.yaml", run / "metrics.jsonl"
    config.write_text(config.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    assert f"{config} was altered since step-00000004 was saved: restore it, or go on" in complaint(words, capsys)
    history.write_bytes(history.read_bytes()[:-9])
    assert f"{config} was altered and {history} has lost its end" in complaint(words, capsys)
    capsys.readouterr()
    assert main([*words, "--accept"]) == (2 if "generate" in command else 0)  # this task generates nothing
    assert "since step-00000004 was saved; accepted" in capsys.readouterr().err


def test_an_accepted_configuration_must_still_fit_the_weights(own, capsys) -> None:
    run = own("karate")
    another_model(run)
    assert "was made for another model" in complaint(["evaluate", str(run), "--accept"], capsys)


@pytest.mark.parametrize(("run", "command", "request_"), REQUESTS)
def test_an_input_that_cannot_be_answered_is_refused(run: str, command: str, request_: str, trained, capsys) -> None:
    given = ["--", request_] if command == "predict" else [f"--prompt={request_}"]
    told = complaint([command, str(trained(run)), *given], capsys)
    assert REQUESTS[run, command, request_] in told


def test_a_run_folder_is_never_overwritten(own, capsys) -> None:
    run = own("karate")
    assert "already holds a run" in complaint(["train", "karate", "--run", str(run)], capsys)
    assert json.loads((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])["step"] == 4


def test_a_run_folder_that_cannot_be_written_is_refused(capsys) -> None:
    Path("file").write_text("in the way", encoding="utf-8")
    assert "file" in complaint(["train", "karate", "--run", "file/run"], capsys)
