"""Standard data by name: each published format, in small, becomes files that the set's recipe reads."""

import gzip
import io
import json
import tarfile
from pathlib import Path
from urllib.parse import urlsplit
from zipfile import ZipFile

import numpy as np
import pytest

from edgewise.apps import recipes
from edgewise.apps.command.main import main
from edgewise.apps.options import configure
from edgewise.apps.standard import STANDARD, ready
from edgewise.data.splits import SPLITS
from edgewise.errors import DataError
from edgewise.tasks import TASKS

DRAW = np.random.default_rng(0)


def packed(members: dict[str, str | bytes], kind: str) -> bytes:
    """An archive, in which names that end in .gz are packed again."""
    made, found = io.BytesIO(), {n: c.encode() if isinstance(c, str) else c for n, c in members.items()}
    found = {name: gzip.compress(content) if name.endswith(".gz") else content for name, content in found.items()}
    if kind == "zip":
        with ZipFile(made, "w") as archive:
            for name, content in found.items():
                archive.writestr(name, content)
    else:
        with tarfile.open(fileobj=made, mode=f"w:{kind}") as tar:
            for name, content in found.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def lines(rows: object) -> str:
    return "".join(",".join(map(str, np.atleast_1d(row))) + "\n" for row in np.asarray(rows))


def arrays() -> bytes:
    masks = np.arange(40) % 4
    made, edges = io.BytesIO(), np.stack([np.arange(40), (np.arange(40) + 1) % 40], 1)
    parts = {
        name: np.stack([masks == n, masks == 3]) for n, name in enumerate(("train_masks", "val_masks", "test_masks"))
    }
    np.savez(made, node_features=DRAW.random((40, 3), np.float32), node_labels=np.arange(40) % 2, edges=edges, **parts)
    return made.getvalue()


def of_ogb(name: str, kind: str) -> bytes:
    parts = {f"{name}/split/{kind}/{part}.csv.gz": lines(np.arange(n, 40, 4)) for n, part in enumerate(SPLITS)}
    made = {
        "edge": [(n, (n + 1) % 40) for n in range(40)],
        "node-feat": DRAW.random((40, 3)),
        "node-label": np.arange(40) % 2,
    }
    return packed(parts | {f"{name}/raw/{part}.csv.gz": lines(rows) for part, rows in made.items()}, "zip")


def molhiv() -> bytes:
    parts = {f"hiv/split/scaffold/{part}.csv.gz": lines(np.arange(n, 40, 4)) for n, part in enumerate(SPLITS)}
    rows = "smiles,HIV_active,mol_id\n" + "".join(f"{'C' * (n + 1)}O,{n // 4 % 2},CHEMBL{n}\n" for n in range(40))
    return packed(parts | {"hiv/mapping/mol.csv.gz": rows, "hiv/split/scaffold/split_dict.pt": "never read"}, "zip")


def molecule(number: int) -> str:
    chain = "C" * number
    values = "\t".join(f"{value + number / 8}" for value in range(15))
    atoms = "".join(f"C\t{1.5 * place}\t1.*^-6\t0.0\t-0.2\n" for place in range(number))
    return f"{number}\ngdb {number}\t{values}\t\n{atoms}100.0\t200.0\n{chain}\t{chain}O\t\nInChI=1\tInChI=1\n"


def pictures(first: int) -> bytes:
    return b"".join(bytes([(first + n) % 2]) + DRAW.integers(0, 256, 3072, np.uint8).tobytes() for n in range(30))


