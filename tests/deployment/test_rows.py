"""Predictions for files of inputs."""

import csv
import json
from pathlib import Path

import pytest

from edgewise.apps import recipes
from edgewise.apps.options import configure
from edgewise.deployment import load
from edgewise.deployment.inputs import read_inputs
from edgewise.deployment.rows import predict_file, replaces, writing
from edgewise.errors import ConfigError, DataError
from edgewise.training import train


@pytest.fixture(scope="module")
def karate(tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "karate"
    train(configure(recipes.read("karate"), [("train.steps", "2"), ("model.width", "8")]), run, progress=False)
    return load(run)


def table(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as content:
        return list(csv.DictReader(content))


NODES = [5, 0, 33, 5, 12, 7, 7]


def inputs(folder: Path, ending: str) -> Path:
    file = folder / f"nodes.{ending}"
    if ending == "parquet":
        import pyarrow
        from pyarrow.parquet import write_table

        write_table(pyarrow.table({"age": [1.5] * len(NODES), "input": NODES}), file)
    elif ending == "csv":
        file.write_text("age,input\n" + "".join(f"1.5,{node}\n" for node in NODES), encoding="utf-8")
    else:
        file.write_text("".join(f"{node}\n" for node in NODES), encoding="utf-8")
    return file


@pytest.mark.parametrize("ending", ["csv", "parquet", "txt"])
def test_the_table_has_the_predictions_in_the_order_of_the_inputs(ending: str, karate, tmp_path: Path) -> None:
    sizes = []
    count = predict_file(karate, inputs(tmp_path, ending), tmp_path / "out.csv", batch=3, done=sizes.append)
    rows, single = table(tmp_path / "out.csv"), karate.predict(NODES)
    assert count == len(rows) == len(NODES) and sizes == [3, 3, 1]
    for row, node, prediction in zip(rows, NODES, single, strict=True):
        assert (row["input"], row["node"], row["class"]) == (str(node), str(node), prediction["class"])
        for name, probability in prediction["probabilities"].items():
            assert float(row[f"probabilities.{name}"]) == pytest.approx(probability, rel=1e-6)
    columns = [name.removeprefix("probabilities.") for name in rows[0] if name.startswith("probabilities.")]
    assert columns == [*karate.task.classes]


def test_a_parquet_table_has_the_same_columns(karate, tmp_path: Path) -> None:
    from pyarrow.parquet import read_table

    file = inputs(tmp_path, "txt")
    predict_file(karate, file, tmp_path / "out.csv", batch=4)
    predict_file(karate, file, tmp_path / "out.parquet", batch=4)
    first, second = table(tmp_path / "out.csv"), read_table(tmp_path / "out.parquet").to_pylist()
    assert [set(row) for row in first] == [set(row) for row in second]
    assert [row["class"] for row in first] == [row["class"] for row in second]
    assert [float(row["probabilities.Officer"]) for row in first] == [row["probabilities.Officer"] for row in second]


@pytest.mark.parametrize(
    ("content", "name", "column", "why"),
    [
        ("input\n3\n99\n", "a.csv", None, r"a.csv: line 3: no node '99' in karate"),
        ("3\n\n4\nx\n", "a.txt", None, r"a.txt: line 4: no node 'x' in karate"),
        ("age,node\n1,3\n", "a.csv", None, "it has no column 'input', only age, node: name one of them"),
        ("17\n3\n", "a.csv", None, "first line must name the column, but is the number 17: put 'input' above it"),
        ("age,node\n1,3\n", "a.csv", "name", "it has no column 'name'"),
        ("age,node\n1\n", "a.csv", "node", "line 2 does not have 2 columns"),
        ("input\n", "a.csv", None, "it has no inputs"),
        ("", "a.txt", None, "it has no inputs"),
        ("3\n", "a.xls", None, "inputs are in a file that ends with .csv, .tsv, .parquet, .jsonl, .json, .txt"),
        ("no table", "a.parquet", None, "a.parquet"),
    ],
)
def test_what_cannot_be_read_is_named_and_leaves_no_table(content, name, column, why, karate, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=why):
        predict_file(karate, tmp_path / name, tmp_path / "out.csv", column)
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_options_that_do_not_fit_are_refused(karate, tmp_path: Path) -> None:
    file = inputs(tmp_path, "txt")
    with pytest.raises(ConfigError, match=r"ends with \.csv or \.parquet"):
        predict_file(karate, file, tmp_path / "out.json")
    with pytest.raises(ConfigError, match="a text has no columns: leave out 'node'"):
        read_inputs(file, "node")
    for name in ("missing.csv", "missing.txt", "missing.parquet"):
        with pytest.raises(DataError, match=rf"{name}: cannot be read \(No such file or directory\)"):
            predict_file(karate, tmp_path / name, tmp_path / "out.csv")


def test_predictions_take_no_input_s_place(karate, tmp_path: Path) -> None:
    file = inputs(tmp_path, "csv")
    before = file.read_text(encoding="utf-8")
    (tmp_path / "link.csv").symlink_to(file)
    for read, out in ((file, file), (file, tmp_path / "link.csv"), (tmp_path / "link.csv", file), (tmp_path, file)):
        with pytest.raises(ConfigError, match="predictions would take the place of an input"):
            predict_file(karate, read, out)
    assert file.read_text(encoding="utf-8") == before
    for _ in range(2):  # what an earlier call has written may be written anew
        assert predict_file(karate, file, tmp_path / "out.csv") == len(NODES)
    (tmp_path / "edges-work.csv").write_text("from,to\n1,2\n", encoding="utf-8")
    assert replaces(tmp_path / "edges-work.csv", file) and not replaces(tmp_path / "out.csv", file)


def test_an_only_column_needs_no_name(karate, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("node\n3\n4\n", encoding="utf-8")
    assert predict_file(karate, tmp_path / "a.csv", tmp_path / "out.csv") == 2
    assert [json.loads(row["node"]) for row in table(tmp_path / "out.csv")] == [3, 4]


def written(out: Path, *parts: list[dict]) -> list[dict]:
    from pyarrow.parquet import read_table

    with writing(out, out) as write:
        for rows in parts:
            write(rows)
    return table(out) if out.suffix == ".csv" else read_table(out).to_pylist()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_what_the_first_rows_do_not_know_later_ones_may(ending: str, tmp_path: Path) -> None:
    out, names = tmp_path / f"out.{ending}", ["input", "measured", "age.value", "label"]
    first, second = dict.fromkeys(names), {"age.value": 0.5, "input": "b", "measured": 2.5, "label": "u"}
    made = written(out, [{"input": "a"}, first], [second])
    assert [list(row) for row in made] == [names] * 3
    assert made[2] == {name: str(second[name]) if ending == "csv" else second[name] for name in names}
    with pytest.raises(DataError, match="the first rows have no 'weight'"):
        written(out, [first], [second, second | {"weight": 1}])


def test_a_column_of_a_parquet_table_has_one_type(tmp_path: Path) -> None:
    for parts in ([[{"a": "x"}], [{"a": 1.5}]], [[{"a": "x"}, {"a": 1.5}]]):
        with pytest.raises(DataError, match="a column has values of two types"):
            written(tmp_path / "out.parquet", *parts)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_blank_lines_of_a_text_keep_their_place(ending: str, karate, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n\n5\n\n7\n", encoding="utf-8")
    out = tmp_path / f"out.{ending}"
    assert predict_file(karate, tmp_path / "a.txt", out, batch=2) == 6
    if ending == "csv":
        rows = table(out)
    else:
        import polars

        rows = polars.read_parquet(out).to_dicts()
    assert [row["input"] for row in rows] == ["", "", "", "5", "", "7"]
    assert [str(row["node"] or "") for row in rows] == ["", "", "", "5", "", "7"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
def test_inputs_are_read_in_whatever_way_their_file_is_written(encoding: str, tmp_path: Path) -> None:
    texts = ["Größe, Maß", "Straße"]
    for separator in ",;\t":
        table = tmp_path / ("a.tsv" if separator == "\t" else "a.csv")
        rows = "".join(f'{n}{separator}"{text}"\n' for n, text in enumerate(texts))
        table.write_text(f"# by hand\nid{separator}Satz\n{rows}", encoding=encoding)
        assert [one[:2] for one in read_inputs(table, "Satz")] == [
            (f"{table}: line {n + 3}", text) for n, text in enumerate(texts)
        ]
    plain = tmp_path / "a.txt"
    plain.write_text("\n".join(texts), encoding=encoding)
    assert [one.request for one in read_inputs(plain)] == texts
