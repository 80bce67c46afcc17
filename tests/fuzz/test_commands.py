"""Wrong inputs of commands: each is refused in one line with exit code 2, names what is wrong, and changes nothing."""

import hashlib
import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from edgewise.apps import recipes
from edgewise.apps.command.main import main


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


COMMANDS = {
    # command line: a part of the complaint
    "trian karate": "did you mean 'train'",
    "frobnicate": "'frobnicate' is unknown",
    "--versoin": "did you mean '--version'",
    "demo --rnu x": "did you mean '--run'",
    "train": "train needs a RECIPE",
    "train cora-gnc": "did you mean 'cora-gcn'",
    "train ''": "unknown recipe ''",
    "train missing.yaml": "cannot read 'missing.yaml'",
    "train karate extra": "unexpected argument 'extra'",
    "train demo-karate --model.width 10000000": "1,200,000,520,000,002 weights: holding them takes 4.8 PB",
    "train karate --seeds 0": "not a whole number from 1",
    "train karate --seeds 99999999999999999999": "not a whole number from 1",
    "train karate -x": "unknown option '-x'",
    "train karate --train.steps": "--train.steps needs a value",
    "resume nowhere": "nowhere is not a run folder",
    "predict nowhere": "the following arguments are required: INPUT",
    "generate nowhere --temperature nan": "'nan' is not a number >= 0",
    "plan": "name a pattern, such as",
    "plan window n=4 radius=1 radius=2": "given twice",
    "plan window 4 1": "write '4' as OPTION=VALUE",
    "plan window n=4 radius=1 sides=left": "window.sides must be one of both, past",
    "plan grid height=3 width=3 neighbors=5": "4 or 8",
    "plan causal n=4 --score Dott": "did you mean 'Dot'",
}


@pytest.mark.parametrize("line", COMMANDS)
def test_a_mistyped_command_is_refused(line: str, capsys) -> None:
    assert COMMANDS[line] in complaint(shlex.split(line), capsys)


OPTIONS = {
    # options of `edgewise train karate`: a part of the complaint
    "--train.stps 4": "did you mean 'steps'",
    "--steps.train 4": "the configuration takes no option 'steps'; it takes task, model",
    "--.steps 4": "the configuration takes no option ''; it takes task",
    "--train.steps.more 4": "train.steps.more: steps is one value",
    "--train.steps -1": "train.steps must be at least 0",
    "--train.seed 1e400": "train.seed",
    "--machine.device gpu": "machine.device must be auto, cpu",
    "--machine.threads 1000000": "machine.threads must be at least 0 and at most 1024, not 1000000",
    "--device tpu": "unknown option '--device'; did you mean '--machine.device'? see",
    "--machine.device cuda:99": "machine.device 'cuda:99'",
    "--optimizer.name adm": "optimizer 'adm' is unknown; did you mean 'adam'",
    "--optimizer.learning_rate nan": "optimizer.learning_rate",
    "--optimizer.learning_rate '!!python/object/apply:os.system [exit]'": "optimizer.learning_rate",
    "--optimizer.decay_prefix zebra.": "optimizer.decay_prefix 'zebra.' starts no name",
    "--optimizer.class_path os.system": "optimizer 'adam' takes no option 'class_path'; it takes learning_rate",
    "--schedule.name cosine --schedule.minimum 2": "schedule.minimum must be at least 0 and at most 1, not 2.0",
    "--task.name os.system": "task 'os.system' is unknown: choose one of",
    "--task.name text --task.context 0": "context must be at least 1",
    "--task.name text --task.file nowhere.txt": "nowhere.txt",
    "--task.name digits --task.patch 3 --model.readout mean": "patch=3 does not cut",
    "--task.name digits": "choose a readout",
    "--task.name citation --task.folder nowhere": "no folder with all files",
    "--graph.name window": "graph.radius is missing",
    "--graph.name grid": "does not fit 34 positions",
    "--graph.radius 3": "graph 'given' takes no option 'radius'; it takes none",
    "--task.name text --graph.name complete": "see the next one",
    "--model.name gnn --model.layer gcm": "layer 'gcm' is unknown",
    "--model.name gnn --model.layer gat --model.layer.heads 5": "5 heads do not divide",
    "--model.name mlp --task.name text": "Perceptron reads features of nodes",
    "--model.width 99999999999999999999": "model.width must be an integer",
    "--model.positions learned": "positions='learned' needs a task whose graphs have a largest length",
    "--model.attention lsh --model.attention.chnk 4": "did you mean 'chunk'? it takes chunk, buckets, rounds",
    "--model.tied true": "tied=True needs a task that reads and writes the same tokens",
}


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