RATINGS = "".join(f"{user}\t{(user * 3 + n) % 9}\t{3 + n % 3}\t{n}\n" for user in range(12) for n in range(8))
FACTS = {
    f"{part}.txt": "".join(f"e{n}\tr{n % 2}\te{(n + p + 1) % 9}\n" for n in range(9)) for p, part in enumerate(SPLITS)
}
NEWS = "".join(f'"{1 + n % 4}","Title {n}","He said ""no"", twice, number {n}"\n' for n in range(60))
REVIEWS = "sentence\tlabel\n" + "".join(f'a "quoted number {n}\t{n % 2}\n' for n in range(60))
PEPTIDES = "smiles,labels\n" + "".join(
    f'{"C" * (n + 1)}N,"{[int(n % 3 == k % 3) for k in range(10)]}"\n' for n in range(30)
)
PUBLISHED = {
    "minesweeper": [arrays],
    "ogbn-arxiv": [lambda: of_ogb("arxiv", "time")],
    "ogbn-products": [lambda: of_ogb("products", "sales_ranking")],
    "ogbg-molhiv": [molhiv],
    "qm9": [
        lambda: packed({f"dsgdb9nsd_{n:06}.xyz": molecule(n) for n in range(1, 31)}, "bz2"),
        lambda: b"3 compounds\n# index\n  7  CCC CCC 0.1 0.2\n",
    ],
    "peptides-func": [lambda: gzip.compress(PEPTIDES.encode())],
    "wn18rr": [lambda: packed({**FACTS, "../outside.txt": "no"}, "gz")],
    "movielens-100k": [lambda: packed({"ml-100k/u.data": RATINGS, "ml-100k/u.user": "1|24|M"}, "zip")],
    "ag-news": [NEWS.encode, NEWS[:800].rpartition("\n")[0].encode],
    "sst-2": [lambda: packed({"SST-2/train.tsv": REVIEWS, "SST-2/dev.tsv": REVIEWS[:300].rpartition("\n")[0]}, "zip")],
    "cifar-10": [
        lambda: packed(
            {
                "cifar/batches.meta.txt": "cat\nship\n\n",
                "cifar/data_batch_1.bin": pictures(0),
                "cifar/test_batch.bin": pictures(1),
            },
            "gz",
        )
    ],
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_become_what_the_recipe_reads(name, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("EDGEWISE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(DataError, match="no folder with all files"):
        ready(name)
    (tmp_path / "data" / name).mkdir(parents=True)
    for file, content in zip(STANDARD[name].files, PUBLISHED[name], strict=True):
        (tmp_path / "data" / name / file.name).write_bytes(content())
    (tmp_path / "cache" / "edgewise" / name / ".making" / "store").mkdir(parents=True)  # broken off
    config = configure(recipes.read(STANDARD[name].recipe), [("task.data", name)])
    task = TASKS[config.task.name](**config.task.options)
    assert all(len(task.splits[split]) for split in SPLITS)
    assert not list((tmp_path / "cache").rglob("outside.txt"))
    for file in STANDARD[name].files:  # what was made of them is there
        (tmp_path / "data" / name / file.name).unlink()
    assert ready(name) == tmp_path / "cache" / "edgewise" / name
    assert not list((tmp_path / "cache").rglob(".making"))


def test_what_is_made_has_the_published_numbers(tmp_path) -> None:
    for name in ("minesweeper", "qm9", "ag-news"):
        (tmp_path / name).mkdir()
        for file, content in zip(STANDARD[name].files, PUBLISHED[name], strict=True):
            (tmp_path / name / file.name).write_bytes(content())
        ready(name, str(tmp_path / name))
    found = np.load(tmp_path / "minesweeper" / "graph.npz")
    assert found["edge_index"].shape == (2, 40) and found["train"].nonzero()[0].tolist() == [*range(0, 40, 4)]
    rows = (tmp_path / "qm9" / "molecules.csv").read_text().splitlines()
    assert (
        len(rows) == 1 + 29
        and rows[1].startswith("1,CO,0.125,1.125,")
        and not any(row.startswith("7,") for row in rows)
    )
    assert (tmp_path / "qm9" / "frames.xyz").read_text().splitlines()[:3] == [
        "1",
        f"Properties=species:S:1:pos:R:3 energy={10.125 * 27.211386:.8f}",
        "C 0.0 1.e-6 0.0",
    ]
    assert '"Title 0 He said ""no"", twice, number 0",World,train' in (tmp_path / "ag-news" / "texts.csv").read_text()


def test_every_set_has_a_recipe_an_address_and_a_hash_or_says_why_not(capsys) -> None:
    for name, known in STANDARD.items():
        assert known.recipe in recipes.names(), name
        for file in known.files:
            assert urlsplit(file.url).scheme == "https" and len(file.sha256) in (0, 64) and file.max_bytes > 1 << 19
    assert main(["data", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out.splitlines()[-1])["data"]
    assert {row["get"] for row in listed} == {"yes", "no", "bring it"} and len(listed) == len(STANDARD)


def test_get_says_how_to_train_and_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for part, content in FACTS.items():
        (tmp_path / part).write_text(content)
    assert main(["data", "get", "wn18rr", "--folder", str(tmp_path)]) == 0
    assert f"edgewise train own-facts --task.folder={tmp_path}" in capsys.readouterr().out
    for words, message in (
        (["data", "get"], "takes a NAME"),
        (["data", "get", "wn18r"], "did you mean"),
        (["data", "get", "zinc-12k"], "pickles alone"),
        (["data", "get", "ogbg-molhiv", "--folder", str(tmp_path)], "hiv.zip. Nobody publishes its sha256"),
        (["train", "own-facts", "--task.data", "wn18rr", "--task.download", "maybe"], "true or false"),
    ):
        assert main(words) == 2
        assert message in capsys.readouterr().err
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "ml-100k.zip").write_bytes(PUBLISHED["movielens-100k"][0]()[:200])
    with pytest.raises(DataError, match=r"ml-100k\.zip: not an archive"):
        ready("movielens-100k", str(tmp_path / "cut"))
