import pytest
import torch

from edgewise.errors import DataError
from edgewise.models import BERT, BERTSettings
from edgewise.tasks import masked_smiles, smiles
from edgewise.tasks.text.smiles import TOKENIZER, canonical, respelt

pytest.importorskip("rdkit")
LINES = [f'"m, {carbons}",OC{"C" * carbons},{carbons}.5' for carbons in range(1, 31)]


def _write(folder, lines=LINES):
    (folder / "mine.csv").write_text("\n".join(["name,smiles,melts", *lines]), encoding="utf-8")
    return {"file": "mine.csv", "value": "melts", "folder": str(folder)}


def _read(batch):
    return [TOKENIZER.decode(part.tolist()) for part in batch.x.split([m.num_receivers for m in batch.members])]


def test_a_molecule_is_respelt_in_many_ways_and_stays_what_it_is():
    aspirin, draw = "CC(=O)Oc1ccccc1C(=O)O", torch.Generator().manual_seed(0)
    found = [respelt(aspirin, draw) for _ in range(100)]
    assert len(set(found)) > 50
    assert {canonical(one) for one in found} == {canonical(aspirin)}
    draw.manual_seed(0)
    assert [respelt(aspirin, draw) for _ in range(100)] == found


def test_training_reads_respelt_molecules_and_evaluation_canonical_ones(tmp_path):
    task = smiles(**_write(tmp_path), labels=10)
    read = [text for seed in range(9) for text in _read(task.train_batch(10, torch.Generator().manual_seed(seed)))]
    train = {task.graphs.names[number] for number in task.graphs.splits["train"].tolist()}
    assert {canonical(text) for text in read} == train
    assert len(train) == 10 < len(set(read))
    assert _read(next(task.batches("train", 10))) == [task.graphs.names[n] for n in task.graphs.splits["train"]]
    plain = smiles(**_write(tmp_path), labels=10, respell=False)
    assert set(_read(plain.train_batch(10, torch.Generator()))) == train


def test_labels_are_some_of_the_training_molecules_and_masked_smiles_sees_the_same_cut(tmp_path):
    options = _write(tmp_path)
    whole, few, masked = (
        smiles(**options, fold=3),
        smiles(**options, fold=3, labels=7),
        masked_smiles(**options, fold=3),
    )
    assert set(few.graphs.splits["train"].tolist()) < set(whole.graphs.splits["train"].tolist())
    assert len(few.graphs.splits["train"]) == 7
    for split in ("valid", "test"):
        assert torch.equal(few.graphs.splits[split], whole.graphs.splits[split])
        assert masked.texts[split] == [whole.graphs.names[number] for number in whole.graphs.splits[split]]
    assert not set(masked.texts["train"]) & {*masked.texts["valid"], *masked.texts["test"]}
    assert few.signature.inputs == masked.signature.inputs
    assert few.signature.length == masked.signature.length


def test_masked_molecules_are_respelt(tmp_path):
    task = masked_smiles(**_write(tmp_path))
    batch = task.train_batch(64, torch.Generator().manual_seed(0))
    x = batch.x.clone()
    x[batch.rows] = batch.target
    read = [TOKENIZER.decode(part.tolist()) for part in x.split([m.num_receivers for m in batch.members])]
    assert {canonical(text) for text in read} <= set(task.texts["train"])
    assert set(read) - set(task.texts["train"])


def test_any_molecule_is_predicted_by_its_smiles_in_whatever_spelling(tmp_path):
    task = smiles(**_write(tmp_path))
    model = BERT(BERTSettings(width=8, depth=1, heads=2, readout="first"), task.signature)
    known = task.predict(model, None, "valid:0", "cpu")
    one, other = task.predictions(model, None, [known["name"][::-1], "C1CC1"], "cpu")
    assert one["value"] == pytest.approx(known["value"], rel=1e-5) and one["measured"] is None
    assert (one["name"], other["name"]) == (known["name"], "C1CC1")
    with pytest.raises(DataError, match="not a molecule in SMILES"):
        task.predict(model, None, "melts", "cpu")
