"""Options of a recipe that cannot be."""

import shlex

import pytest

from apps.malformed.refused import complaint
from edgewise.apps import recipes

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
    "--machine.threads 1000000": "machine.threads must be at least 0 and at most 1024, not 1000000",
    "--device tpu": "unknown option '--device'; did you mean '--machine.device'? see",
    "--learning-rate 0.1": "unknown option '--learning-rate'; did you mean '--optimizer.learning_rate'? see",
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
    "--model.heads 0": "model.heads must be at least 1, not 0",
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