RECIPES = {
    # name of the case: the recipe's text, a part of the complaint
    "empty": ("", "must be a mapping"),
    "no YAML": ("task: [", "not valid YAML"),
    "a null byte": ("task: {name: 'kar\0ate'}", "not valid YAML"),
    "an unknown section": ("tsk: {name: karate}", "did you mean 'task'"),
    "a section that is a word": (
        "task: karate\nmodel: gnn\ntrain: long",
        "train must hold options by name, not 'long'",
    ),
    "no task": ("model: {name: gnn}", "names no task"),
    "an unknown task": ("task: {name: kareta}\nmodel: {name: gnn}", "did you mean 'karate'"),
    "a mapping as a value": ("task: {name: karate, loops: {a: b}}\nmodel: {name: gnn}", "not a mapping"),
    "not a number": ("task: {name: karate}\nmodel: {name: gnn, dropout: .nan}", "must be a finite number"),
    "an option given twice": ("task: {name: karate, name: text}\nmodel: {name: gnn}", "'name' is given twice"),
    "an alias": ("task: &a {name: karate}\nmodel: *a", "aliases (*name) are not allowed"),
    "a python tag": ("task: !!python/object/apply:os.system ['echo hi']", "not valid YAML"),
    "a class path with arguments": (
        "task: {name: karate}\nmodel: {name: gnn}\noptimizer: {class_path: antigravity, init_args: {a: 1}}",
        "optimizer 'adamw' takes no option 'class_path'",
    ),
    "deep nesting": ("task: " + 20_000 * "[", "not valid YAML"),
    "two documents": ("task: {name: karate}\n---\nmodel: {name: gnn}", "not valid YAML"),
    "a description that is a list": ("description: [a]\ntask: {name: karate}\nmodel: {name: gnn}", "must be text"),
    "too large": ("# " + 70_000 * "x", "is larger than 64 KiB"),
    "a number of many digits": (f"task: {{name: karate}}\nmodel: {{width: {5000 * '9'}}}", "not valid YAML"),
}


@pytest.mark.parametrize("case", RECIPES)
def test_a_malformed_recipe_is_refused(case: str, capsys) -> None:
    text, expected = RECIPES[case]
    Path("mine.yaml").write_text(text, encoding="utf-8")
    assert expected in complaint(["train", "mine.yaml"], capsys)


def test_a_recipe_that_is_not_text_is_refused(capsys) -> None:
    Path("mine.yaml").write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8 text" in complaint(["train", "mine.yaml"], capsys)


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


def interrupted_early(run: Path) -> None:
    no_checkpoints(run)
    (run / "metrics.jsonl").write_bytes(b"")


def one_byte_altered(run: Path) -> None:
    for checkpoint in (run / "checkpoints").iterdir():
        weights = checkpoint / "best.safetensors"
        content = weights.read_bytes()
        weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


DAMAGE = {
    # what happened to the run folder: how, and a part of the complaint
    "no configuration": (no_configuration, "it holds no config.yaml"),
    "an empty configuration": (configuration(b""), "the configuration must hold options"),
    "a python tag": (configuration(b"task: !!python/object/apply:os.system [echo]"), "not valid YAML"),
    "a configuration that is binary": (configuration(b"\xff\xfe\x00"), "is not UTF-8 text"),
    "an older layout": (
        configuration(b"task: karate"),
        "has layout 1, and this version reads layout 5: go on with the",
    ),
    "an unknown layout": (configuration(b"{layout: new}"), "has an unknown layout, and this version reads layout 5"),
    "another model's configuration": (another_model, "config.yaml was altered since step-00000004 was saved"),
    "no checkpoints": (no_checkpoints, "is finished, and its checkpoints are gone: bring them back, or train it anew"),
    "interrupted before its first checkpoint": (interrupted_early, "has no checkpoint yet: `edgewise resume "),
    "one byte altered": (one_byte_altered, "is intact"),
    "an empty state": (checkpoints("state.json", b""), "is intact"),
    "a state that is a list": (checkpoints("state.json", b"[]"), "is intact"),
    "a state without hashes": (checkpoints("state.json", b'{"state": {}}'), "is intact"),
}

REQUESTS = {
    # run, command and input: a part of the complaint
    ("karate", "predict", "zebra"): "no node 'zebra'",
    ("karate", "predict", "99999999999999999999"): "no node",
    ("digits", "predict", "zebra"): "give a .npy file, a picture",
    ("digits", "predict", "test:360"): "has 360 images in test",
    ("text", "predict", ""): "the prompt is empty",
    ("text", "predict", "\N{SNOWMAN}"): "character '☃' at position 0",
    ("text", "generate", "ab\N{SNOWMAN}"): "character '☃' at position 2",
    ("karate", "generate", "ab"): "karate generates nothing: only texts, graphs and images are written",
}


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


