"""Fine-tuning by recipe: folders of transformers' models and tokenizers, made here, with weights drawn."""

import json
import shutil
from functools import partial

import pytest
import torch

from edgewise import CheckpointError, ConfigError, DataError, causal, training
from edgewise.apps import recipes
from edgewise.apps.options import configure
from edgewise.models import from_hugging_face
from edgewise.tasks.core.batch import Batch
from edgewise.training.seeds import seed
from models.hub.peers import bart, bert, decoder, gpt2, t5
from tasks.miniature import write_multi30k

tokenizers = pytest.importorskip("tokenizers")
TEXT = "the graph says who attends to whom. " * 40
SMILES = "smiles,value\n" + "".join(f"{'C' * n}O,{n}\n" for n in range(1, 13))


def write_tokenizer(folder, texts, special, size=50):
    """A tokenizer as that of a model: byte pairs, and tokens that only frame a text, named as transformers does."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=special["unk_token"]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    names = list(dict.fromkeys(special.values()))
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=size, special_tokens=names, show_progress=False)
    made.train_from_iterator(texts, trainer)
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(special))
    return made


def configured(recipe, **options):
    written = recipes.read(recipe)
    return configure(written, [(name.replace("__", "."), str(value)) for name, value in options.items()])


def test_a_language_model_goes_on_with_its_own_tokens_and_weights(tmp_path):
    peer = decoder("Mistral", sliding_window=4)
    peer.save_pretrained(tmp_path / "hub")
    ends = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    made = write_tokenizer(tmp_path / "hub", [TEXT], ends)
    (tmp_path / "text.txt").write_text(TEXT)
    config = training.settled(
        configured(
            "topics-llama",
            task__file=tmp_path / "text.txt",
            task__context=16,
            start__hub=tmp_path / "hub",
            train__steps=2,
            evaluation__every=1,
        )
    )
    task, model = training.assemble(config)
    training.begin(model, config)
    ids = torch.tensor([made.encode(TEXT[: len("the graph says who attends to whom.")]).ids])
    assert torch.equal(task.encode(TEXT[: len("the graph says who attends to whom.")])[None], ids)
    assert config.graph.name == "window"
    found = model.eval()(task.graph(config.graph, ids.shape[1]), ids)
    assert (found - peer(ids).logits).abs().max() < 1e-4

    result = training.train(config, tmp_path / "run", progress=False)
    shutil.rmtree(tmp_path / "hub")  # the run holds all that it needs
    loaded = training.load_run(tmp_path / "run")
    assert torch.equal(loaded.task.encode("the graph"), task.encode("the graph"))
    assert training.evaluate(loaded.model, loaded.task, "valid", 8, loaded.pattern)["loss"] == pytest.approx(
        result.valid
    )
    guesses = loaded.task.predict(loaded.model, loaded.pattern, "the graph says", "cpu")["next"]
    assert len(guesses) == 5 and all("token" in guess for guess in guesses)


def test_bert_reads_molecules_by_its_own_tokens_and_its_head_is_drawn(tmp_path):
    pytest.importorskip("rdkit")
    peer = bert()
    peer.save_pretrained(tmp_path / "hub")
    special = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]", "unk_token": "[UNK]"}
    made = write_tokenizer(tmp_path / "hub", ["C" * n + "O" for n in range(1, 30)], special)
    (tmp_path / "own.csv").write_text(SMILES)
    options = {"task__file": "own.csv", "task__folder": tmp_path, "task__value": "value", "task__length": 16}
    config = configured("esol-bert-100", start__run="", start__hub=tmp_path / "hub", train__steps=2, **options)
    config = training.settled(config)
    assert (config.model.name, config.model.options["readout"], config.model.options["width"]) == ("bert", "mean", 24)
    task, model = training.assemble(config)
    own = model.state_dict()["head.weight"].clone()
    training.begin(model, config)
    assert torch.equal(model.state_dict()["head.weight"], own)
    batch: Batch = task.batch(task.splits["valid"][:1], None)
    first, *middle, last = batch.x.tolist()
    assert (first, last) == (made.token_to_id("[CLS]"), made.token_to_id("[SEP]"))
    assert middle == made.encode(task.graphs.names[int(task.splits["valid"][0])]).ids
    hidden = peer(batch.x[None], output_hidden_states=True).hidden_states[-1][0]
    assert (model.eval().hidden(batch.graph, batch.x) - hidden).abs().max() < 1e-5
    training.train(config, tmp_path / "run", progress=False)
    assert (tmp_path / "run" / "tokenizer.json").is_file()
    assert training.load_run(tmp_path / "run").task.tokenizer.mask == made.token_to_id("[MASK]")


@pytest.mark.parametrize("made", [t5, partial(bart, max_position_embeddings=64)])
def test_pairs_are_translated_from_a_folders_own_weights(made, tmp_path):
    pytest.importorskip("sacrebleu")
    peer = made(decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)
    peer.save_pretrained(tmp_path / "hub")
    ends = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    folder = write_multi30k(tmp_path / "data")
    write_tokenizer(tmp_path / "hub", ["a man", "ein mann"], ends)
    config = training.settled(
        configured("multi30k-de-en", task__folder=folder, start__hub=tmp_path / "hub", train__steps=2)
    )
    task, model = training.assemble(config)
    training.begin(model, config)
    assert (task.tokenizer.begin, task.tokenizer.end) == (0, 1)
    batch = next(task.batches("valid", 1))
    sources = batch.graph.encoder.num_receivers
    given = {"input_ids": batch.x[None, :sources], "decoder_input_ids": batch.x[None, sources:]}
    assert (model.eval()(*batch.inputs) - peer(**given).logits[0]).abs().max() < 1e-4


def test_low_rank_additions_and_more_positions_begin_with_a_folder(tmp_path):
    gpt2().save_pretrained(tmp_path / "hub")
    write_tokenizer(tmp_path / "hub", [TEXT], {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"})
    (tmp_path / "text.txt").write_text(TEXT)
    given = {"task__file": tmp_path / "text.txt", "task__context": 24, "start__hub": tmp_path / "hub"}
    config = training.settled(configured("topics-llama", **given, start__extend="repeated", start__rank=2))
    _, model = training.assemble(config)
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert trained and not any("embed" in name for name in trained)
    assert torch.equal(model.positions.weight[16:], model.positions.weight[:8])
    short = training.settled(configured("topics-llama", **given))
    _, model = training.assemble(short)
    with pytest.raises(ConfigError, match="has 16 positions, and 24 are needed"):
        training.begin(model, short)


def test_rates_of_dropout_that_a_recipe_gives_stay_beside_a_folder_s_model(tmp_path):
    decoder("Llama", attention_dropout=0.25).save_pretrained(tmp_path)
    given = {"start__hub": tmp_path, "task__context": 8}
    theirs = training.settled(configured("topics-llama", **given)).model.options
    assert (theirs["dropout"], theirs["attention"].options["dropout"]) == (0.0, 0.25)
    own = {"model__dropout": 0.1, "model__attention__dropout": 0.3}
    ours = training.settled(configured("topics-llama", **given, **own)).model.options
    assert (ours["dropout"], ours["attention"].options["dropout"]) == (0.1, 0.3)
    assert ours["attention"].options["key_value_heads"] == theirs["attention"].options["key_value_heads"]


def test_a_classifier_of_texts_by_their_last_token_reads_them_from_the_left(tmp_path):
    peer = decoder("Llama", "SequenceClassification", num_labels=2, pad_token_id=0)
    peer.save_pretrained(tmp_path / "hub")
    write_tokenizer(tmp_path / "hub", [TEXT], {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"})
    rows = "".join(f"{'who says'[: n % 8 + 1]},{n % 2}\n" for n in range(40))
    (tmp_path / "own.csv").write_text(f"text,label\n{rows}")
    given = {"task__file": tmp_path / "own.csv", "task__length": 16, "start__hub": tmp_path / "hub"}
    with pytest.raises(ConfigError, match="by its last token, which attends to the past: --graph causal"):
        training.settled(configured("own-texts", **given))
    config = training.settled(configured("own-texts", **given, graph="causal"))
    task, model = training.assemble(config)
    training.begin(model, config)
    batch: Batch = task.batch(task.splits["valid"][:1], config.graph)
    assert (model.eval()(*batch.inputs)[0] - peer(batch.x[None]).logits).abs().max() < 1e-5


def test_rotary_positions_are_divided_for_longer_texts(tmp_path):
    decoder("Llama").save_pretrained(tmp_path / "hub")
    write_tokenizer(tmp_path / "hub", [TEXT], {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"})
    (tmp_path / "text.txt").write_text(TEXT)
    given = {"task__file": tmp_path / "text.txt", "task__context": 24, "start__hub": tmp_path / "hub"}
    config = training.settled(configured("topics-llama", **given, start__extend="interpolated"))
    _, model = training.assemble(config)
    training.begin(model, config)
    expected = from_hugging_face(tmp_path / "hub", length=24, extend="interpolated")
    tokens = torch.randint(2, 50, (1, 24))
    assert torch.equal(model.eval()(causal(24), tokens), expected(causal(24), tokens))
    with pytest.raises(ConfigError, match="rotary positions have no table"):
        training.settled(configured("topics-llama", **given, start__extend="repeated"))
    with pytest.raises(ConfigError, match="has 16 positions, and 24 are needed"):
        training.settled(configured("topics-llama", **given))
    enough = training.settled(configured("topics-llama", **given | {"task__context": 16}, start__extend="interpolated"))
    assert enough.model.options["positions"].options["base"] == 10000.0


def test_a_folder_that_does_not_fit_a_task_is_refused(tmp_path):
    gpt2().save_pretrained(tmp_path / "hub")
    (tmp_path / "text.txt").write_text(TEXT)
    given = {"task__file": tmp_path / "text.txt", "task__context": 16, "start__hub": tmp_path / "hub"}
    config = training.settled(configured("topics-llama", **given))
    _, model = training.assemble(config)
    with pytest.raises(CheckpointError, match=r"its embedding is \[50, 24\].*holds no tokenizer.json"):
        training.begin(model, config)
    (tmp_path / "hub" / "tokenizer.json").write_text("[]")
    with pytest.raises(DataError, match=r"tokenizer.json: not a tokenizer"):
        training.assemble(config)
    made = write_tokenizer(tmp_path / "hub", [TEXT], {"unk_token": "<unk>"})
    assert made.get_vocab_size() > 10
    with pytest.raises(DataError, match="no token is named that begins a text"):
        training.assemble(config)
    with pytest.raises(ConfigError, match="both name weights to start from"):
        configured("esol-bert-100", start__hub=tmp_path / "hub")
    with pytest.raises(ConfigError, match=r"start.extend makes more positions of a folder"):
        configured("topics-llama", start__extend="repeated")
    seed(0, torch.device("cpu"))