def test_a_run_of_which_no_checkpoint_is_intact_is_refused_in_one_line(own, capsys) -> None:
    run = own("karate")
    checkpoints("state.json", b"{")(run)
    newest = max((run / "checkpoints").iterdir())
    assert main(["evaluate", str(run)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    advice = f"no checkpoint in {run}/checkpoints is intact: train in a new run folder"
    assert said.startswith(f"edgewise: error: {advice}; the checkpoint {newest} is damaged (")


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


READ = ("config.yaml", "metrics.jsonl", "checkpoints/*/*")  # what a command reads of a run folder


def flipped(content: bytes, random: Random) -> bytes:
    place = random.randrange(len(content))
    return content[:place] + bytes([content[place] ^ (1 << random.randrange(8))]) + content[place + 1 :]


def zeroed(content: bytes, random: Random) -> bytes:
    place = random.randrange(len(content))
    length = min(random.choice([1, 16, 512, 4096]), len(content) - place)
    return content[:place] + bytes(length) + content[place + length :]


def shuffled(content: bytes, random: Random) -> bytes:
    place, length = random.randrange(len(content)), random.randrange(1, 512)
    return content[place : place + length] + content[:place] + content[place + length :]


TEARS: dict[str, Callable[[bytes, Random], bytes | None]] = {
    "cut short": lambda content, random: content[: random.randrange(len(content))],
    "emptied": lambda content, random: b"",
    "a bit flipped": flipped,
    "zeroed in part": zeroed,
    "reordered": shuffled,
    "longer": lambda content, random: content + random.randbytes(random.randrange(1, 99)),
    "another line": lambda content, random: content + content.splitlines(keepends=True)[-1],
    "other bytes": lambda content, random: random.randbytes(len(content)),
    "removed": lambda content, random: None,
}


def tear(run: Path, random: Random) -> tuple[Path, str]:
    """Damage one file: which, and how."""
    path = random.choice(sorted(path for pattern in READ for path in run.glob(pattern)))
    how = random.choice(sorted(TEARS))
    content = TEARS[how](path.read_bytes(), random)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    elif random.random() < 0.3:
        path.mkdir()  # a folder in its place
    return path, how


def last(run: Path, command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object], str]:
    """A command's exit code, its result, and its messages."""
    capsys.readouterr()
    code = main([*command.split(), str(run), "--json"])
    told = capsys.readouterr()
    assert "Traceback" not in told.err
    return code, json.loads(told.out.splitlines()[-1]) if code == 0 else {}, told.err


def check(count: int, own: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, int]:
    """Tear a finished and an interrupted run, each time one file; how many ended how."""
    finished, ends = own("karate"), {"unchanged": 0, "an older checkpoint": 0, "refused": 0}
    interrupted = shutil.copytree(finished, tmp_path / "interrupted")
    shutil.rmtree(interrupted / "checkpoints" / "step-00000004")
    history = interrupted / "metrics.jsonl"
    history.write_bytes(b"".join(history.read_bytes().splitlines(keepends=True)[:-2]))
    # What an undisturbed run says, and what one says whose newest checkpoint is gone.
    evaluated = [last(finished, "evaluate", capsys)[1], last(interrupted, "evaluate", capsys)[1]]
    expected = [[result[split] for split in ("valid", "test")] for result in evaluated]
    reached = last(Path(shutil.copytree(interrupted, tmp_path / "resumed")), "resume", capsys)[1]["values"]
    random = Random(0)
    for number in range(count):
        first = (finished, interrupted)[number % 2]
        run = Path(shutil.copytree(first, tmp_path / "torn"))
        path, how = tear(run, random)
        what = f"{number}: {path.relative_to(run)} {how}"
        for command in ("evaluate", "resume"):
            code, result, messages = last(run, command, capsys)
            if code:
                assert code == 2 and messages.count("edgewise: error: ") == 1, what
                assert messages.splitlines()[-1].startswith("edgewise: error: "), what
                end = "refused"
            else:
                scores = [result[split] for split in ("valid", "test")] if command == "evaluate" else result["values"]
                assert scores == reached or scores in expected, what
                end = "an older checkpoint" if "using the one before" in messages else "unchanged"
            ends[end] += 1
        shutil.rmtree(run)
    return ends


def test_a_torn_file_costs_a_checkpoint_or_is_refused(own, tmp_path, capsys) -> None:
    ends = check(4, own, tmp_path, capsys)
    assert sum(ends.values()) == 8


@pytest.mark.endurance
@pytest.mark.timeout(900)
def test_three_hundred_torn_files(own, tmp_path, capsys) -> None:
    print(check(300, own, tmp_path, capsys))
